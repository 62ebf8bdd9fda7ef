"""What hollow organs hold: a wall, and gas above fluid, food or stool within."""

import numpy as np
from jaxtyping import Float, UInt8
from scipy import ndimage

from tumorchain_jax.phantoms.anatomy import Tissue
from tumorchain_jax.phantoms.body import smooth_field
from tumorchain_jax.phantoms.trunk_labels import DEPTH_UNIT_MM, HOLLOW

WALL_MM = (2.0, 5.0)
# Share of gas in what an organ holds: least, most, and the odds that there is any.
GAS = {
    4: (0, 0, 0), 6: (0.1, 0.7, 0.9), 15: (0.3, 1, 0.5), 16: (1, 1, 1), 18: (0.05, 0.4, 0.6),
    19: (0.1, 0.6, 0.4), 20: (0.1, 0.95, 0.95), 21: (0.02, 0.1, 0.05),
}  # fmt: skip
# Levels differ between the loops of an organ: mm, and mm between the loops.
LEVEL_MM, LOOP_MM = 12.0, 50.0


def fill_hollow_organs(
    rng: np.random.Generator,
    labels: UInt8[np.ndarray, "I J K"],
    tissue: UInt8[np.ndarray, "I J K"],
    inner: UInt8[np.ndarray, "I J K"],
    spacing: Float[np.ndarray, "3"],
    prone: bool,
) -> None:
    """Put gas and content into hollow organs, in place; their walls stay `Tissue.ORGAN`.

    Gas rises to the belly, or to the back of a patient who lies prone; it ends at a level that is
    the same along each loop.

    Args:
        rng: the same state fills in the same way.
        labels: TotalSegmentator v2 ids.
        tissue: values of `Tissue`.
        inner: depth below the organ's surface, in DEPTH_UNIT_MM.
        spacing: mm between voxels.
        prone: whether the patient lies on the belly.
    """
    shape = labels.shape
    level = smooth_field(rng, (shape[0], 1, shape[2]), spacing, LOOP_MM) * np.float32(LEVEL_MM)
    height = (spacing[1] * np.arange(shape[1]) * (-1 if prone else 1)).astype(np.float32)
    boxes = ndimage.find_objects(labels, max(HOLLOW))
    for organ in sorted(HOLLOW):
        wall, (least, most, odds) = rng.uniform(*WALL_MM), GAS[organ]
        share = float(rng.uniform(least, most)) if rng.random() < odds else 0.0
        box = boxes[organ - 1]
        if box is None:
            continue
        within = (labels[box] == organ) & (inner[box] > wall / DEPTH_UNIT_MM)
        if not within.any():
            continue
        tissue[box][within] = Tissue.CONTENT
        if share:
            up = height[None, box[1], None] + level[box[0], :, box[2]]
            gas = within & (up >= np.quantile(up[within], 1 - share))
            tissue[box][gas] = Tissue.GAS
