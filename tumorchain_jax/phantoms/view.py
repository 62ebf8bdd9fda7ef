"""What a scan shows of a patient: size, fat, posture, field of view, voxels, gas and content."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, UInt8

from tumorchain_jax.phantoms.anatomy import Anatomy, Tissue
from tumorchain_jax.phantoms.body import smooth_field
from tumorchain_jax.phantoms.deformation import Box, Deformation
from tumorchain_jax.phantoms.label_maps import BODY, FAT_MM, LUNG_IDS, Template

VOXELS = 1_200_000  # at most
IN_PLANE_MM, SLICE_MM, COARSEST_MM = (2.0, 3.5), (0.7, 7.0), 3.5
# Of scans with too many thin slices this share gets thicker ones, the others show less.
WHOLE_SHARE, LEAST_HEIGHT_MM = 0.75, 150.0
SIZE, EACH_AXIS = 0.07, 0.03  # spread of the body's size, and of that of each axis
# mm added to the skin fat of the template; the belly has more of it or less than the back.
FAT_ADDED_MM, FAT_UNEVEN, FAT_KNOT_MM = (-3.0, 32.0), 0.25, 120.0
WALL_MM = (7.0, 14.0)
PRONE_SHARE, ARMS_SHARE, CROPPED_SHARE = 0.08, 0.15, 0.12
ARM_MM, FOREARM_BONE_MM = (34.0, 48.0), (8.0, 12.0)
MARGIN_MM, CROPPED_MM = (6.0, 40.0), (10.0, 45.0)
# Part of the trunk that a scan shows, and the odds.
PARTS = {
    "abdomen": 0.6,
    "upper abdomen": 0.12,
    "thorax and abdomen": 0.1,
    "pelvis": 0.08,
    "slab": 0.1,
}
# Wall (mm), and share of gas in the lumen, of hollow organs; None: content alone.
HOLLOW: dict[int, tuple[tuple[float, float], tuple[float, float] | None]] = {
    4: ((1.5, 2.5), None), 6: ((3.0, 6.0), (0.0, 0.8)), 15: ((3.0, 5.0), (0.0, 0.6)),
    16: ((1.0, 2.0), (1.0, 1.0)), 18: ((2.0, 3.5), (0.0, 0.25)), 19: ((2.0, 4.0), (0.0, 0.4)),
    20: ((2.0, 4.0), (0.05, 0.95)), 21: ((2.0, 5.0), None),
}  # fmt: skip
LEVEL_MM = {6: 4.0}  # unevenness of the border between gas and content; of the bowel 30
BOWEL_LEVEL_MM, BOWEL_KNOT_MM = 30.0, 35.0
BONE_IDS = (*range(25, 51), *range(69, 79), *range(91, 117))
MUSCLE_IDS, OTHER_BONE = range(80, 90), 208

_TISSUE = np.full(256, Tissue.MUSCLE, np.uint8)
_TISSUE[:BODY] = Tissue.ORGAN
_TISSUE[list(BONE_IDS)] = _TISSUE[OTHER_BONE] = Tissue.BONE
_TISSUE[list(MUSCLE_IDS)] = Tissue.MUSCLE
_TISSUE[list(LUNG_IDS)] = Tissue.LUNG


@dataclass(frozen=True)
class View:
    """How a patient is scanned.

    Attributes:
        size: factors of the template along x, y, z.
        field: box of the scan in the template's mm.
        spacing: of the voxels (mm).
        fat_mm: added to the skin fat.
        wall_mm: thickness of the body wall.
        prone: on the belly.
        arms: beside the body, rather than raised.
    """

    size: Float[np.ndarray, "3"]
    field: Box
    spacing: Float[np.ndarray, "3"]
    fat_mm: float
    wall_mm: float
    prone: bool
    arms: bool


def draw_view(rng: np.random.Generator, template: Template) -> View:
    """Draw how a patient is built and scanned."""
    size = rng.normal(1, SIZE) * rng.normal(1, EACH_AXIS, 3)
    size = size.clip(0.8, 1.2)
    fat = float(FAT_ADDED_MM[0] + (FAT_ADDED_MM[1] - FAT_ADDED_MM[0]) * rng.beta(1.2, 2.5))
    arms = rng.random() < ARMS_SHARE
    low, high = (corner.copy() for corner in template.boxes[0])
    margin = max(fat, 0) + rng.uniform(*MARGIN_MM)
    if rng.random() < CROPPED_SHARE and not arms:
        margin = -rng.uniform(*CROPPED_MM)
    low[:2] -= margin
    high[:2] += margin
    if arms:
        low[0] -= 2 * ARM_MM[1]
        high[0] += 2 * ARM_MM[1]
    low[2], high[2] = _draw_heights(rng, template)
    spacing = np.array([rng.uniform(*IN_PLANE_MM)] * 2 + [0.0])
    # Thin slices are rarer than thick ones, on a logarithmic scale.
    share = rng.triangular(0, 0.75, 1)
    spacing[2] = SLICE_MM[0] * (SLICE_MM[1] / SLICE_MM[0]) ** share
    _limit(rng, low, high, size, spacing)
    prone = rng.random() < PRONE_SHARE
    return View(size, (low, high), spacing, fat, rng.uniform(*WALL_MM), bool(prone), bool(arms))


def show(
    rng: np.random.Generator,
    template: Template,
    deformation: Deformation,
    view: View,
    source: str,
) -> Anatomy:
    """Make the anatomy that a scan of a deformed template shows."""
    step = view.spacing / view.size
    low, high = view.field
    axes = [
        a + s * np.arange(max(2, int((b - a) / s))) for a, b, s in zip(low, high, step, strict=True)
    ]
    voxel = _voxels(template, deformation.along_axes(axes))
    labels = template.labels.reshape(-1)[voxel]
    depth = template.depth.reshape(-1)[voxel].astype(np.float32)
    inner = template.inner.reshape(-1)[voxel]
    uneven = 1 + FAT_UNEVEN * smooth_field(rng, labels.shape, view.spacing, FAT_KNOT_MM)
    inside = (labels > 0) | (depth > -view.fat_mm * uneven)

    tissue = np.where(inside, np.uint8(Tissue.SKIN_FAT), np.uint8(Tissue.OUTSIDE))
    tissue[inside & (depth > FAT_MM)] = Tissue.MUSCLE
    tissue[inside & (depth > FAT_MM + view.wall_mm)] = Tissue.FAT
    solid = (labels > 0) & (labels != BODY)
    tissue[solid] = _TISSUE[labels[solid]]
    labels[labels >= BODY] = 0
    up = axes[1].astype(np.float32)[None, :, None] * (-1 if view.prone else 1)
    for label, (wall_mm, gas) in HOLLOW.items():
        _fill(rng, tissue, (labels == label) & (inner > 4 * rng.uniform(*wall_mm)), up, label, gas)
    if view.arms:
        _add_arms(rng, tissue, axes, view.size)
    affine = np.diag([*view.spacing, 1.0])
    affine[:3, 3] = low * view.size + rng.uniform(-40, 40, 3)
    return Anatomy(labels, tissue, affine, source, view.prone, template.female)


def _draw_heights(rng: np.random.Generator, template: Template) -> tuple[float, float]:
    """Draw the lowest and the highest slice of the part of the trunk that is scanned."""
    boxes = template.boxes
    first, last = boxes[0][0][2], boxes[0][1][2]

    def of(labels: tuple[int, ...], end: int, otherwise: float) -> float:
        found = [boxes[label][end][2] for label in labels if label in boxes]
        return float((min, max)[end](found)) if found else otherwise

    pelvis, hips = of((77, 78), 0, first), of((77, 78), 1, first)
    kidneys, liver = of((2, 3), 0, first), of((5,), 1, last)
    part = rng.choice(list(PARTS), p=list(PARTS.values()))
    if part == "abdomen":
        return rng.uniform(pelvis - 10, pelvis + 50), rng.uniform(liver, min(liver + 70, last))
    if part == "upper abdomen":
        return rng.uniform(kidneys - 60, kidneys), rng.uniform(liver - 10, min(liver + 60, last))
    if part == "thorax and abdomen":
        return rng.uniform(pelvis, kidneys), last
    if part == "pelvis":
        return max(first, pelvis - 40), rng.uniform(hips - 20, max(kidneys + 40, hips))
    low = rng.uniform(first, max(last - 260, first + 1))
    return low, min(last, low + rng.uniform(120, 260))


def _limit(
    rng: np.random.Generator,
    low: np.ndarray,
    high: np.ndarray,
    size: np.ndarray,
    spacing: np.ndarray,
) -> None:
    """Make voxels larger within a slice, then slices thicker or the scan shorter, up to VOXELS."""
    extent = (high - low) * size
    excess = (extent / spacing).prod() / VOXELS
    if excess > 1:
        spacing[:2] = np.minimum(spacing[:2] * excess**0.5, COARSEST_MM)
        excess = (extent / spacing).prod() / VOXELS
    if excess > 1 and rng.random() < WHOLE_SHARE:
        spacing[2] *= excess
    elif excess > 1:
        height = max(extent[2] / excess, LEAST_HEIGHT_MM)
        spacing[2] *= max(1, excess * height / extent[2])
        low[2] += rng.random() * (extent[2] - height) / size[2]
        high[2] = low[2] + height / size[2]


def _voxels(template: Template, points: list[np.ndarray]) -> np.ndarray:
    """Index of the nearest voxel of the flattened template."""
    flat = np.zeros(points[0].shape, np.int32)
    for point, start, count in zip(points, template.origin, template.labels.shape, strict=True):
        point -= np.float32(start - template.voxel_mm / 2)
        point *= np.float32(1 / template.voxel_mm)
        flat *= count
        flat += np.clip(point, 0, count - 1).astype(np.int32)
    return flat


def _fill(
    rng: np.random.Generator,
    tissue: UInt8[np.ndarray, "X Y Z"],
    lumen: Bool[np.ndarray, "X Y Z"],
    up: np.ndarray,
    label: int,
    gas: tuple[float, float] | None,
) -> None:
    """Fill a lumen with content, and with gas that rises."""
    tissue[lumen] = Tissue.CONTENT
    if gas is None:
        return
    share = rng.uniform(*gas)
    knots = tuple(max(2, n // 8) for n in lumen.shape)
    coarse = rng.standard_normal(knots, dtype=np.float32) * np.float32(
        LEVEL_MM.get(label, BOWEL_LEVEL_MM)
    )
    x, y, z = np.nonzero(lumen)
    if not len(x):
        return
    nearest = [(i * k) // n for i, k, n in zip((x, y, z), knots, lumen.shape, strict=True)]
    height = up[0, y, 0] + coarse[tuple(nearest)]
    risen = height >= np.quantile(height, 1 - share) if share else np.zeros(len(x), bool)
    tissue[x[risen], y[risen], z[risen]] = Tissue.GAS


def _add_arms(
    rng: np.random.Generator,
    tissue: UInt8[np.ndarray, "X Y Z"],
    axes: list[np.ndarray],
    size: np.ndarray,
) -> None:
    """Lay an arm on either side of the body, where there is air."""
    x, y, z = (a * s for a, s in zip(axes, size, strict=True))
    wide = np.flatnonzero((tissue != Tissue.OUTSIDE).any(axis=(1, 2)))
    deep = np.flatnonzero((tissue != Tissue.OUTSIDE).any(axis=(0, 2)))
    if not len(wide):
        return
    middle = y[deep].mean() + rng.uniform(-25, 25)
    radius, bone = rng.uniform(*ARM_MM), rng.uniform(*FOREARM_BONE_MM)
    slope = rng.uniform(-0.08, 0.08)
    for side, skin in ((-1, x[wide[0]]), (1, x[wide[-1]])):
        centre = skin + side * radius * 0.95 + side * slope * (z - z.mean())
        across = (x[:, None, None] - centre) ** 2 + (y[:, None] - middle)[None] ** 2
        air = tissue == Tissue.OUTSIDE
        for reach, kind in (
            (radius, Tissue.SKIN_FAT),
            (radius - 7, Tissue.MUSCLE),
            (bone, Tissue.BONE),
        ):
            tissue[air & np.broadcast_to(across < reach**2, tissue.shape)] = kind
