"""Marks burned into a picture: text of a patient or device, and calipers.

Ultrasound itself has speckle; marks are saturated, sharp and isolated. What is found is reported of
each picture, and pictures are not changed: a classifier may lean on marks, and the report of a
cross-validation compares pictures with and without them.

Shape letters: H W pixels.
"""

import numpy as np
from jaxtyping import UInt8
from scipy import ndimage

BRIGHT = 235
BAND = 0.12
"""Share of the height, at the top and at the bottom, where text stands."""
GLYPH_PX = (2, 26)
"""Height of a letter; of a caliper's cross at most the last."""
LEAST_GLYPHS = 4
DARK_AROUND = 40.0
"""Mean grey value around a letter: text stands on the black border."""


def find_overlays(grey: UInt8[np.ndarray, "H W"]) -> tuple[str, ...]:
    """Return which marks a picture seems to have: `text`, `calipers`."""
    parts, count = ndimage.label(grey >= BRIGHT, np.ones((3, 3)))
    boxes = ndimage.find_objects(parts, count)
    height = len(grey)
    glyphs, crosses = 0, 0
    for number, box in enumerate(boxes, 1):
        if box is None:
            continue
        tall, wide = (side.stop - side.start for side in box)
        if not (GLYPH_PX[0] <= tall <= GLYPH_PX[1] and GLYPH_PX[0] <= wide <= GLYPH_PX[1]):
            continue
        shape = parts[box] == number
        middle = (box[0].start + box[0].stop) / 2 / height
        if BAND < middle < 1 - BAND:
            crosses += _is_cross(shape)
        elif tall >= 5 and _around(grey, box) < DARK_AROUND and 0.1 < shape.mean() < 0.95:
            glyphs += 1
    marks = [("text", glyphs >= LEAST_GLYPHS), ("calipers", crosses >= 2)]
    return tuple(name for name, is_there in marks if is_there)


def _is_cross(shape: np.ndarray) -> bool:
    """Whether a part is a plus or a cross: thin, symmetric, and through its middle."""
    tall, wide = shape.shape
    if min(tall, wide) < 5 or max(tall, wide) > 1.5 * min(tall, wide) or shape.mean() > 0.5:
        return False
    middle = shape[tall // 3 : tall - tall // 3, wide // 3 : wide - wide // 3]
    alike = (shape == shape[::-1, ::-1]).mean()
    return bool(middle.any() and alike > 0.8)


def _around(grey: np.ndarray, box: tuple[slice, slice]) -> float:
    grown = tuple(slice(max(0, side.start - 3), side.stop + 3) for side in box)
    whole, own = grey[grown].astype(float), grey[box].astype(float)
    pixels = whole.size - own.size
    return float((whole.sum() - own.sum()) / pixels) if pixels else 0.0
