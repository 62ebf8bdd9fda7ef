"""A synthetic trunk: organs of a digital patient, their place and their density on CT.

Coordinates are canonical millimetres: x to the patient's Right, y to Anterior, z to Superior, with
the origin in the middle of the third lumbar vertebra. Places and sizes are round figures near those
of an adult; `tumorchain_jax.phantoms.patient` scales, bends and moves them from patient to patient.
HU are typical of a CT with contrast in the veins, in one of three phases, and water in the bowel.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import ndimage

VoxelBox = tuple[slice, slice, slice]
Point = tuple[int, int, int]  # whole millimetres


@dataclass(frozen=True)
class Ellipsoid:
    """A solid organ: TotalSegmentator id, centre and half-axes (mm)."""

    label: int
    centre: Point
    half_axes: Point


@dataclass(frozen=True)
class Tube:
    """An organ along a line: id, control points (mm), radius at each (mm), wall (mm; 0 = solid)."""

    label: int
    points: tuple[Point, ...]
    radii: tuple[int, ...]
    wall: int = 0


PHASES = ("arterial", "portal venous", "delayed")
# HU: mean in each phase, or in all, and spread between patients. For hollow organs it is the wall.
HU: dict[int, tuple[tuple[float, float, float] | float, float]] = {
    1: ((135, 120, 100), 8), 2: ((150, 170, 155), 12), 3: ((150, 170, 155), 12), 4: (10, 5),
    5: ((80, 110, 95), 8), 6: (65, 6), 7: ((112, 95, 80), 8), 11: (-820, 30), 14: (-820, 30),
    15: (60, 6), 18: (60, 8), 19: (60, 8), 20: (60, 6), 21: (8, 5), 25: (330, 40),
    51: ((240, 140, 115), 12), 52: ((290, 150, 120), 15), 63: ((90, 140, 120), 12),
    77: (350, 40), 78: (350, 40), 86: (55, 5), 87: (55, 5), 88: (55, 5), 89: (55, 5),
}  # fmt: skip
VERTEBRA_HU, RIB_HU, MUSCLE_HU = (260.0, 40.0), 350.0, 55.0
# Fat within the cavity, where nodes lie and masses bulge, and under the skin.
FAT_HU, SKIN_FAT_HU = -100.0, -105.0
GAS_HU, AIR_HU, WATER_HU = -700.0, -1000.0, (20.0, 5.0)
# HU of an organ's own unevenness, over some 25 mm; of others 4.
TEXTURE_HU = {1: 3.0, 2: 8.0, 3: 8.0, 5: 4.0, 7: 9.0, 51: 2.0}
# Cirrhosis: a shrunken right lobe, nodules of some 12 mm, an enlarged spleen.
CIRRHOSIS_SHRINKS, NODULE_MM, NODULE_HU, SPLENOMEGALY = 0.88, 12.0, 14.0, 1.35
# Swelling of the pancreas, as of an inflammation: thicker, darker, with streaks in the fat around.
SWELLING_THICKENS, SWELLING_HU, STRAND_HU, STRAND_MM = 1.4, -25.0, -35.0, 9.0

# L5 to T9, from below: the ids 27, 28, ... run upwards.
VERTEBRA_Z = (-68, -35, 0, 34, 67, 99, 129, 157, 184)
VERTEBRAE = tuple(Ellipsoid(27 + i, (0, 0, z), (23 - i, 19, 19)) for i, z in enumerate(VERTEBRA_Z))

# In order of precedence: a voxel belongs to the first that claims it.
TRUNK: tuple[Ellipsoid | Tube, ...] = (
    *VERTEBRAE,
    *(Ellipsoid(27 + i, (0, -40, z - 8), (7, 20, 13)) for i, z in enumerate(VERTEBRA_Z)),
    Tube(25, ((0, -10, -98), (0, -35, -125), (0, -50, -160)), (30, 30, 16)),
    Tube(77, ((-116, -2, -72), (-72, -38, -118), (-95, 8, -190)), (8, 12, 24)),
    Tube(78, ((116, -2, -72), (72, -38, -118), (95, 8, -190)), (8, 12, 24)),
    Tube(52, ((-10, 32, -38), (-9, 31, 60), (-16, 26, 200)), (8, 10, 13)),
    Tube(63, ((16, 30, -45), (17, 32, 70), (24, 45, 150)), (9, 12, 13)),
    Tube(15, ((-6, 48, 215), (-10, 50, 150), (-25, 48, 112)), (9, 9, 10), wall=5),
    Tube(7, ((33, 48, 12), (28, 55, 38), (2, 60, 50), (-35, 52, 55), (-82, 12, 66)),
         (15, 16, 10, 12, 11)),
    Ellipsoid(2, (66, -8, 28), (27, 25, 54)),
    Ellipsoid(3, (-66, -10, 38), (27, 25, 54)),
    Tube(88, ((-28, 2, 40), (-42, 5, -50), (-70, 40, -180)), (10, 20, 18)),
    Tube(89, ((28, 2, 40), (42, 5, -50), (70, 40, -180)), (10, 20, 18)),
    Tube(86, ((-30, -52, -110), (-34, -54, 0), (-26, -44, 210)), (16, 22, 16)),
    Tube(87, ((30, -52, -110), (34, -54, 0), (26, -44, 210)), (16, 22, 16)),
    Ellipsoid(4, (48, 88, 38), (15, 18, 25)),
    Tube(19, ((22, 78, 32), (52, 55, 30), (52, 40, -8), (0, 45, -14)), (13, 12, 12, 11), wall=4),
    Tube(6, ((-48, 38, 118), (-62, 55, 88), (-58, 85, 48), (-25, 98, 24), (14, 85, 32)),
         (32, 38, 32, 24, 16), wall=6),
    Ellipsoid(1, (-108, -18, 84), (28, 44, 46)),
    Ellipsoid(5, (70, 32, 82), (78, 84, 84)),
    Ellipsoid(5, (0, 82, 96), (78, 40, 46)),
    Tube(20, ((92, 50, -92), (100, 30, -40), (104, 32, 2), (75, 80, 0), (35, 105, -12),
              (-35, 106, -6), (-85, 75, 22), (-112, 30, 48), (-112, 5, 10), (-110, 12, -55),
              (-92, 50, -100), (-45, 55, -125), (-12, 30, -108), (0, -5, -130), (0, -22, -175)),
         (29, 26, 22, 21, 20, 20, 20, 19, 17, 16, 16, 17, 17, 20, 20), wall=5),
    Ellipsoid(21, (0, 48, -168), (38, 34, 30)),
    Tube(18, ((-70, 75, -20), (-20, 90, -38), (40, 85, -48), (60, 70, -75), (10, 88, -78),
              (-50, 82, -65), (-60, 72, -98), (0, 80, -115), (50, 70, -110)),
         (15, 16, 15, 16, 15, 16, 14, 15, 14), wall=4),
    Ellipsoid(51, (-22, 72, 190), (58, 42, 46)),
)  # fmt: skip

# Bones and muscles may lie in the body wall, everything else only in the cavity within it.
IN_WALL = frozenset({25, *range(27, 36), 77, 78, *range(86, 90)})
BELOW_DIAPHRAGM, ABOVE_DIAPHRAGM = frozenset({1, 4, 5, 6, 18, 20}), frozenset({51})
HALF_WIDTH, HALF_DEPTH, BODY_Y = 165.0, 115.0, 18.0
SLICES_MM = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0)
SLICE_ODDS = (0.05, 0.1, 0.15, 0.25, 0.2, 0.25)


@dataclass(frozen=True)
class Body:
    """Properties of a patient's trunk besides size and shape.

    Attributes:
        phase: one of `PHASES`.
        cirrhosis: of the liver; the spleen is enlarged with it.
        swelling: of the pancreas.
    """

    phase: str
    cirrhosis: bool
    swelling: bool

    def hu(self, label: int) -> tuple[float, float]:
        """Return mean and spread of an organ's HU."""
        mean, spread = HU.get(label, VERTEBRA_HU)
        value = mean[PHASES.index(self.phase)] if isinstance(mean, tuple) else mean
        return float(value), float(spread)


