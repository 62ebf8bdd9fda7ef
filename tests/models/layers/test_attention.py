import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.layers.attention import (
    ATTENTION_CHUNK,
    Packing,
    attend,
    cached_attention,
    causal_attention,
    one_sequence,
    splash_attention,
)

# A prefix of 3, questions of 4 and 3, two pads.
OWNER = jnp.array([[0, 0, 0, 1, 1, 1, 1, 2, 2, 2, -1, -1]] * 3)
POSITIONS = jnp.array([[0, 1, 2, 3, 4, 5, 6, 3, 4, 5, 0, 0]] * 3)


def test_question_sees_the_prefix_and_its_own_past() -> None:
    mask = Packing(POSITIONS, OWNER).mask()
    assert mask.shape == (3, 1, 12, 12)
    segment_ids = OWNER[0].tolist()
    expected = [
        [s <= t and segment_ids[s] in (0, segment_ids[t]) for s in range(12)] for t in range(12)
    ]
    np.testing.assert_array_equal(mask, np.broadcast_to(expected, mask.shape))
    causal = one_sequence(3, 12).mask()
    np.testing.assert_array_equal(causal, np.broadcast_to(np.tri(12, dtype=bool), mask.shape))


def test_attention_in_chunks_is_attention() -> None:
    """In three chunks, the last one short, under the mask of two questions."""
    T = 2 * ATTENTION_CHUNK + 7
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(2, T, heads, 6)).astype(np.float32) for heads in (4, 2, 2))
    segment_ids = jnp.asarray(np.repeat([[0, 1, 2]], [40, 300, T - 340], axis=1).repeat(2, axis=0))
    mask = one_sequence(2, T)._replace(segment_ids=segment_ids).mask()
    found = jax.jit(causal_attention)(q, k, v, mask)
    expected = jax.nn.dot_product_attention(q, k, v, mask=mask)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def row(length: int, size: int) -> tuple[list[jax.Array], jax.Array]:
    """Queries, keys and values of two rows, and the mask of two questions behind a prefix of 40."""
    rng = np.random.default_rng(0)
    arrays = [
        jnp.asarray(rng.normal(size=(2, length, heads, size)), jnp.float32) for heads in (4, 2, 2)
    ]
    segment_ids = np.repeat([[0, 1, 2]], [40, 100, length - 140], axis=1).repeat(2, axis=0)
    return arrays, one_sequence(2, length)._replace(segment_ids=jnp.asarray(segment_ids)).mask()


def test_kernel_for_tpus_is_attention_and_so_are_its_gradients() -> None:
    """Interpreted, as there is no TPU here."""
    arrays, mask = row(256, 128)

    def squares(attention: Any, *arrays: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = attention(*arrays, mask=mask)
        return jnp.sum(found**2), found

    (found, gradients), (expected, expected_gradients) = (
        jax.jit(jax.grad(partial(squares, attention), argnums=(0, 1, 2), has_aux=True))(*arrays)[
            ::-1
        ]
        for attention in (partial(splash_attention, interpret=True), causal_attention)
    )
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    for left, right in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(left, right, rtol=0, atol=2e-4)


def test_kernel_for_tpus_is_refused_for_rows_that_it_cannot_cut() -> None:
    arrays, mask = row(200, 128)
    with pytest.raises(InputError, match="found 200, expected a multiple of 128"):
        attend(*arrays, mask, "splash")


ON_MESH = Path(__file__).with_name("splash_on_mesh.py")


@pytest.mark.system(haste=True)
def test_each_device_attends_with_its_own_rows_and_heads() -> None:
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "8"}
    done = subprocess.run(
        [sys.executable, str(ON_MESH)], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["same", "same", "same", "refused"]


@pytest.mark.parametrize("used", [1, 5, 6, 7, 31, 37])
def test_attention_to_the_filled_part_of_a_cache_is_attention_to_all_of_it(used):
    slots, rng = 37, np.random.default_rng(used)
    q, k, v = (
        jnp.asarray(rng.normal(size=(2, n, heads, 8)), jnp.float32)
        for n, heads in ((3, 4), (slots, 2), (slots, 2))
    )
    mask = jnp.asarray(np.arange(slots) < rng.integers(1, used + 1, (2, 1, 3, 1)))
    mask = mask.at[0, 0, 0].set(jnp.arange(slots) < used)
    every = jax.nn.dot_product_attention(q, k, v, mask=mask)
    np.testing.assert_allclose(cached_attention(q, k, v, mask), every, atol=1e-6)


def test_what_lies_behind_the_filled_part_of_a_cache_is_not_read():
    q = k = v = jnp.ones((1, 60, 1, 4))
    unread = k.at[:, 40:].set(jnp.nan)
    mask = jnp.broadcast_to(jnp.arange(60) < 20, (1, 1, 60, 60))
    assert bool(jnp.isfinite(cached_attention(q, unread, v, mask)).all())
