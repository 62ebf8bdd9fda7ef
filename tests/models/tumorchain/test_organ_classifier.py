import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from tumorchain_jax.models.tumorchain.organ_classifier import OrganClassifier

RNG = np.random.default_rng(0)
TOKENS = RNG.standard_normal((2, 3, 4, 5), np.float32)
VALID = np.array(
    [
        [[1, 1, 1, 1], [1, 0, 1, 0], [0, 0, 0, 0]],
        [[0, 0, 0, 1], [1, 1, 0, 0], [0, 1, 1, 1]],
    ],
    bool,
)
MODEL = OrganClassifier()
PARAMS = {
    "fc": {
        "kernel": RNG.standard_normal((5, 2), np.float32),
        "bias": np.array([0.5, -2.0], np.float32),
    }
}


@jax.jit
def logits(tokens: jax.Array) -> jax.Array:
    return MODEL.apply({"params": PARAMS}, tokens, jnp.asarray(VALID))


def test_logits_come_from_the_mean_of_the_valid_tokens() -> None:
    got = logits(TOKENS)
    for row, organ in np.ndindex(2, 3):
        kept = TOKENS[row, organ][VALID[row, organ]]
        mean = kept.mean(0) if len(kept) else np.zeros(5)
        expected = mean @ PARAMS["fc"]["kernel"] + PARAMS["fc"]["bias"]
        np.testing.assert_allclose(got[row, organ], expected, atol=1e-5)


def test_absent_organ_gets_the_bias_alone() -> None:
    np.testing.assert_array_equal(logits(TOKENS)[0, 2], PARAMS["fc"]["bias"])


def test_invalid_slots_change_nothing() -> None:
    junk = np.where(VALID[..., None], TOKENS, np.float32(1e6))
    np.testing.assert_array_equal(logits(junk), logits(TOKENS))


def test_no_gradient_flows_into_invalid_slots() -> None:
    gradient = jax.grad(lambda tokens: logits(tokens)[..., 1].sum())(TOKENS)
    np.testing.assert_array_equal(np.abs(gradient).max(-1) > 0, VALID)


def test_parameters() -> None:
    params = nn.unbox(jax.eval_shape(MODEL.init, jax.random.key(0), TOKENS, VALID))["params"]
    assert jax.tree.map(lambda p: p.shape, params) == {"fc": {"kernel": (5, 2), "bias": (2,)}}
