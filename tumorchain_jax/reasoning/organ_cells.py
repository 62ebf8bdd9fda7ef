"""Gamma of Eq. 2 on the host: which cells of the token grid an organ's mask touches.

The result is a table of fixed shape; on the device, `models/tumorchain/model.py: gather_rows`
takes the visual tokens of its indices. How cells are chosen is the rule of `RoiSpec.select`. An
organ whose region has a crop takes its cells from that; without one, from the scan.

Shape letters: D H W model grid, O organs (57, row 0 is the background), C crops, L ROI slots,
N cells, S candidates or ROI slots (`RoiSpec.candidates`).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Integer
from scipy import ndimage

from tumorchain_jax.anatomy.organs import ORGANS
from tumorchain_jax.models.tumorchain.roi_spec import RoiSpec
from tumorchain_jax.reasoning.crops import region_labels


class OrganCells(NamedTuple):
    """The ROI cells of every organ.

    Attributes:
        cells: raster indices in the token grid of the scan, or of the crop that shows the organ;
            ascending, 0 beyond the valid ones.
        valid: true for the first slots that hold a cell. Never all false for an organ that has a
            voxel.
        touched: how many cells the organ touches; beyond S some were left out.
        visual_index: the same cells as indices of the scan's visual tokens.
        view: 0 if an organ's cells are those of the scan, n + 1 if those of crop n.
    """

    cells: Int[np.ndarray, "O S"]
    valid: Bool[np.ndarray, "O S"]
    touched: Int[np.ndarray, " O"]
    visual_index: Int[np.ndarray, "O S"]
    view: Int[np.ndarray, " O"]

    def rois(self) -> dict[int, Int[np.ndarray, " l"]]:
        """Map each organ that has ROI tokens to the indices of these visual tokens."""
        labels = np.flatnonzero(self.valid.any(axis=1)).tolist()
        return {label: self.visual_index[label][self.valid[label]] for label in labels}

    def slots(self, roi: RoiSpec) -> dict[int, Int[np.ndarray, " l"]]:
        """Map each organ that has ROI tokens to what a training row holds in their places.

        Where only the device chooses the tokens, these are references to its ROI slots.
        """
        if roi.rank == "coverage":
            return self.rois()
        count = np.minimum(self.valid.sum(axis=1), roi.slots)
        labels = np.flatnonzero(count).tolist()
        return {label: roi.slot_index(label, int(count[label])) for label in labels}

    def chosen(
        self, roi: RoiSpec, visual_index: Int[np.ndarray, "O L"], valid: Bool[np.ndarray, "O L"]
    ) -> "OrganCells":
        """Return the table of the ROI tokens that the device chose among these candidates."""
        if roi.rank == "coverage":
            return self
        cells = np.where(valid, (visual_index - roi.offset) % roi.cells, 0).astype(np.int32)
        return self._replace(cells=cells, valid=valid, visual_index=visual_index)


class CropLabels(NamedTuple):
    """What says which cells of a scan's crops an organ touches.

    Attributes:
        labels: merged organ labels on each crop.
        world: see `models/tumorchain/crops.py: WORLD`.
    """

    labels: Integer[np.ndarray, "C D H W"]
    world: Float[np.ndarray, "C 7"]


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


def organ_cells(
    labels: Integer[np.ndarray, "D H W"], roi: RoiSpec, crops: CropLabels | None = None
) -> OrganCells:
    """Choose the ROI cells of every organ, or the candidates for them.

    Args:
        labels: merged labels on the model grid.
        crops: of the same scan; None for a model without.
    """
    counts = coverage(labels, roi.grid)
    counts[0] = 0
    view = np.zeros(len(ORGANS), np.int32)
    touched = np.count_nonzero(counts, axis=1).astype(np.int32)
    weights = counts
    for number, region in enumerate(roi.regions):
        assert crops is not None, "a model with crops needs those of the scan"
        found, world = crops.labels[number], crops.world[number]
        if not world[-1]:
            continue
        of_crop = coverage(found, roi.grid)
        for organ in region_labels(region):
            if of_crop[organ].any():
                view[organ], touched[organ] = number + 1, np.count_nonzero(of_crop[organ])
                weights[organ] = of_crop[organ]
                if roi.rank == "evidence":
                    cell_mm = world[:3] * np.divide(found.shape, roi.grid)
                    weights[organ] = _with_margin(of_crop[organ], roi, cell_mm)
    cells, valid = roi.select(weights)
    visual_index = roi.visual_index(cells) + view[:, None] * np.int32(roi.cells)
    return OrganCells(cells, valid, touched, visual_index, view)


def _with_margin(
    count: Int[np.ndarray, " N"], roi: RoiSpec, cell_mm: Float[np.ndarray, " 3"]
) -> Int[np.ndarray, " N"]:
    """Weigh the cells near to those that an organ touches too, less than any of these.

    Near is within the margin, rounded to whole cells.
    """
    assert roi.crop is not None
    reach = np.rint(roi.crop.candidate_margin_mm / cell_mm).astype(int)
    touches = count.reshape(roi.grid) > 0
    near = ndimage.maximum_filter(touches, size=(2 * reach + 1).tolist(), mode="constant")
    return 2 * count + near.ravel()
