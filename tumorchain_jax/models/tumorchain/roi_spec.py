"""Layout of a scan's visual tokens, and the rule that chooses an organ's ROI tokens among them.

    G global tokens | N cells of the scan's ROI grid | N cells of each of C crops

The cells of scan and crops are counted through, (1 + C) N of them: cell n of crop c is
(1 + c) N + n.

Shape letters: O organs, N cells of the ROI grid, L ROI slots, S candidates or ROI slots,
M visual tokens, K embedding.
"""

from dataclasses import dataclass
from math import prod
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from tumorchain_jax.models.tumorchain.crops import CropConfig

RoiRank = Literal["coverage", "evidence"]
"""Rule by which an organ's ROI tokens are chosen: the cells that its mask covers best (on the
host), or the cells that the organ classifier finds most abnormal (on the device)."""


@dataclass(frozen=True)
class RoiSpec:
    """Where ROI tokens lie among the visual tokens of a scan, and which ones an organ gets.

    Attributes:
        grid: cells along D, H, W whose tokens are ROI tokens.
        offset: visual index of the grid's first cell.
        slots: L, at most this many ROI tokens for an organ.
        global_tokens: G, visual tokens that every prompt starts with; their indices are 0 to G - 1.
        rank: rule by which an organ's ROI tokens are chosen.
        crop: the crops whose cells follow those of the scan, if the model reads crops.
    """

    grid: tuple[int, int, int]
    offset: int
    slots: int
    global_tokens: int
    rank: RoiRank = "coverage"
    crop: CropConfig | None = None

    @property
    def cells(self) -> int:
        """N: cells of the scan, and of each crop."""
        return prod(self.grid)

    @property
    def regions(self) -> tuple[str, ...]:
        """The region that each of the C crops shows."""
        return self.crop.regions if self.crop else ()

    @property
    def visual_tokens(self) -> int:
        """M: how many visual tokens a scan has."""
        return self.offset + (1 + len(self.regions)) * self.cells

    @property
    def candidates(self) -> int:
        """S: cells of an organ that the host hands to the device, which takes `slots` of them."""
        if self.rank == "coverage":
            return self.slots
        most = self.crop.candidates if self.crop else self.cells
        return max(self.slots, min(most, self.cells))

    def select(
        self, coverage: Int[np.ndarray, "O N"]
    ) -> tuple[Int[np.ndarray, "O S"], Bool[np.ndarray, "O S"]]:
        """Choose the cells of each organ: the best covered, at most S, in raster order.

        Args:
            coverage: voxels of each organ in each cell, or any other weight; an organ gets no cell
                where it is 0.

        Returns:
            raster indices of the cells, ascending, 0 beyond the valid ones; and which are valid.
        """
        organs, nowhere = coverage.shape
        best = np.argsort(-coverage, axis=1, kind="stable")[:, : self.candidates]
        covered = np.take_along_axis(coverage, best, axis=1) > 0
        cells = np.full((organs, self.candidates), nowhere)
        cells[:, : best.shape[1]] = np.sort(np.where(covered, best, nowhere), axis=1)
        valid = cells < nowhere
        return np.where(valid, cells, 0).astype(np.int32), valid

    def visual_index(self, cells: Int[np.ndarray, "*shape"]) -> Int[np.ndarray, "*shape"]:
        """Turn cells of the scan (or of all volumes, counted through) into visual indices."""
        return cells + np.int32(self.offset)

    def slot_index(self, organ: int, count: int) -> Int[np.ndarray, " count"]:
        """Refer to the first ROI slots of an organ, whose tokens only the device knows.

        These indices follow those of the visual tokens; the model replaces them by what the slots
        hold, see `models/tumorchain/model.py: resolve_slots`.
        """
        first = self.visual_tokens + organ * self.slots
        return np.arange(first, first + count, dtype=np.int32)

    def cell_tokens(
        self, visual_tokens: Float[np.ndarray, "M K"], view: int = 0
    ) -> Float[np.ndarray, "N K"]:
        """Take the tokens of the cells of the scan (0) or the n-th crop, in raster order."""
        first = self.offset + view * self.cells
        return visual_tokens[first : first + self.cells]
