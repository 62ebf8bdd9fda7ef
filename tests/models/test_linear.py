import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from tumorchain_jax.models.linear import Linear, LoRA

X = jax.random.normal(jax.random.key(1), (2, 5, 6))


class Pair(nn.Module):
    """Two layers, of which a LoRA rule may name one."""

    lora: LoRA | None

    @nn.compact
    def __call__(self, x):
        x = Linear(7, ("embed", "mlp"), True, self.lora, name="first")(x)
        return Linear(3, ("mlp", "embed"), True, self.lora, name="second")(x)


def init(lora: LoRA | None) -> dict:
    return nn.unbox(jax.jit(Pair(lora).init)(jax.random.key(0), X))["params"]


def run(lora: LoRA | None, params: dict) -> jax.Array:
    return jax.jit(Pair(lora).apply)({"params": params}, X)


def test_output_is_x_kernel_plus_bias() -> None:
    kernel, bias = np.random.default_rng(0).random((6, 4)), np.arange(4.0)
    params = {"params": {"kernel": jnp.asarray(kernel), "bias": jnp.asarray(bias)}}
    y = Linear(4, ("embed", "mlp"), use_bias=True).apply(params, X)
    np.testing.assert_allclose(y, np.asarray(X) @ kernel + bias, atol=1e-5)


def test_lora_adds_only_the_named_parameters() -> None:
    plain, adapted = init(None), init(LoRA((".*second",), rank=2))
    added = adapted["second"].keys() - plain["second"].keys()
    assert added == {"lora_a", "lora_b"}
    assert adapted["first"].keys() == plain["first"].keys()
    assert adapted["second"]["lora_a"].shape == (7, 2)
    assert adapted["second"]["lora_b"].shape == (2, 3)


def test_lora_starts_silent() -> None:
    lora = LoRA((".*",), rank=2)
    adapted = init(lora)
    plain = {
        name: {k: v for k, v in layer.items() if "lora" not in k} for name, layer in adapted.items()
    }
    assert np.abs(adapted["first"]["lora_a"]).min() > 0
    assert not adapted["first"]["lora_b"].any()
    np.testing.assert_array_equal(run(lora, adapted), run(None, plain))


def test_lora_is_a_change_of_the_kernel_by_alpha_over_rank() -> None:
    lora = LoRA((".*second",), rank=2, alpha=6.0)
    params = init(lora)
    b = jax.random.normal(jax.random.key(2), (2, 3))
    kernel = params["second"]["kernel"] + 3.0 * params["second"]["lora_a"] @ b
    merged = {"first": params["first"], "second": params["second"] | {"kernel": kernel}}
    params["second"]["lora_b"] = b
    del merged["second"]["lora_a"], merged["second"]["lora_b"]
    np.testing.assert_allclose(run(lora, params), run(None, merged), atol=1e-6)


def test_lora_a_is_drawn_as_peft_draws_it() -> None:
    """Kaiming uniform with a = sqrt 5: within ±1/sqrt(inputs), and it fills that range."""
    layer = Linear(4, ("embed", "mlp"), lora=LoRA((".*",), rank=8))
    params = nn.unbox(jax.jit(layer.init)(jax.random.key(0), jnp.ones((1, 400))))["params"]
    assert 0.049 < np.abs(params["lora_a"]).max() <= 0.05


def test_computation_is_in_the_given_type_and_parameters_stay_float32() -> None:
    layer = Linear(4, ("embed", "mlp"), True, LoRA((".*",)), jnp.bfloat16)
    y, params = jax.eval_shape(layer.init_with_output, jax.random.key(0), X)
    assert y.dtype == jnp.bfloat16
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}
