"""Locate ROI cells: cells of the token grid -> a mask and a box of the scan's or a crop's grid."""

from collections.abc import Sequence

import numpy as np

from tumorchain_jax.scan.preprocess import Box


def cell_mask(
    cells: Sequence[int], cell_grid: tuple[int, int, int], grid: tuple[int, int, int]
) -> np.ndarray:
    """Turn raster indices (depth first) in a token grid into bool `[D, H, W]` of the model grid."""
    mask = np.zeros(cell_grid, bool)
    mask[_positions(cells, cell_grid)] = True
    for axis, (size, count) in enumerate(zip(grid, cell_grid, strict=True)):
        mask = mask.repeat(size // count, axis)
    return mask


def cell_box(cells: Sequence[int], cell_grid: tuple[int, int, int]) -> Box | None:
    """Return the tightest box around the cells, None if there are none.

    Returns:
        (min d, h, w, max d, h, w) in [0, 1]: 0 is the outer edge of the grid's first voxel, 1 that
        of its last.
    """
    if not cells:
        return None
    positions = np.array(_positions(cells, cell_grid))
    first_d, first_h, first_w = (positions.min(axis=1) / cell_grid).tolist()
    last_d, last_h, last_w = ((positions.max(axis=1) + 1) / cell_grid).tolist()
    return first_d, first_h, first_w, last_d, last_h, last_w


def _positions(
    cells: Sequence[int], cell_grid: tuple[int, int, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    d, h, w = np.unravel_index(np.asarray(cells, int), cell_grid)
    return d, h, w
