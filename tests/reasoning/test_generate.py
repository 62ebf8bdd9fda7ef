"""Choosing a token."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.reasoning.generate import Sampling, sample

pytestmark = pytest.mark.program

DRAWS = 8192
KEYS = jax.random.split(jax.random.key(0), (2, 8))


@partial(jax.jit, static_argnames="sampling")
def draw(logits: np.ndarray, sampling: Sampling) -> jax.Array:
    """Many draws from one distribution."""
    keys = jax.random.split(jax.random.key(0), DRAWS)
    return sample(jnp.broadcast_to(logits, (DRAWS, len(logits))), keys, sampling)


def shares(probability: list[float], sampling: Sampling) -> np.ndarray:
    """How often each token is drawn."""
    logits = np.log(np.array(probability, np.float32)) + 5  # logits need not be normalised
    return np.bincount(draw(logits, sampling), minlength=len(probability)) / DRAWS


def smallest_set(probability: np.ndarray, top_p: float) -> np.ndarray:
    """The distribution over the most probable tokens that together reach `top_p`."""
    kept, reached = np.zeros_like(probability), 0.0
    for token in np.argsort(-probability, kind="stable"):
        kept[token] = probability[token]
        reached += probability[token]
        if reached >= top_p:
            break
    return kept / kept.sum()


def test_greedy_takes_the_largest_logit_the_first_of_equal_ones_whatever_the_key() -> None:
    run = jax.jit(partial(sample, sampling=Sampling()))
    logits = np.random.default_rng(0).normal(size=(8, 50)).astype(np.float32)
    logits[0, [7, 9]] = 9
    for keys in KEYS:
        token = run(logits, keys)
        assert token.dtype == jnp.int32
        np.testing.assert_array_equal(token, np.argmax(logits, axis=1))
    assert token[0] == 7


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_temperature(temperature: float) -> None:
    probability = np.array([0.1, 0.5, 0.15, 0.25])
    expected = probability ** (1 / temperature)
    got = shares(probability.tolist(), Sampling(temperature))
    np.testing.assert_allclose(got, expected / expected.sum(), atol=0.02)


# Distinct probabilities, then equal ones of which some are in and some are out.
@pytest.mark.parametrize(
    ("probability", "top_p"),
    [
        ([0.07, 0.41, 0.13, 0.29, 0.1], 0.5),
        ([0.07, 0.41, 0.13, 0.29, 0.1], 0.75),
        ([0.07, 0.41, 0.13, 0.29, 0.1], 0.99),
        ([0.07, 0.41, 0.13, 0.29, 0.1], 1.0),
        ([0.125, 0.5, 0.125, 0.125, 0.125], 0.6),
        ([0.125, 0.5, 0.125, 0.125, 0.125], 0.45),
    ],
)
def test_top_p_keeps_exactly_the_smallest_set(probability: list[float], top_p: float) -> None:
    expected = smallest_set(np.array(probability), top_p)
    got = shares(probability, Sampling(temperature=1.0, top_p=top_p))
    assert ((got > 0) == (expected > 0)).all()
    np.testing.assert_allclose(got, expected, atol=0.02)


def test_temperature_comes_before_top_p() -> None:
    probability = np.array([0.1, 0.45, 0.15, 0.3])
    hot = probability ** (1 / 3)
    expected = smallest_set(hot / hot.sum(), 0.7)
    assert (expected > 0).sum() == 3  # two tokens would do at temperature 1
    got = shares(probability.tolist(), Sampling(temperature=3.0, top_p=0.7))
    np.testing.assert_allclose(got, expected, atol=0.02)


def test_row_depends_on_its_own_key_and_logits_alone() -> None:
    run = jax.jit(partial(sample, sampling=Sampling(temperature=1.0, top_p=0.9)))
    logits = np.random.default_rng(0).normal(size=(8, 50)).astype(np.float32)
    one, other = KEYS
    tokens = np.asarray(run(logits, one))
    np.testing.assert_array_equal(run(logits, one), tokens)
    np.testing.assert_array_equal(run(logits[::-1], one[::-1]), tokens[::-1])
    assert (run(logits, other) != tokens).any()
    logits[1:] = 0
    assert run(logits, one)[0] == tokens[0]


@pytest.mark.parametrize(
    ("temperature", "top_p"), [(-1.0, 1.0), (float("nan"), 1.0), (1.0, 0.0), (1.0, 1.5)]
)
def test_impossible_sampling_is_refused(temperature: float, top_p: float) -> None:
    with pytest.raises(InputError):
        Sampling(temperature, top_p)
