"""Marks burned into a picture: text of a patient or device, and calipers.

Ultrasound has speckle and bright layers; marks are drawn. Letters are bright, thin, and stand in a
line with equal tops and bottoms; a caliper is a small + or x whose four arms are brighter than
all that lies between them. What is found is reported of each picture, and pictures are not changed:
a classifier may lean on marks, and the report of a cross-validation compares pictures with and
without them.

Shape letters: H W pixels.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8
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
    above = reduced - ndimage.grey_opening(reduced, (STROKE_PX, STROKE_PX))
    lines = [line for rise in RISES for line in _lines(_glyphs(reduced, above >= rise))]
    strokes = above >= CROSS_RISE
    for line in lines:  # letters have crossings too
        height = line[0].bottom - line[0].top
        rows = slice(max(0, line[0].top - 2), line[0].bottom + 2)
        strokes[rows, max(0, line[0].left - 4 * height) : line[-1].right + 4 * height] = False
    found, _ = ndimage.label(_is_cross(reduced, strokes), np.ones((3, 3)))
    marks = [("text", bool(lines)), ("calipers", found.max() >= LEAST_CROSSES)]
    return tuple(name for name, is_there in marks if is_there)


def _reduced(grey: UInt8[np.ndarray, "H W"]) -> Float[np.ndarray, "h w"]:
    picture = Image.fromarray(grey)
    picture.thumbnail((LARGEST_PX, LARGEST_PX), Image.Resampling.LANCZOS)
    return np.asarray(picture, np.float32)


def _glyphs(grey: Float[np.ndarray, "H W"], strokes: Bool[np.ndarray, "H W"]) -> Sequence[Glyph]:
    """Strokes of a letter's size, from left to right."""
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


def _is_cross(
    grey: Float[np.ndarray, "H W"], strokes: Bool[np.ndarray, "H W"]
) -> Bool[np.ndarray, "H W"]:
    """On which strokes the arms of a + or x cross: each is brighter than all gaps between them."""
    margin = max(ARMS_PX)
    padded = np.pad(grey, margin, mode="edge")
    found = np.zeros(grey.shape, bool)

    def means(at: Int[np.ndarray, "N 2"], offsets: Int[np.ndarray, "K 2"]) -> np.ndarray:
        y, x = (at[:, None] + offsets + margin).transpose(2, 0, 1)
        return padded[y, x].mean(axis=1)

    for arm in ARMS_PX:
        for arms, gaps in _crossings(arm):
            at = np.argwhere(strokes)
            darkest = np.min([means(at, offsets) for offsets in arms], axis=0)
            for offsets in gaps:  # most strokes fail at the first
                keep = darkest - means(at, offsets) >= CROSS_RISE
                at, darkest = at[keep], darkest[keep]
            found[tuple(at.T)] = True
    return found


def _crossings(arm: int) -> Iterator[tuple[Sequence[np.ndarray], Sequence[np.ndarray]]]:
    """Offsets (y, x) of the four arms and of the four gaps between them: of a +, and of an x."""
    y, x = np.mgrid[-arm : arm + 1, -arm : arm + 1]
    corners = [(a * y, b * x) for a, b in ((1, 1), (1, -1), (-1, 1), (-1, -1))]
    sides = [(y, x), (-y, x), (x, y), (-x, y)]

    def offsets(masks: Iterable[np.ndarray]) -> list[np.ndarray]:
        return [np.argwhere(mask) - arm for mask in masks]

    yield (
        offsets((along > 0) & (across == 0) for along, across in sides),
        offsets((down >= 2) & (right >= 2) for down, right in corners),
    )
    yield (
        offsets((down > 0) & (down == right) for down, right in corners),
        offsets(along - abs(across) >= 2 for along, across in sides),
    )
