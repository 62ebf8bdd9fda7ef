"""Winograd's 3x3x3 convolution, for CPUs (Lavin and Gray 2016: F(4, 3) along two of the axes).

Of blocks of 4 planes by 4 rows, with a margin of 1, sums are made (6 by 6 of them), each is
convolved along the rows alone, and sums of the results are the block's voxels: 36 convolutions of 3
taps in place of 16 of 27, a quarter of the products, and along the one axis that is left XLA has a
fast convolution. Rounding is some ten times that of a plain convolution: 1e-5 of the largest value.

Shape letters: B tiles, D H W voxels, C channels in, K channels out, n blocks of planes at once, t
blocks of rows, p q of the six sums along D and H.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax.experimental.xla_metadata import set_xla_metadata
from jaxtyping import Array, Float

INPUTS = (
    (4, 0, -5, 0, 1, 0),
    (0, -4, -4, 1, 1, 0),
    (0, 4, -4, -1, 1, 0),
    (0, -2, -1, 2, 1, 0),
    (0, 2, -1, -2, 1, 0),
    (0, 4, 0, -5, 0, 1),
)
TAPS = (
    (1 / 4, 0, 0),
    (-1 / 6, -1 / 6, -1 / 6),
    (-1 / 6, 1 / 6, -1 / 6),
    (1 / 24, 1 / 12, 1 / 6),
    (1 / 24, -1 / 12, 1 / 6),
    (0, 0, 1),
)
OUTPUTS = ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1))
MADE, READ = len(OUTPUTS), len(INPUTS)
"""Voxels of a block along an axis, and those that it is made of."""
SLAB = 2**19
"""Values of a scan that are worked on at once: about what a processor's cache holds."""


def winograd(
    x: Float[Array, "B D H W C"], kernel: Float[Array, "3 3 3 C K"]
) -> Float[Array, "B D H W K"]:
    """The convolution of stride 1, zero-padded by 1 on every side."""
    B, D, H, W, C = x.shape
    K = kernel.shape[-1]
    blocks_d, blocks_h = -(-D // MADE), -(-H // MADE)
    fitting = [n for n in range(1, blocks_d + 1) if B * n * MADE * H * W * C <= SLAB]
    n = max((n for n in fitting if blocks_d % n == 0), default=1)
    margins = [(1, blocks * MADE + 1 - size) for blocks, size in ((blocks_d, D), (blocks_h, H))]
    padded = jnp.pad(x.reshape(B, D, H, W * C), ((0, 0), *margins, (0, 0)))
    taps = jnp.asarray(TAPS, x.dtype)
    kernels = jnp.einsum("pd,qh,dhwck->pqwck", taps, taps, kernel)

    def sums_along_d(scan: Array, first: Array) -> list[Array]:
        slab = jax.lax.dynamic_slice_in_dim(scan, first, n * MADE + READ - MADE, 1)
        return _combine(INPUTS, _every(slab, 1, n))

    def sums_along_h(planes: Array) -> list[Array]:
        return [rows.reshape(-1, W, C) for rows in _combine(INPUTS, _every(planes, 2, blocks_h))]

    def rows_of(*sums: Array) -> Array:
        parts = [part.reshape(B, n, blocks_h, 1, W * K) for part in sums]
        return jnp.concatenate(_combine(OUTPUTS, parts), 3).reshape(B, n, -1, W * K)

    def planes_of(*sums: Array) -> Array:
        parts = [part[:, :, None] for part in sums]
        return jnp.concatenate(_combine(OUTPUTS, parts), 2).reshape(B, n * MADE, -1, W * K)

    def add_slab(number: Array, made: Array) -> Array:
        first = number * n * MADE
        planes = [
            _apart(rows_of)(
                *(
                    _along_w(rows, k)
                    for rows, k in zip(_apart(sums_along_h)(part), row, strict=True)
                )
            )
            for part, row in zip(_apart(sums_along_d)(padded, first), kernels, strict=True)
        ]
        return jax.lax.dynamic_update_slice_in_dim(made, _apart(planes_of)(*planes), first, 1)

    made = jnp.zeros((B, blocks_d * MADE, blocks_h * MADE, W * K), x.dtype)
    made = jax.lax.fori_loop(0, blocks_d // n, add_slab, made)
    return made[:, :D, :H].reshape(B, D, H, W, K)


def _every(x: Array, axis: int, blocks: int) -> list[Array]:
    """For each of the voxels that a block reads: that of all blocks."""
    end = MADE * (blocks - 1) + 1
    return [jax.lax.slice_in_dim(x, at, at + end, MADE, axis) for at in range(READ)]


def _combine(matrix: Sequence[Sequence[float | int]], parts: Sequence[Array]) -> list[Array]:
    """The rows of a small matrix times `parts`; nothing is multiplied by 0 or 1."""
    made = []
    for row in matrix:
        first, *rest = (
            c * part if c != 1 else part for c, part in zip(row, parts, strict=True) if c
        )
        made.append(sum(rest, first))
    return made


def _apart(function: Callable) -> Callable:
    """Compiled as a function of its own: XLA would make its results again for each that reads."""

    def call(*args: Array) -> Array | list[Array]:
        with set_xla_metadata(inlineable="false"):
            return jax.jit(function)(*args)

    return call


def _along_w(rows: Float[Array, "N W C"], kernel: Float[Array, "3 C K"]) -> Float[Array, "N W K"]:
    layout = ("NHC", "HIO", "NHC")
    return jax.lax.conv_general_dilated(rows, kernel, (1,), [(1, 1)], dimension_numbers=layout)