@dataclass(frozen=True)
class Space:
    """Canonical coordinates of every voxel: `x`, `y`, `z` are float32 `[I, J, K]` mm.

    Voxel (0, 0, 0) lies at `origin` and neighbours are `step` apart (canonical mm), but for a
    smooth bending of space that displaces no voxel by more than `bend` (mm).
    """

    x: np.ndarray
    y: np.ndarray
    z: np.ndarray
    origin: np.ndarray
    step: np.ndarray
    bend: float

    def box(self, low: np.ndarray, high: np.ndarray) -> VoxelBox:
        """Return the voxels that may lie between the corners `low` and `high` (canonical mm)."""
        first = np.floor((low - self.bend - self.origin) / self.step).astype(int)
        last = np.ceil((high + self.bend - self.origin) / self.step).astype(int) + 1
        i, j, k = (slice(max(a, 0), max(b, 0)) for a, b in zip(first, last, strict=True))
        return i, j, k


def ellipsoid_depth(
    space: Space, centre: np.ndarray, half: np.ndarray
) -> tuple[VoxelBox, np.ndarray]:
    """Approximate the depth (mm, negative outside) of each voxel of a box in an ellipsoid."""
    box = space.box(centre - half, centre + half)
    squares = sum(
        ((u[box] - np.float32(c)) * np.float32(1 / h)) ** 2
        for u, c, h in zip((space.x, space.y, space.z), centre, half, strict=True)
    )
    return box, (1 - np.sqrt(squares)) * np.float32(half.min())


