"""How pictures share a bucket of patches: windows, positions and owners, made on the host.

A picture of h x w patches has them in merge-group order: four consecutive patches are the 2 x 2
that the merger joins, groups go in raster order. The tower keeps this order throughout; which
patches see one another follows from `window` and `picture` alone, so no patch is ever moved.

Shape letters: P patches of a bucket.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from tumorchain_jax.core.errors import InputError

MERGE = 2
"""Patches on each side of a merge group, of which one visual token is made."""
BUCKETS = (256, 484, 1024, 2048, 4096, 8192, 16384)
"""Numbers of patches that programs are compiled for; 484 is a picture of 308 x 308 pixels."""
PAD = -1

Grid = tuple[int, int]
"""Rows and columns of a picture's patches."""


class Plan(NamedTuple):
    """What the tower has to know of the patches of a bucket; `PAD` where there is none.

    Attributes:
        window: number of the attention window, counted over all pictures.
        hw: row and column of the patch in its picture, 0 for pads.
        picture: number of the picture.
    """

    window: Int[np.ndarray, " P"]
    hw: Int[np.ndarray, "P 2"]
    picture: Int[np.ndarray, " P"]


def bucket_for(grids: Sequence[Grid], buckets: Sequence[int] = BUCKETS) -> int:
    """The smallest bucket that holds all patches of these pictures.

    Raises:
        InputError: none does.
    """
    needed = sum(rows * columns for rows, columns in grids)
    fitting = [size for size in sorted(buckets) if size >= needed]
    if not fitting:
        hint = "lower max_pixels, or send fewer pictures"
        expected = f"at most {max(buckets)} patches of 14 x 14 pixels together"
        raise InputError("pictures", "size", f"{needed} patches", expected, hint)
    return fitting[0]


def plan(grids: Sequence[Grid], patches: int, window: int = 4) -> Plan:
    """Lay pictures one after the other into a bucket.

    Args:
        grids: of the pictures; even numbers.
        patches: P, a multiple of four.
        window: merge groups on each side of an attention window; those at the right and bottom of a
            picture may be smaller.

    Raises:
        InputError: the pictures do not fit.
        ValueError: a grid is no grid of merge groups.
    """
    bucket_for(grids, (patches,))
    found = Plan(
        np.full(patches, PAD, np.int32),
        np.zeros((patches, 2), np.int32),
        np.full(patches, PAD, np.int32),
    )
    start = windows = 0
    for number, (rows, columns) in enumerate(grids):
        if min(rows, columns) < MERGE or rows % MERGE or columns % MERGE:
            raise ValueError(f"a grid of {rows} x {columns} patches, expected even numbers")
        group = np.indices((rows // MERGE, columns // MERGE))[:, :, :, None, None]
        inside = np.indices((MERGE, MERGE))[:, None, None]
        row, column = (group * MERGE + inside).reshape(2, -1)
        across = -(-columns // (MERGE * window))
        here = slice(start, start + rows * columns)
        side = MERGE * window
        found.hw[here] = np.stack([row, column], axis=1)
        found.window[here] = windows + row // side * across + column // side
        found.picture[here] = number
        windows += across * -(-rows // side)
        start += rows * columns
    return found
