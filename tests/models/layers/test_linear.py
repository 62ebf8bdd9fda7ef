import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from tumorchain_jax.models.layers.linear import Linear, LoRA

KEY = jax.random.key(0)
X = np.random.default_rng(0).standard_normal((2, 5, 6), np.float32)


class Pair(nn.Module):
    """Two layers, of which a LoRA rule may name one."""

    lora: LoRA | None

    @nn.compact
    def __call__(self, x):
        x = Linear(7, ("embed", "mlp"), True, self.lora, name="first")(x)
        return Linear(3, ("mlp", "embed"), True, self.lora, name="second")(x)


def shapes(lora: LoRA | None) -> dict:
    return nn.unbox(jax.eval_shape(Pair(lora).init, KEY, X))["params"]


def run(lora: LoRA | None, params: dict) -> jax.Array:
    return jax.jit(Pair(lora).apply)({"params": params}, X)


def without_lora(params: dict) -> dict:
    return {
        name: {key: value for key, value in layer.items() if not key.startswith("lora_")}
        for name, layer in params.items()
    }


def test_output_is_x_kernel_plus_bias() -> None:
    kernel, bias = np.random.default_rng(1).random((6, 4), np.float32), np.arange(4.0)
    layer = Linear(4, ("embed", "mlp"), use_bias=True)
    y = jax.jit(layer.apply)({"params": {"kernel": kernel, "bias": bias}}, X)
    np.testing.assert_allclose(y, X @ kernel + bias, atol=1e-5)


def test_lora_adds_only_the_named_parameters() -> None:
    plain, adapted = shapes(None), shapes(LoRA((".*second",), rank=2))
    assert without_lora(adapted) == plain
    assert adapted["first"] == plain["first"]
    assert adapted["second"]["lora_a"].shape == (7, 2)
    assert adapted["second"]["lora_b"].shape == (2, 3)


def test_lora_starts_silent() -> None:
    lora = LoRA((".*",), rank=2)
    params = nn.unbox(jax.jit(Pair(lora).init)(KEY, X))["params"]
    for layer in params.values():
        assert np.abs(layer["lora_a"]).min() > 0
        assert not layer["lora_b"].any()
    np.testing.assert_array_equal(run(lora, params), run(None, without_lora(params)))


def test_lora_is_a_change_of_the_kernel_by_alpha_over_rank() -> None:
    lora, rng = LoRA((".*second",), rank=2, alpha=6.0), np.random.default_rng(1)
    params = jax.tree.map(lambda leaf: rng.standard_normal(leaf.shape, np.float32), shapes(lora))
    merged = without_lora(params)
    merged["second"]["kernel"] = (
        params["second"]["kernel"] + 3 * params["second"]["lora_a"] @ params["second"]["lora_b"]
    )
    np.testing.assert_allclose(run(lora, params), run(None, merged), rtol=1e-4, atol=1e-4)


def test_lora_a_is_drawn_as_peft_draws_it() -> None:
    """Kaiming uniform with a = sqrt 5: within ±1/sqrt(inputs), and it fills that range."""
    layer = Linear(4, ("embed", "mlp"), lora=LoRA((".*",), rank=8))
    params = nn.unbox(jax.jit(layer.init)(KEY, np.ones((1, 400), np.float32)))["params"]
    assert 0.049 < np.abs(params["lora_a"]).max() <= 0.05


def test_computation_is_in_the_given_type_and_parameters_stay_float32() -> None:
    layer = Linear(4, ("embed", "mlp"), True, LoRA((".*",)), jnp.bfloat16)
    y, params = jax.eval_shape(layer.init_with_output, KEY, X)
    assert y.dtype == jnp.bfloat16
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}
