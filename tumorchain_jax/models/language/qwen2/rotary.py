"""Rotary position embedding, with one position a token or three.

Shape letters: B batch, T tokens, H heads, E head size.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

RotaryPositions = Int[Array, "B T"] | Int[Array, "3 B T"]
"""By what each token is rotated: one number, or those of its time, height and width."""


class RopeScaling(NamedTuple):
    """Llama 3.1's stretched rotary embedding, named as in its config.json (`rope_type: llama3`)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


def stretched(frequencies: Float[Array, " F"], scaling: RopeScaling) -> Float[Array, " F"]:
    """Slow down low rotary frequencies by `factor`, with a ramp to the high ones, which stay.

    Source: transformers, modeling_rope_utils._compute_llama3_parameters.
    """
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    turns = scaling.original_max_position_embeddings * frequencies / (2 * jnp.pi)
    unchanged = jnp.clip((turns - low) / (high - low), 0, 1)
    return frequencies * (unchanged + (1 - unchanged) / scaling.factor)


def rotate(
    x: Float[Array, "B T H E"],
    positions: RotaryPositions,
    theta: float,
    mrope_section: tuple[int, int, int] | None = None,
    scaling: RopeScaling | None = None,
) -> Float[Array, "B T H E"]:
    """Rotary embedding, half-split (dimension e pairs with e + E/2), angles in float32.

    Args:
        mrope_section: with positions `[3, B, T]`, how many of the E/2 frequencies turn by the first
            row, how many by the second and by the third (Qwen2.5-VL's multimodal embedding).
        scaling: of Llama 3.1.

    Raises:
        ValueError: three rows of positions, but no section for each.
    """
    half = x.shape[-1] // 2
    frequencies = theta ** (-jnp.arange(half, dtype=jnp.float32) / half)
    if scaling is not None:
        frequencies = stretched(frequencies, scaling)
    if positions.ndim == 3:
        if mrope_section is None or sum(mrope_section) != half:
            raise ValueError(f"mrope_section {mrope_section} does not divide {half} frequencies")
        row_of = np.repeat(np.arange(3), mrope_section)  # the row that turns each frequency
        of_each = jnp.moveaxis(positions[row_of], 0, -1)[:, :, None]
    else:
        of_each = positions[:, :, None, None]
    angles = of_each.astype(jnp.float32) * frequencies
    cos, sin = jnp.cos(angles).astype(x.dtype), jnp.sin(angles).astype(x.dtype)
    return turn(x, cos, sin)


def turn(
    x: Float[Array, "B T H E"], cos: Float[Array, "B T 1 half"], sin: Float[Array, "B T 1 half"]
) -> Float[Array, "B T H E"]:
    """Rotate each dimension e of the first half with e + E/2."""
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
