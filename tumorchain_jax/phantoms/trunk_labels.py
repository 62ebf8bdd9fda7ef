"""The parametric trunk as labels: whole, or only what a label map lacks.

The organs are those of `body.py`, and more that a CT shows: upper spine, spinal cord, adrenal
glands, sternum, lobes of the lungs, vessels and muscles of the pelvis.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float32, UInt8

from tumorchain_jax.phantoms.anatomy import Tissue
from tumorchain_jax.phantoms.body import (
    ABOVE_DIAPHRAGM,
    BELOW_DIAPHRAGM,
    BODY_Y,
    HALF_DEPTH,
    HALF_WIDTH,
    IN_WALL,
    TRUNK,
    Body,
    Ellipsoid,
    Space,
    Tube,
    organ_depth,
    paint_ribs,
)

HOLLOW = frozenset({4, 6, 15, 16, 18, 19, 20, 21})
LUNGS, RIBS = range(10, 15), range(92, 116)
STERNUM, PROSTATE = 116, 22
DEPTH_UNIT_MM = 0.25  # of the depth within hollow organs, as uint8
MEDIASTINUM_MM = 14.0  # half its width
# Least and largest corner of the trunk within the fat of the skin (mm).
BODY_BOX = np.array([-162.0, -92.0, -228.0]), np.array([162.0, 128.0, 295.0])
_SPINE_Z = tuple(zip(range(36, 41), (211, 237, 262, 286, 309), strict=True))  # T8 to T4

# In order of precedence, before the organs of `body.TRUNK` and after them.
_BEFORE: tuple[Ellipsoid | Tube, ...] = (
    Tube(79, ((0, -24, -55), (0, -24, 320)), (8, 7)),
    *(Ellipsoid(label, (0, 0, z), (15, 18, 17)) for label, z in _SPINE_Z),
    *(Ellipsoid(label, (0, -40, z - 8), (7, 20, 12)) for label, z in _SPINE_Z),
    Ellipsoid(75, (-98, 12, -190), (21, 21, 21)),
    Tube(75, ((-100, 12, -190), (-128, 6, -212), (-126, 10, -270)), (12, 17, 15)),
    Ellipsoid(76, (98, 12, -190), (21, 21, 21)),
    Tube(76, ((100, 12, -190), (128, 6, -212), (126, 10, -270)), (12, 17, 15)),
    Tube(52, ((-16, 26, 200), (-14, 24, 330)), (13, 12)),
    Tube(15, ((-6, 48, 215), (-3, 34, 330)), (9, 8), wall=5),
    Tube(64, ((52, 50, 74), (22, 48, 50), (-15, 44, 55), (-78, 10, 72)), (7, 7, 5, 4)),
    Tube(8, ((40, -2, 86), (36, -2, 102)), (6, 4)),
    Tube(9, ((-42, 6, 92), (-36, 10, 106)), (6, 4)),
    Tube(65, ((-10, 32, -38), (-33, 26, -85), (-60, 45, -130), (-76, 72, -190)), (7, 6, 5, 5)),
    Tube(66, ((-10, 32, -38), (32, 26, -85), (60, 45, -130), (76, 72, -190)), (7, 6, 5, 5)),
    Tube(67, ((16, 30, -45), (-22, 14, -88), (-52, 30, -130), (-66, 62, -190)), (8, 7, 6, 6)),
    Tube(68, ((16, 30, -45), (30, 12, -88), (50, 30, -130), (66, 62, -190)), (8, 7, 6, 6)),
)  # fmt: skip
_AFTER: tuple[Ellipsoid | Tube, ...] = (
    Tube(18, ((-58, 62, 2), (-20, 74, -8), (28, 72, -12), (58, 62, -30), (20, 62, -48),
              (-30, 58, -50), (-64, 48, -38), (-72, 58, -62), (-40, 62, -84), (8, 64, -92),
              (58, 56, -96), (70, 40, -66), (52, 46, -122), (10, 74, -128), (-40, 74, -122)),
         (14, 13, 14, 13, 13, 14, 13, 12, 14, 13, 13, 12, 13, 13, 12), wall=4),
    Ellipsoid(PROSTATE, (0, 40, -203), (22, 16, 17)),
    Ellipsoid(84, (-116, -16, -112), (14, 26, 36)),
    Ellipsoid(85, (116, -16, -112), (14, 26, 36)),
    Ellipsoid(82, (-124, -30, -98), (24, 40, 52)),
    Ellipsoid(83, (124, -30, -98), (24, 40, 52)),
    Ellipsoid(80, (-78, -62, -150), (50, 34, 72)),
    Ellipsoid(81, (78, -62, -150), (50, 34, 72)),
)  # fmt: skip
ORGANS: tuple[Ellipsoid | Tube, ...] = _BEFORE + TRUNK + _AFTER
_IN_WALL = IN_WALL | {36, 37, 38, 39, 40, 75, 76, 79, *range(80, 86)}
_PLAIN = Body("portal venous", cirrhosis=False, swelling=False)


def _tissue_of_label() -> UInt8[np.ndarray, "256"]:
    table = np.full(256, Tissue.ORGAN, np.uint8)
    table[0] = Tissue.OUTSIDE
    table[list(LUNGS)] = Tissue.LUNG
    table[[*range(25, 51), *range(69, 79), 91, *RIBS, STERNUM]] = Tissue.BONE
    table[80:90] = Tissue.MUSCLE
    table.flags.writeable = False
    return table


TISSUE_OF_LABEL: UInt8[np.ndarray, "256"] = _tissue_of_label()
"""`Tissue` of each TotalSegmentator v2 id; OUTSIDE for 0."""


@dataclass(frozen=True)
class Wall:
    """Where a body ends: depths in mm, negative without.

    Attributes:
        within_fat: depth below the inner surface of the fat of the skin.
        thickness: of the layer of muscle below it; the cavity begins there.
    """

    within_fat: Float32[np.ndarray, "I J K"]
    thickness: float

    @property
    def cavity(self) -> Bool[np.ndarray, "I J K"]:
        """Whether a voxel lies in the abdominal or thoracic cavity."""
        return self.within_fat > self.thickness


def soft_tissue(space: Space, wall: Wall) -> UInt8[np.ndarray, "I J K"]:
    """Return `Tissue` of voxels that belong to no organ; OUTSIDE stands for the fat of the skin.

    Muscle is the wall, the back beside and behind the spine with its discs, and what surrounds hips
    and thighs.
    """
    x, y, z = np.abs(space.x), space.y, space.z
    muscle = ~wall.cavity | ((y < -22) & (x < 75)) | ((y < 14) & (x < 22))
    muscle |= ((z < -125) & (x > 82)) | ((z < -195) & (x > 30)) | (z < -225)
    tissue = np.where(muscle, np.uint8(Tissue.MUSCLE), np.uint8(Tissue.FAT))
    tissue[wall.within_fat <= 0] = Tissue.OUTSIDE
    return tissue


def elliptic_depth(
    space: Space, power: float, half_width: float, half_depth: float
) -> Float32[np.ndarray, "I J K"]:
    """Approximate the depth (mm) below the skin of a trunk with superelliptic slices."""
    side = np.abs(space.x) * np.float32(1 / half_width)
    front = np.abs(space.y - np.float32(BODY_Y)) * np.float32(1 / half_depth)
    round_ = (side**power + front**power) ** np.float32(1 / power)
    return (np.float32(half_depth) * (1 - round_)).astype(np.float32)


def draw_wall(rng: np.random.Generator, space: Space) -> Wall:
    """Draw the wall of a parametric trunk."""
    power = rng.uniform(2.1, 2.8)
    width, depth = rng.normal(1.01, 0.03, 2).clip(0.96, 1.08)
    thickness = float(rng.uniform(8, 12))
    inner = elliptic_depth(space, power, (HALF_WIDTH - 13) * width, (HALF_DEPTH - 13) * depth)
    return Wall(inner, thickness)


def draw_organs(
    rng: np.random.Generator,
    space: Space,
    wall: Wall,
    above: Bool[np.ndarray, "I J K"],
    labels: UInt8[np.ndarray, "I J K"],
    skip: frozenset[int] = frozenset(),
) -> UInt8[np.ndarray, "I J K"]:
    """Draw the trunk's organs into the voxels of `labels` that are 0, in place.

    Args:
        rng: the same state draws the same organs, whatever is skipped.
        space: canonical coordinates of the voxels.
        wall: bones and muscles may lie in it, all else lies in the cavity.
        above: voxels above the diaphragm.
        labels: TotalSegmentator v2 ids; voxels that are not 0 stay as they are.
        skip: ids that are not drawn.

    Returns:
        Depth of the voxels of drawn hollow organs below their surface, in DEPTH_UNIT_MM.
    """
    inner = np.zeros(labels.shape, np.uint8)
    cavity, in_wall = wall.cavity, wall.within_fat > 0
    middle = wall.within_fat - np.float32(wall.thickness / 2)
    if not skip.intersection(RIBS):
        paint_ribs(labels, space, middle)
    front = (np.abs(space.x) < 17) & (space.y > 60) & (space.z > 135) & (labels == 0)
    breastbone = front & (np.abs(middle) < 6)
    for organ in ORGANS:
        box, depth = organ_depth(rng, space, organ, _PLAIN)
        if organ.label in skip or not depth.size:
            continue
        claimed = (depth > 0) & (labels[box] == 0)
        claimed &= in_wall[box] if organ.label in _IN_WALL else cavity[box]
        if organ.label in BELOW_DIAPHRAGM:
            claimed &= ~above[box]
        if organ.label in ABOVE_DIAPHRAGM:
            claimed &= above[box]
        labels[box][claimed] = organ.label
        if organ.label in HOLLOW:
            units = (depth[claimed] * np.float32(1 / DEPTH_UNIT_MM)).clip(0, 255)
            inner[box][claimed] = units.astype(np.uint8)
    if STERNUM not in skip:
        labels[breastbone & (labels == 0)] = STERNUM
    if not skip.intersection(LUNGS):
        _draw_lungs(rng, space, labels, above & cavity)
    return inner


def _draw_lungs(
    rng: np.random.Generator,
    space: Space,
    labels: np.ndarray,
    chest: Bool[np.ndarray, "I J K"],
) -> None:
    """Fill what is free of the chest with the five lobes, in place."""
    lung = np.nonzero(chest & (labels == 0) & (np.abs(space.x) > MEDIASTINUM_MM))
    x, y, z = space.x[lung], space.y[lung], space.z[lung]
    upper = z > np.float32(rng.normal(205, 8)) - np.float32(0.85) * (y - 20)
    middle = upper & (z < np.float32(rng.normal(218, 6)))
    right = np.where(middle, 13, np.where(upper, 12, 14))
    labels[lung] = np.where(x > 0, right, np.where(upper, 10, 11))


def organ_boxes() -> dict[int, tuple[Float[np.ndarray, "3"], Float[np.ndarray, "3"]]]:
    """Return least and largest corner of each organ at its mean place (canonical mm)."""
    boxes: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for organ in ORGANS:
        if isinstance(organ, Ellipsoid):
            ends, half = np.array([organ.centre]), np.array([organ.half_axes])
        else:
            ends, half = np.array(organ.points), np.array(organ.radii)[:, None]
        low, high = (ends - half).min(0).astype(float), (ends + half).max(0).astype(float)
        if organ.label in boxes:
            before = boxes[organ.label]
            low, high = np.minimum(low, before[0]), np.maximum(high, before[1])
        boxes[organ.label] = low, high
    return boxes