def tube_depth(space: Space, points: np.ndarray, radii: np.ndarray) -> tuple[VoxelBox, np.ndarray]:
    """Measure the depth (mm, negative outside) of each voxel of a box in a chain of round cones."""
    low, high = points - radii[:, None], points + radii[:, None]
    box = space.box(low.min(0), high.max(0))
    depth = np.full(space.x[box].shape, -np.inf, np.float32)
    for n in range(len(points) - 1):
        part = space.box(low[n : n + 2].min(0), high[n : n + 2].max(0))
        along, start = (points[n + 1] - points[n]).astype(np.float32), points[n].astype(np.float32)
        dx, dy, dz = (u[part] - c for u, c in zip((space.x, space.y, space.z), start, strict=True))
        t = np.clip((dx * along[0] + dy * along[1] + dz * along[2]) / (along @ along), 0, 1)
        gap = (dx - t * along[0]) ** 2 + (dy - t * along[1]) ** 2 + (dz - t * along[2]) ** 2
        radius = np.float32(radii[n]) + t * np.float32(radii[n + 1] - radii[n])
        inner = tuple(
            slice(p.start - b.start, p.start - b.start + size)
            for p, b, size in zip(part, box, gap.shape, strict=True)
        )
        np.maximum(depth[inner], radius - np.sqrt(gap), out=depth[inner])
    return box, depth


def smooth_field(
    rng: np.random.Generator, shape: tuple[int, int, int], spacing: np.ndarray, knot_mm: float
) -> np.ndarray:
    """Draw a smooth field, float32 `[I, J, K]`: normal numbers every `knot_mm`, interpolated."""
    knots = [int(np.ceil(n * s / knot_mm)) + 2 for n, s in zip(shape, spacing, strict=True)]
    field = rng.standard_normal(knots, dtype=np.float32)
    for axis, (size, count) in enumerate(zip(shape, knots, strict=True)):
        # Rows of a unit matrix, stretched: linear interpolation as one small product.
        at = np.linspace(0, count - 1, size)
        weights = np.maximum(0, 1 - np.abs(at[:, None] - np.arange(count))).astype(np.float32)
        field = np.moveaxis(np.tensordot(weights, field, axes=(1, axis)), 0, axis)
    return np.ascontiguousarray(field)


