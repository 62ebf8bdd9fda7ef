"""Variants of a row's pictures, so that few rows are not learnt by heart.

Variant 0 is the pictures as they are. Every odd one is mirrored left to right (never upside down:
shadows fall down). From 1 on each picture is also zoomed, shifted and made lighter or darker by
draws that the row and the variant alone decide, so a run that is resumed sees the same.
"""

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageEnhance

ZOOM, SHIFT, GAIN = 0.1, 0.06, 0.2
"""How far at most, either way: of the scale, of each side, of the brightness."""


def varied(pictures: Sequence[Image.Image], row: int, variant: int) -> list[Image.Image]:
    """A variant of the pictures of a row; sizes stay, and so do their grids of patches.

    Args:
        row: number of the row.
        variant: from 0.
    """
    if not variant:
        return list(pictures)
    rng = np.random.default_rng([row, variant])
    return [_changed(picture.convert("RGB"), bool(variant % 2), rng) for picture in pictures]


def _changed(picture: Image.Image, mirrored: bool, rng: np.random.Generator) -> Image.Image:
    width, height = picture.size
    zoom, right, down, gain = 1 + rng.uniform(-1, 1, 4) * (ZOOM, SHIFT, SHIFT, GAIN)
    across = -zoom if mirrored else zoom
    # Where a pixel comes from: about the middle of the picture, which is moved.
    left = width / 2 * right - across * width / 2
    top = height / 2 * down - zoom * height / 2
    moved = picture.transform(
        picture.size,
        Image.Transform.AFFINE,
        (across, 0, left, 0, zoom, top),
        Image.Resampling.BICUBIC,
    )
    return ImageEnhance.Brightness(moved).enhance(gain)
