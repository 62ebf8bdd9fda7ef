"""Which cells of the token grid an organ touches (Lambda of Eq. 2), as fixed-shape tables.

Shape letters: D H W model grid, O organs (57, row 0 is the background), L ROI slots.
"""

from typing import NamedTuple

import numpy as np

from tumorchain_jax.anatomy.organs import ORGANS


class OrganCells(NamedTuple):
    """For every organ the cells that hold any of its voxels.

    Attributes:
        cells: int32 `[O, L]`, raster indices in ascending order, 0 beyond the valid ones.
        valid: bool `[O, L]`, true for the first slots that hold a cell. Never all false for an
            organ that has a voxel.
        touched: int32 `[O]`, how many cells the organ touches; beyond L some were left out.
    """

    cells: np.ndarray
    valid: np.ndarray
    touched: np.ndarray

    def visual_index(self, offset: int) -> dict[int, np.ndarray]:
        """Organ -> rows of the bank of visual tokens, of the organs that have any.

        Args:
            offset: the row of the grid's first cell.
        """
        labels = np.flatnonzero(self.valid.any(axis=1)).tolist()
        return {label: self.cells[label][self.valid[label]] + offset for label in labels}


def coverage(labels: np.ndarray, grid: tuple[int, int, int]) -> np.ndarray:
    """Voxels of each organ in each cell: int64 `[O, cells]`.

    Args:
        labels: merged organ labels `[D, H, W]` on the model grid.
        grid: cells along D, H, W; each divides the model grid.
    """
    cell_of_axis = [
        np.arange(size) * cells // size for size, cells in zip(labels.shape, grid, strict=True)
    ]
    cell = np.ravel_multi_index(np.ix_(*cell_of_axis), grid)
    cells = int(np.prod(grid))
    joint = labels.astype(np.int64) * cells + cell
    counts = np.bincount(joint.ravel(), minlength=len(ORGANS) * cells)
    return counts.reshape(len(ORGANS), cells)


def organ_cells(labels: np.ndarray, grid: tuple[int, int, int], slots: int) -> OrganCells:
    """Rank each organ's cells by coverage, keep at most `slots`, put them in raster order."""
    counts = coverage(labels, grid)
    counts[0] = 0
    best = np.argsort(-counts, axis=1, kind="stable")[:, :slots]
    cells = np.full((len(ORGANS), slots), counts.shape[1])
    kept = np.where(np.take_along_axis(counts, best, axis=1) > 0, best, counts.shape[1])
    cells[:, : kept.shape[1]] = np.sort(kept, axis=1)
    valid = cells < counts.shape[1]
    touched = np.count_nonzero(counts, axis=1)
    return OrganCells(np.where(valid, cells, 0).astype(np.int32), valid, touched.astype(np.int32))