def draw_space(rng: np.random.Generator) -> tuple[Space, np.ndarray]:
    """Draw body size, voxel size, field of view and bending of a patient; and its world affine.

    Slices are 1 to 5 mm thick. Of four scans one ends above the pelvis and one below the chest.
    """
    size = rng.normal(1.0, 0.06, 3).clip(0.87, 1.13)
    thickness = rng.choice(SLICES_MM, p=SLICE_ODDS)
    spacing = np.array([rng.uniform(2.8, 3.5)] * 2 + [thickness])
    bottom = rng.uniform(-130, -60) if rng.random() < 0.25 else rng.uniform(-200, -175)
    top = rng.uniform(110, 160) if rng.random() < 0.25 else rng.uniform(175, 200)
    low = np.array([-HALF_WIDTH - 12, BODY_Y - HALF_DEPTH - 10, bottom])
    high = np.array([HALF_WIDTH + 12, BODY_Y + HALF_DEPTH + 10, top])
    step = spacing / size
    i, j, k = (int(n) for n in np.ceil((high - low) / step))
    bend = 11.0
    axes = [low[a] + step[a] * np.arange(n) for a, n in enumerate((i, j, k))]
    grid = np.meshgrid(*(a.astype(np.float32) for a in axes), indexing="ij", sparse=True)
    x, y, z = (
        u + (5 * smooth_field(rng, (i, j, k), spacing, 50.0)).clip(-bend, bend) for u in grid
    )
    affine = np.diag([*spacing, 1.0])
    affine[:3, 3] = low * size + rng.uniform(-40, 40, 3) + (0, 100, 250)
    return Space(x, y, z, low, step, bend), affine


def draw_trunk(
    rng: np.random.Generator, space: Space, spacing: np.ndarray, body: Body
) -> tuple[np.ndarray, np.ndarray, dict[int, float]]:
    """Draw HU without noise (float32), TotalSegmentator ids (uint8), and the HU of each id."""
    x, y = space.x, space.y
    texture = smooth_field(rng, x.shape, spacing, 25.0)
    nodules = smooth_field(rng, x.shape, spacing, NODULE_MM) if body.cirrhosis else None
    hollow_y = (y - BODY_Y) * np.float32(HALF_WIDTH / HALF_DEPTH)
    depth = HALF_DEPTH * (
        1 - (np.abs(x) ** 2.4 + np.abs(hollow_y) ** 2.4) ** (1 / 2.4) / HALF_WIDTH
    )
    fat, wall = rng.uniform(6, 20), rng.uniform(8, 12)
    cavity = depth > fat + wall
    image = np.where(depth > 0, np.float32(SKIN_FAT_HU), np.float32(AIR_HU))
    image[depth > fat] = MUSCLE_HU
    image[cavity] = FAT_HU
    labels = np.zeros(x.shape, np.uint8)
    image[paint_ribs(labels, space, depth - fat - wall / 2)] = RIB_HU

    above = above_diaphragm(rng, space)
    hu: dict[int, float] = {}
    for organ, box, inside, claimed in place_organs(
        rng, space, depth, fat, wall, above, labels, body
    ):
        if organ.label not in hu:
            hu[organ.label] = float(rng.normal(*body.hu(organ.label)))
        value = hu[organ.label] + texture[box] * np.float32(TEXTURE_HU.get(organ.label, 4))
        if organ.label == 5 and nodules is not None:
            value = value + nodules[box] * np.float32(NODULE_HU)
        if isinstance(organ, Tube) and organ.wall:
            value = np.where(inside > organ.wall, _content(rng, space, organ, box, texture), value)
        np.copyto(image[box], value, where=claimed)
    if body.swelling:
        _swell(image, labels, spacing)
        hu[7] += SWELLING_HU
    lung = paint_lungs(labels, space, above & cavity)
    image[lung] = np.float32(rng.normal(*body.hu(11))) + 40 * texture[lung]
    return image, labels, hu


def _organ_depth(
    rng: np.random.Generator, space: Space, organ: Ellipsoid | Tube, body: Body
) -> tuple[VoxelBox, np.ndarray]:
    """Draw the patient's version of an organ, moved and resized; bones and vessels move little."""
    move = 1.0 if organ.label > 24 else 5.0
    if isinstance(organ, Ellipsoid):
        half = np.array(organ.half_axes) * rng.normal(1, 0.02 * move, 3).clip(0.8, 1.2)
        half = half * _ellipsoid_scale(organ, body)
        return ellipsoid_depth(space, np.array(organ.centre) + rng.normal(0, move, 3), half)
    points = np.array(organ.points) + rng.normal(0, move, (len(organ.points), 3))
    radii = np.array(organ.radii) * rng.normal(1, 0.07)
    if organ.label == 7 and body.swelling:
        radii = radii * SWELLING_THICKENS
    return tube_depth(space, points, radii)


