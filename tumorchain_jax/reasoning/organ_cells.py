"""Gamma of Eq. 2 on the host: which cells of the token grid an organ's mask touches.

The result is a table of fixed shape; on the device, `models/tumorchain/model.py: gather_rows`
takes the visual tokens of its indices. How cells are chosen is the rule of `RoiSpec.select`.

Shape letters: D H W model grid, O organs (57, row 0 is the background), L ROI slots, N cells.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int, Integer

from tumorchain_jax.anatomy.organs import ORGANS
from tumorchain_jax.models.tumorchain.roi_spec import RoiSpec


class OrganCells(NamedTuple):
    """The ROI cells of every organ.

    Attributes:
        cells: raster indices in the token grid, ascending, 0 beyond the valid ones.
        valid: true for the first slots that hold a cell. Never all false for an organ that has a
            voxel.
        touched: how many cells the organ touches; beyond L some were left out.
        visual_index: the same cells as indices of the scan's visual tokens.
    """

    cells: Int[np.ndarray, "O L"]
    valid: Bool[np.ndarray, "O L"]
    touched: Int[np.ndarray, " O"]
    visual_index: Int[np.ndarray, "O L"]

    def rois(self) -> dict[int, Int[np.ndarray, " l"]]:
        """Map each organ that has ROI tokens to the indices of these visual tokens."""
        labels = np.flatnonzero(self.valid.any(axis=1)).tolist()
        return {label: self.visual_index[label][self.valid[label]] for label in labels}


def coverage(
    labels: Integer[np.ndarray, "D H W"], grid: tuple[int, int, int]
) -> Int[np.ndarray, "O N"]:
    """Count the voxels of each organ in each cell.

    Args:
        labels: merged organ labels on the model grid.
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


def organ_cells(labels: Integer[np.ndarray, "D H W"], roi: RoiSpec) -> OrganCells:
    """Choose the ROI cells of every organ in merged labels on the model grid."""
    counts = coverage(labels, roi.grid)
    counts[0] = 0
    cells, valid = roi.select(counts)
    touched = np.count_nonzero(counts, axis=1).astype(np.int32)
    return OrganCells(cells, valid, touched, roi.visual_index(cells))
