import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from tumorchain_jax.models.organ_classifier import OrganClassifier

TOKENS = jax.random.normal(jax.random.key(1), (2, 3, 4, 5))
VALID = jnp.array(
    [
        [[1, 1, 1, 1], [1, 0, 1, 0], [0, 0, 0, 0]],
        [[0, 0, 0, 1], [1, 1, 0, 0], [0, 1, 1, 1]],
    ],
    bool,
)
MODEL = OrganClassifier()
PARAMS = {
    "fc": {
        "kernel": jax.random.normal(jax.random.key(2), (5, 2)),
        "bias": jnp.array([0.5, -2.0]),
    }
}


def logits(tokens: jax.Array) -> np.ndarray:
    return np.asarray(jax.jit(MODEL.apply)({"params": PARAMS}, tokens, VALID))


def test_logits_come_from_the_mean_of_the_valid_tokens() -> None:
    got = logits(TOKENS)
    for row, organ in np.ndindex(2, 3):
        kept = np.asarray(TOKENS)[row, organ][np.asarray(VALID)[row, organ]]
        mean = kept.mean(0) if len(kept) else np.zeros(5)
        expected = mean @ PARAMS["fc"]["kernel"] + PARAMS["fc"]["bias"]
        np.testing.assert_allclose(got[row, organ], expected, atol=1e-5)


def test_an_absent_organ_gets_the_bias_alone() -> None:
    np.testing.assert_array_equal(logits(TOKENS)[0, 2], PARAMS["fc"]["bias"])


def test_invalid_slots_change_nothing() -> None:
    junk = jnp.where(VALID[..., None], TOKENS, 1e6)
    np.testing.assert_array_equal(logits(junk), logits(TOKENS))


def test_no_gradient_flows_into_invalid_slots() -> None:
    gradient = jax.grad(lambda t: MODEL.apply({"params": PARAMS}, t, VALID)[..., 1].sum())(TOKENS)
    np.testing.assert_array_equal(np.abs(gradient).max(-1) > 0, VALID)


def test_parameters() -> None:
    params = nn.unbox(jax.eval_shape(MODEL.init, jax.random.key(0), TOKENS, VALID))["params"]
    assert jax.tree.map(lambda p: p.shape, params) == {"fc": {"kernel": (5, 2), "bias": (2,)}}