def _ellipsoid_scale(organ: Ellipsoid, body: Body) -> float:
    if not body.cirrhosis:
        return 1.0
    right_lobe = organ.label == 5 and organ.centre[0] > 50
    return CIRRHOSIS_SHRINKS if right_lobe else SPLENOMEGALY if organ.label == 1 else 1.0


def _content(
    rng: np.random.Generator, space: Space, organ: Tube, box: VoxelBox, texture: np.ndarray
) -> np.ndarray:
    """Fill a hollow organ: gas floats on water in the stomach, lies in patches elsewhere (HU)."""
    if organ.label == 6:
        gas = space.y[box] > rng.uniform(70, 110)
    else:
        gas = texture[box] > rng.uniform(0.3, 0.8)
    return np.where(gas, np.float32(GAS_HU), np.float32(rng.normal(*WATER_HU)))


def _swell(image: np.ndarray, labels: np.ndarray, spacing: np.ndarray) -> None:
    pancreas = labels == 7
    image[pancreas] += np.float32(SWELLING_HU)
    streaks = around(pancreas, STRAND_MM, spacing) & (labels == 0) & (image == FAT_HU)
    image[streaks] = STRAND_HU


def around(mask: np.ndarray, reach_mm: float, spacing: np.ndarray) -> np.ndarray:
    """Dilate a mask by a box-shaped neighbourhood; bool `[I, J, K]`."""
    return ndimage.maximum_filter(mask, [2 * int(np.ceil(reach_mm / s)) - 1 for s in spacing])


def paint_ribs(
    labels: np.ndarray, space: Space, depth: np.ndarray, free: np.ndarray | bool = True
) -> np.ndarray:
    """Label ribs, slanted bands of the chest wall, where `free`; return their mask.

    `depth` is 0 mm in the middle of the wall.
    """
    height = space.z + space.y * np.float32(0.35)
    turn = (height - 30) * np.float32(1 / 27)
    rib = (np.abs(depth) < 4) & (height > 30) & (turn % 1 < 0.4) & free
    number = 12 - np.floor(turn[rib])
    labels[rib] = np.where(space.x[rib] > 0, 103, 91) + np.maximum(number, 1)
    return rib


def above_diaphragm(rng: np.random.Generator, space: Space) -> np.ndarray:
    """Draw the diaphragm; bool, true above it."""
    x, y = space.x, space.y
    dome = 135 - ((np.abs(x) - 70) ** 2 + (y - 30) ** 2) * np.float32(0.008)
    return space.z > dome + np.float32(rng.uniform(-8, 8))


def paint_lungs(labels: np.ndarray, space: Space, chest: np.ndarray) -> np.ndarray:
    """Label what is free in the chest as lungs, but for its middle; return their mask."""
    lung = chest & (labels == 0) & (np.abs(space.x) > 14)
    for label, side in ((11, space.x < 0), (14, space.x > 0)):
        labels[lung & side] = label
    return lung


def place_organs(
    rng: np.random.Generator,
    space: Space,
    depth: np.ndarray,
    fat: float,
    wall: float,
    above: np.ndarray,
    labels: np.ndarray,
    body: Body,
    organs: tuple[Ellipsoid | Tube, ...] = TRUNK,
) -> Iterator[tuple[Ellipsoid | Tube, VoxelBox, np.ndarray, np.ndarray]]:
    """Draw organs one after the other into what is still free of `labels`.

    Args:
        rng: source of places and sizes; a caller may draw from it between two organs.
        space: where the voxels are.
        depth: mm below the skin.
        fat, wall: thickness of skin fat and of the body wall (mm).
        above: voxels above the diaphragm.
        labels: ids, changed in place.
        body: the patient.
        organs: in order of precedence.

    Yields:
        the organ, a box around it, the depth of the box's voxels in it (mm), and those it got.
    """
    cavity = depth > fat + wall
    for organ in organs:
        box, inside = _organ_depth(rng, space, organ, body)
        claimed = (inside > 0) & (labels[box] == 0)
        claimed &= depth[box] > fat if organ.label in IN_WALL else cavity[box]
        if organ.label in BELOW_DIAPHRAGM:
            claimed &= ~above[box]
        if organ.label in ABOVE_DIAPHRAGM:
            claimed &= above[box]
        labels[box][claimed] = organ.label
        yield organ, box, inside, claimed
