"""Layout of a scan's visual tokens, and the rule that chooses an organ's ROI tokens among them.

Shape letters: O organs, N cells of the ROI grid, L ROI slots, M visual tokens, K embedding.
"""

from dataclasses import dataclass
from math import prod

import numpy as np
from jaxtyping import Bool, Float, Int


@dataclass(frozen=True)
class RoiSpec:
    """Where ROI tokens lie among the visual tokens of a scan, and which ones an organ gets.

    Attributes:
        grid: cells along D, H, W whose tokens are ROI tokens.
        offset: visual index of the grid's first cell.
        slots: L, at most this many ROI tokens for an organ.
        global_tokens: G, visual tokens that every prompt starts with; their indices are 0 to G - 1.
    """

    grid: tuple[int, int, int]
    offset: int
    slots: int
    global_tokens: int

    @property
    def visual_tokens(self) -> int:
        """M: how many visual tokens a scan has."""
        return self.offset + prod(self.grid)

    def select(
        self, coverage: Int[np.ndarray, "O N"]
    ) -> tuple[Int[np.ndarray, "O L"], Bool[np.ndarray, "O L"]]:
        """Choose the cells of each organ: the best covered, at most `slots`, in raster order.

        Args:
            coverage: voxels of each organ in each cell; an organ gets no cell without any.

        Returns:
            raster indices of the cells, ascending, 0 beyond the valid ones; and which are valid.
        """
        organs, nowhere = coverage.shape
        best = np.argsort(-coverage, axis=1, kind="stable")[:, : self.slots]
        covered = np.take_along_axis(coverage, best, axis=1) > 0
        cells = np.full((organs, self.slots), nowhere)
        cells[:, : best.shape[1]] = np.sort(np.where(covered, best, nowhere), axis=1)
        valid = cells < nowhere
        return np.where(valid, cells, 0).astype(np.int32), valid

    def visual_index(self, cells: Int[np.ndarray, "*shape"]) -> Int[np.ndarray, "*shape"]:
        """Turn raster indices of cells into indices of their visual tokens."""
        return cells + np.int32(self.offset)

    def cell_tokens(self, visual_tokens: Float[np.ndarray, "M K"]) -> Float[np.ndarray, "N K"]:
        """Take the tokens of the grid's cells, in raster order, out of a scan's visual tokens."""
        return visual_tokens[self.offset :]
