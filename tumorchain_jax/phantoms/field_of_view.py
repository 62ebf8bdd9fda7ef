"""What of a patient a scan shows: its ends, its voxels, and arms beside the body."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, UInt8

from tumorchain_jax.phantoms.anatomy import Tissue

Box = tuple[Float[np.ndarray, "3"], Float[np.ndarray, "3"]]
ABDOMEN_TOP, ABDOMEN_BOTTOM, HIPS = (1, 5, 6), (20, 21, 25), (77, 78)
COLON, L3 = 20, 29
EXTENTS = ("whole abdomen", "upper abdomen", "pelvis", "thorax and abdomen", "any")
EXTENT_ODDS = (0.68, 0.1, 0.07, 0.08, 0.07)
SHORTEST_MM = 120.0
IN_PLANE_MM, SLICES_MM = (2.0, 3.5), (0.7, 7.0)
# A grid of more voxels gets larger ones in the slice, up to a limit, and then thicker slices.
MOST_VOXELS, COARSEST_MM = 1_500_000, 4.0
HUMERUS_LEFT, HUMERUS_RIGHT = 69, 70
SIDE_ROOM_MM = 125.0  # for an arm


@dataclass(frozen=True)
class Frame:
    """Where the parts of a source lie (mm).

    Attributes:
        low: least corner of what it shows.
        high: largest corner.
        boxes: least and largest corner of each organ.
    """

    low: Float[np.ndarray, "3"]
    high: Float[np.ndarray, "3"]
    boxes: dict[int, Box]

    def end(self, labels: tuple[int, ...], top: bool, default: float) -> float:
        """Return the height of the top or bottom of some organs, where one is there."""
        corners = [self.boxes[label][int(top)][2] for label in labels if label in self.boxes]
        return float((max if top else min)(corners)) if corners else default


def draw_ends(rng: np.random.Generator, frame: Frame) -> tuple[float, float]:
    """Draw the heights of the lowest and the highest slice (mm of the source)."""
    low, high = float(frame.low[2]), float(frame.high[2])
    bottom = frame.end(ABDOMEN_BOTTOM, False, low)
    top = frame.end(ABDOMEN_TOP, True, high)
    crest = frame.end(HIPS, True, (bottom + top) / 2)
    middle = (crest + top) / 2
    extent = EXTENTS[rng.choice(len(EXTENTS), p=EXTENT_ODDS)]
    first, last = sorted(rng.uniform(low, high, 2))
    if extent != "any":
        first, last = {
            "whole abdomen": (bottom - rng.uniform(15, 40), top + rng.uniform(20, 80)),
            "upper abdomen": (rng.uniform(crest - 30, middle), top + rng.uniform(5, 60)),
            "pelvis": (bottom - rng.uniform(0, 40), crest + rng.uniform(-20, 60)),
            "thorax and abdomen": (rng.uniform(crest - 60, middle), high - rng.uniform(0, 30)),
        }[extent]
    first, last = max(first, low), min(last, high)
    last = min(max(last, first + SHORTEST_MM), high)
    return max(min(first, last - SHORTEST_MM), low), last


def draw_spacing(rng: np.random.Generator, size: Float[np.ndarray, "3"]) -> np.ndarray:
    """Draw the voxel size (mm) of a grid of `size` mm."""
    plane = float(rng.uniform(*IN_PLANE_MM))
    thick = float(np.exp(rng.uniform(*np.log(SLICES_MM))))
    volume = float(size.prod()) / MOST_VOXELS
    plane = min(max(plane, (volume / thick) ** 0.5), COARSEST_MM)
    return np.array([plane, plane, max(thick, volume / plane**2)])


def add_arms(
    rng: np.random.Generator,
    labels: UInt8[np.ndarray, "I J K"],
    tissue: UInt8[np.ndarray, "I J K"],
    spacing: Float[np.ndarray, "3"],
    elbow_mm: float,
) -> None:
    """Draw arms at the sides of the body, in place, where there is room beside it.

    Args:
        rng: the same state draws the same arms.
        labels: TotalSegmentator v2 ids.
        tissue: values of `Tissue`.
        spacing: mm between voxels.
        elbow_mm: height of the elbows above the first slice; the forearms lie below.
    """
    body = tissue.any(2)
    columns, rows = np.flatnonzero(np.any(body, 1)), np.flatnonzero(np.any(body, 0))
    if not columns.size:
        return
    x, y, z = (s * np.arange(n) for s, n in zip(spacing, labels.shape, strict=True))
    z = z - elbow_mm
    tapered = np.interp(z, (-330, -300, -240, -60, 20, 250), (8, 26, 25, 36, 40, 52))
    centre_y = rng.uniform(0.35, 0.6) * (y[rows[0]] + y[rows[-1]])
    fat, gap = rng.uniform(3, 9), rng.uniform(4, 12)
    tilt = rng.uniform(-0.2, 0.2)
    for side, humerus in ((-1, HUMERUS_LEFT), (1, HUMERUS_RIGHT)):
        edge = x[columns[0]] if side < 0 else x[columns[-1]]
        centre_x = edge + side * (gap + tapered.max())
        near = slice(*np.searchsorted(x, (centre_x - 60, centre_x + 60)))
        dx = (x[near] - centre_x)[:, None, None]
        dy = y[None, :, None] - centre_y - tilt * z[None, None]
        depth = tapered - np.sqrt(dx**2 + dy**2)
        upper = (dx**2 + dy**2 < 11**2) & (z > 0)
        fore = np.minimum((dx - 13) ** 2, (dx + 13) ** 2) + dy**2 < 7**2
        fore &= (z <= 0) & (z > -250)
        free = (depth > 0) & (z > -330) & (tissue[near] == Tissue.OUTSIDE)
        arm = np.where(depth > fat, np.uint8(Tissue.MUSCLE), np.uint8(Tissue.SKIN_FAT))
        arm[upper | fore] = Tissue.BONE
        tissue[near][free] = arm[free]
        labels[near][free & upper] = humerus


def crop_to_body(
    rng: np.random.Generator, body: Bool[np.ndarray, "I J K"], spacing: Float[np.ndarray, "3"]
) -> tuple[slice, slice]:
    """Draw the field of view in the slice: around the body; one in ten cuts off its flanks."""
    narrow = rng.random() < 0.1
    flat = body.any(2)
    parts = []
    for axis in (0, 1):
        there = np.flatnonzero(np.any(flat, 1 - axis))
        first, last = (there[0], there[-1]) if there.size else (0, flat.shape[axis] - 1)
        room = rng.uniform(5, 30, 2) * (-1 if narrow and axis == 0 else 1) / spacing[axis]
        start = max(int(first - room[0]), 0)
        parts.append(slice(start, max(int(last + room[1]) + 1, start + 2)))
    return parts[0], parts[1]
