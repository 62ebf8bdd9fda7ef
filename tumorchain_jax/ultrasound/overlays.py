"""Marks burned into a picture: text of a patient or device, and calipers.

Ultrasound itself has speckle and bright layers; marks are drawn. Letters are bright, thin, and stand
in a line with equal tops and bottoms; a caliper is a small + or x whose four arms are brighter than
all that lies between them. What is found is reported of each picture, and pictures are not changed:
a classifier may lean on marks, and the report of a cross-validation compares pictures with and
without them.

Shape letters: H W pixels.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, UInt8
from PIL import Image
from scipy import ndimage

LARGEST_PX = 400
"""Marks are looked for in pictures whose longer side is at most this; larger ones are reduced."""
STROKE_PX = 7
"""Wider than a letter's stroke."""
RISES = (50.0, 90.0, 130.0)
"""Grey values by which strokes rise above what is around; high ones part letters that touch."""
GLYPH_PX = (5, 24)
"""Height of a letter."""
LEAST_GLYPHS = 3
ARMS_PX = (4, 6)
"""Length of a caliper's arms."""
CROSS_RISE = 35.0
"""Of the darkest arm above the brightest gap between arms."""
LEAST_CROSSES = 2


class Glyph(NamedTuple):
    """A bright part as tall as a letter.

    Attributes:
        top, bottom, left, right: in pixels; bottom and right are the first outside.
        grey: of its strokes.
    """

    top: int
    bottom: int
    left: int
    right: int
    grey: float


def find_overlays(grey: UInt8[np.ndarray, "H W"]) -> tuple[str, ...]:
    """Return which marks a picture seems to have: `text`, `calipers`."""
    reduced = _reduced(grey)
    lines = [line for rise in RISES for line in _lines(_glyphs(reduced, rise))]
    response = _crosses(reduced)
    for line in lines:  # letters have crossings too
        height = line[0].bottom - line[0].top
        rows = slice(max(0, line[0].top - 2), line[0].bottom + 2)
        response[rows, max(0, line[0].left - 4 * height) : line[-1].right + 4 * height] = 0
    found, _ = ndimage.label(response >= CROSS_RISE)
    places = [spot for spot in ndimage.find_objects(found) if spot is not None]
    marks = [("text", bool(lines)), ("calipers", len(places) >= LEAST_CROSSES)]
    return tuple(name for name, is_there in marks if is_there)


def _reduced(grey: UInt8[np.ndarray, "H W"]) -> Float[np.ndarray, "h w"]:
    picture = Image.fromarray(grey)
    picture.thumbnail((LARGEST_PX, LARGEST_PX), Image.Resampling.LANCZOS)
    return np.asarray(picture, np.float32)


def _glyphs(grey: Float[np.ndarray, "H W"], rise: float) -> Sequence[Glyph]:
    """Parts that rise above what is around, of a letter's size, from left to right."""
    strokes = grey - ndimage.grey_opening(grey, (STROKE_PX, STROKE_PX)) >= rise
    parts, _ = ndimage.label(strokes, np.ones((3, 3)))
    found = []
    for number, box in enumerate(ndimage.find_objects(parts), 1):
        if box is None:
            continue
        rows, columns = box
        tall, wide = rows.stop - rows.start, columns.stop - columns.start
        if GLYPH_PX[0] <= tall <= GLYPH_PX[1] and wide <= 1.6 * tall:
            inside = grey[box][parts[box] == number]
            edges = (rows.start, rows.stop, columns.start, columns.stop)
            found.append(Glyph(*edges, float(np.percentile(inside, 90))))
    return sorted(found, key=lambda glyph: glyph.left)


def _lines(glyphs: Sequence[Glyph]) -> Iterator[Sequence[Glyph]]:
    """Lines of at least `LEAST_GLYPHS` letters: the longest that ends at each."""
    longest: list[list[Glyph]] = []
    for glyph in glyphs:
        before = [line for line in longest if _continues(line[-1], glyph)]
        longest.append([*max(before, key=len, default=[]), glyph])
    return (line for line in longest if len(line) >= LEAST_GLYPHS)


def _continues(one: Glyph, other: Glyph) -> bool:
    """Whether a letter may follow another: as tall, as high, as bright, and near."""
    height = max(one.bottom - one.top, other.bottom - other.top)
    return (
        abs(one.top - other.top) <= 1
        and abs(one.bottom - other.bottom) <= 1
        and 0 <= other.left - one.right <= 0.8 * height
        and abs(one.grey - other.grey) <= 25
    )


def _crosses(grey: Float[np.ndarray, "H W"]) -> Float[np.ndarray, "H W"]:
    """How far the darkest arm of a + or x around each pixel is above the brightest gap."""
    found = np.full(grey.shape, -np.inf, np.float32)
    for arm in ARMS_PX:
        for arms, gaps in _kernels(arm):
            darkest, brightest = (
                choose([ndimage.correlate(grey, k, mode=mode) for k in kernels], axis=0)
                for choose, kernels, mode in ((np.min, arms, "constant"), (np.max, gaps, "nearest"))
            )
            np.maximum(found, darkest - brightest, out=found)
    return found


def _kernels(arm: int) -> Iterator[tuple[Sequence[np.ndarray], Sequence[np.ndarray]]]:
    """Means over the four arms and over the four gaps between them: of a + and of an x."""
    y, x = np.mgrid[-arm : arm + 1, -arm : arm + 1]
    signs = ((1, 1), (1, -1), (-1, 1), (-1, -1))
    axes = ((y, x), (-y, x), (x, y), (-x, y))
    yield (
        [_mean((along > 0) & (across == 0)) for along, across in axes],
        [_mean((a * y >= 2) & (b * x >= 2)) for a, b in signs],
    )
    yield (
        [_mean((a * y > 0) & (a * y == b * x)) for a, b in signs],
        [_mean(along - abs(across) >= 2) for along, across in axes],
    )


def _mean(where: Bool[np.ndarray, "K K"]) -> Float[np.ndarray, "K K"]:
    return (where / where.sum()).astype(np.float32)
