"""Rotary positions apart from cache slots: defaults, three rows a token, a delta for each row."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.language.qwen2.convert import read_config, transformers_config
from tumorchain_jax.models.language.qwen2.model import Decoder, Qwen2Config, empty_cache, unroll
from tumorchain_jax.models.language.qwen2.rotary import rotate

CONFIG = Qwen2Config(19, 16, 20, 2, 4, 2, 16, False, rope_theta=1e4, mrope_section=(2, 3, 3))
B, T = 3, 12
TOKENS = jnp.asarray(np.random.default_rng(0).integers(0, 19, (B, T)))
ARANGE = jnp.broadcast_to(jnp.arange(T), (B, T))
THREE = jnp.broadcast_to(ARANGE, (3, B, T))
# A picture of 6 tokens in two rows after three words: later words have lower positions than slots.
TIMES = jnp.array([0, 1, 2, 3, 3, 3, 3, 3, 3, 6, 7, 8])
HEIGHTS = jnp.array([0, 1, 2, 3, 3, 3, 4, 4, 4, 6, 7, 8])
WIDTHS = jnp.array([0, 1, 2, 3, 4, 5, 3, 4, 5, 6, 7, 8])
PICTURE = jnp.broadcast_to(jnp.stack([TIMES, HEIGHTS, WIDTHS])[:, None], (3, B, T))
DELTA = jnp.full((B,), -3)


def whole(decoder: Decoder, tokens: jax.Array, positions: Any = None) -> jax.Array:
    return decoder(decoder.embed(tokens), positions=positions)[0]


def extend(decoder: Decoder, tokens: jax.Array, *args: Any) -> tuple[Any, ...]:
    """Tokens onto a cache of another length in each row, of which the first piece is a prefix."""
    cache = empty_cache(decoder.config, B, 2 * T, jnp.float32)
    return decoder.extend(cache, jnp.array([0, 0, 0]), decoder.embed(tokens), *args)


@pytest.fixture(scope="module")
def params() -> dict:
    init = partial(Decoder(CONFIG).init, method=lambda d, x: d.logits(whole(d, x)))
    shapes = nn.unbox(jax.eval_shape(init, jax.random.key(0), TOKENS))["params"]
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: jnp.float32(rng.normal(0, 0.3, leaf.shape)), shapes)


def read(params: dict, positions: Any = None) -> np.ndarray:
    apply = jax.jit(partial(Decoder(CONFIG).apply, method=whole))
    return np.asarray(apply({"params": params}, TOKENS, positions))


def test_rotary_positions_by_default_are_those_of_the_row(params: dict) -> None:
    np.testing.assert_array_equal(read(params, ARANGE), read(params))


def test_three_equal_rows_give_the_bits_of_one(params: dict) -> None:
    np.testing.assert_array_equal(read(params, THREE), read(params))
    moved = ARANGE + jnp.array([[5], [0], [1000]])
    three = jnp.broadcast_to(moved, (3, B, T))
    np.testing.assert_array_equal(read(params, three), read(params, moved))


def test_three_equal_rows_give_the_bits_of_one_in_a_cache(params: dict) -> None:
    decoder = Decoder(CONFIG, unrolled=True)
    apply = jax.jit(partial(decoder.apply, method=extend))
    valid = jnp.asarray(np.random.default_rng(1).random((B, T)) < 0.7)
    slots = jnp.where(valid, jnp.cumsum(valid, axis=1) - 1, 2 * T)
    outputs = [
        apply({"params": unroll(params)}, TOKENS, valid, *rest)
        for rest in ((), (slots,), (jnp.broadcast_to(slots, (3, B, T)),), (None, 0 * DELTA))
    ]
    for other in outputs[1:]:
        jax.tree.map(np.testing.assert_array_equal, other, outputs[0])


def test_rows_of_unequal_positions_make_a_difference(params: dict) -> None:
    plain, picture = read(params), read(params, PICTURE)
    assert np.abs(plain - picture)[:, 4:].max() > 0.02
    np.testing.assert_array_equal(picture[:, :4], plain[:, :4])


@pytest.mark.system(haste=True)
def test_delta_for_each_row_continues_after_a_picture(params: dict) -> None:
    """The first 9 with positions of their own, the words behind them with a delta alone."""
    decoder, tree = Decoder(CONFIG, unrolled=True), {"params": unroll(params)}

    def in_pieces(decoder: Decoder, tokens: jax.Array, last: tuple[Any, ...]) -> jax.Array:
        cache, length = empty_cache(CONFIG, B, T, jnp.float32), jnp.zeros(B, jnp.int32)
        everything, x = jnp.ones((B, T), bool), decoder.embed(tokens)
        first, cache, length = decoder.extend(
            cache, length, x[:, :9], everything[:, :9], PICTURE[:, :, :9]
        )
        then, *_ = decoder.extend(cache, length, x[:, 9:], everything[:, 9:], *last)
        return jnp.concatenate([first, then], axis=1)

    expected, apply = read(params, PICTURE), jax.jit(partial(decoder.apply, method=in_pieces))
    for last in ((PICTURE[:, :, 9:],), (None, DELTA), (PICTURE[:, :, 9:] + 3, DELTA)):
        got = apply(tree, TOKENS, last)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    without = apply(tree, TOKENS, ())
    assert np.abs(without - expected)[:, 9:].max() > 1e-2


def test_sections_give_each_frequency_its_row() -> None:
    x = np.zeros((1, 1, 1, 16), np.float32)
    x[..., :8] = 1
    turned = rotate(jnp.asarray(x), jnp.array([[[3]], [[5]], [[7]]]), 1e4, (2, 3, 3))
    row_of = np.array([3, 3, 5, 5, 5, 7, 7, 7])
    angles = row_of / 1e4 ** (np.arange(8) / 8)
    expected = np.concatenate([np.cos(angles), np.sin(angles)])
    np.testing.assert_allclose(turned[0, 0, 0], expected, atol=1e-6)


@pytest.mark.parametrize("section", [None, (2, 3, 4)], ids=["none", "of-another-head"])
def test_three_rows_without_a_section_for_each_are_refused(section: Any) -> None:
    decoder = Decoder(replace(CONFIG, mrope_section=section))
    with pytest.raises(ValueError, match="mrope_section"):
        jax.eval_shape(partial(decoder.init, method=whole), jax.random.key(0), TOKENS, THREE)


@pytest.mark.parametrize("section", [[2, 3, 4], [8], [2, 6, 0], "238", [2.0, 3.0, 3.0]])
def test_mrope_section_that_does_not_fit_the_heads_is_refused(section: Any) -> None:
    fields = transformers_config(replace(CONFIG, mrope_section=None))
    rope = {"type": "mrope", "mrope_section": [2, 3, 3]}
    fields |= {"model_type": "qwen2_5_vl", "rope_scaling": rope}
    path = Path("config.json")
    assert read_config(path, fields) == CONFIG
    with pytest.raises(InputError, match="three numbers, 8 together"):
        read_config(path, fields | {"rope_scaling": {**rope, "mrope_section": section}})
