"""Paint an anatomy in HU: the patient as an ideal scanner would see it, before blur and noise."""

import numpy as np
from jaxtyping import Float, UInt8
from scipy import ndimage

from tumorchain_jax.anatomy.organs import LIVER
from tumorchain_jax.phantoms.anatomy import Anatomy, Tissue
from tumorchain_jax.phantoms.body import VoxelBox, smooth_field
from tumorchain_jax.phantoms.tissue import (
    CODE_OF_TISSUE,
    CONTENT_OF,
    CORTEX,
    FAT,
    MATERIALS,
    MEDULLA,
    MUSCLE,
    MYOCARDIUM,
    SINUS,
    SKIN,
    VESSEL,
    TissueHU,
)
from tumorchain_jax.phantoms.vessels import paint_tree

KIDNEYS, HEART, LUNGS = (2, 3), 51, ((10, 11), (12, 13, 14))
COARSE_MM, FINE_MM = 28.0, 6.0
CORTEX_MM, SINUS_MM, MYOCARDIUM_MM, SKIN_MM = 7.0, 15.0, 9.0, 2.5
LIVER_BRANCHES, LUNG_BRANCHES = (25, 50), (60, 110)
# Membranes and small vessels in the fat, fat between the fibres of muscles.
STRAND_HU, STRAND_WIDTH, STREAK_HU, STREAK_WIDTH = 75.0, 0.10, -75.0, 0.12
LOWEST_HU = -1024.0


def paint_tissues(
    rng: np.random.Generator, anatomy: Anatomy, hu: TissueHU
) -> Float[np.ndarray, "X Y Z"]:
    """Paint every voxel by its tissue; float32 HU."""
    spacing = anatomy.affine.diagonal()[:3]
    shape = anatomy.labels.shape
    fine = smooth_field(rng, shape, spacing, FINE_MM)
    coarse = smooth_field(rng, shape, spacing, COARSE_MM)
    code = _materials(anatomy)
    _kidneys(code, anatomy.labels, fine, spacing)
    _shell(code, anatomy.labels == HEART, MYOCARDIUM_MM, spacing, MYOCARDIUM)
    bone = anatomy.tissue == Tissue.BONE
    _shell(code, bone, float(spacing.min()), spacing, CORTEX)
    _skin(code, anatomy.tissue, spacing)
    image = np.take(hu.mean, code)
    image += np.take(hu.coarse, code) * coarse
    # The fine texture of neighbours is not that of one field read twice.
    image += np.take(hu.fine, code) * fine[::-1, ::-1]
    _strands(rng, image, code, fine, coarse)
    labels, blood = anatomy.labels, float(hu.mean[VESSEL])
    paint_tree(rng, image, labels == LIVER, spacing, LIVER_BRANCHES, (4.0, 1.2), blood)
    for lobes in LUNGS:
        lung = np.isin(labels, lobes)
        paint_tree(rng, image, lung, spacing, LUNG_BRANCHES, (4.0, 0.8), blood)
    return np.maximum(image, np.float32(LOWEST_HU), out=image)


def _materials(anatomy: Anatomy) -> UInt8[np.ndarray, "X Y Z"]:
    """Code of each voxel's material: its label, but for what the tissue alone tells."""
    table = np.zeros((max(Tissue) + 1, MATERIALS), np.uint8)
    labels = np.arange(MATERIALS)
    for tissue, code in CODE_OF_TISSUE.items():
        table[tissue] = code
    for tissue in (Tissue.ORGAN, Tissue.BONE, Tissue.LUNG, Tissue.MUSCLE):
        table[tissue] = np.where(labels > 0, labels, table[tissue])
    for label, code in CONTENT_OF.items():
        table[Tissue.CONTENT, label] = code
    return table[anatomy.tissue, anatomy.labels]


def _shell(
    code: np.ndarray, mask: np.ndarray, thickness_mm: float, spacing: np.ndarray, material: int
) -> None:
    """Give the outer voxels of a mask another material."""
    box = _box(mask)
    if box is not None:
        outer = mask[box] & ~_eroded(mask[box], thickness_mm, spacing)
        code[box][outer] = material


def _kidneys(code: np.ndarray, labels: np.ndarray, field: np.ndarray, spacing: np.ndarray) -> None:
    """Divide the kidneys into cortex, pyramids and sinus."""
    for kidney in KIDNEYS:
        box = _box(labels == kidney)
        if box is None:
            continue
        own = labels[box] == kidney
        inner = _eroded(own, CORTEX_MM, spacing)
        code[box][inner & (field[box] > -0.3)] = MEDULLA
        code[box][_eroded(own, SINUS_MM, spacing) & (field[box] < 0.5)] = SINUS


def _skin(code: np.ndarray, tissue: np.ndarray, spacing: np.ndarray) -> None:
    """Give the outermost voxels of the body to the skin."""
    size = [2 * max(1, round(SKIN_MM / s)) + 1 for s in spacing[:2]]
    air = ndimage.maximum_filter(tissue == Tissue.OUTSIDE, (*size, 1))
    code[air & (tissue == Tissue.SKIN_FAT)] = SKIN


def _strands(
    rng: np.random.Generator,
    image: np.ndarray,
    code: np.ndarray,
    fine: np.ndarray,
    coarse: np.ndarray,
) -> None:
    """Draw thin sheets, where a field is near 0, into fat and muscle."""
    density = rng.uniform(-0.5, 0.8)
    for material, hu, width in ((FAT, STRAND_HU, STRAND_WIDTH), (MUSCLE, STREAK_HU, STREAK_WIDTH)):
        here = code == material
        near = fine[here] * np.float32(1 / width)
        sheet = np.maximum(1 - near * near, 0) * (coarse[here] < density)
        image[here] += np.float32(hu * rng.uniform(0.3, 1)) * sheet


def _eroded(mask: np.ndarray, mm: float, spacing: np.ndarray) -> np.ndarray:
    """Erode a mask by a box-shaped neighbourhood; outside the array is no part of it."""
    size = [2 * max(1, round(mm / s)) + 1 for s in spacing]
    return ndimage.minimum_filter(mask, size, mode="constant", cval=0)


def _box(mask: np.ndarray) -> VoxelBox | None:
    """Return the box of a mask; None where it is empty."""
    spans = []
    for axis in range(3):
        index = np.flatnonzero(mask.any(axis=tuple({0, 1, 2} - {axis})))
        if not len(index):
            return None
        spans.append(slice(int(index[0]), int(index[-1]) + 1))
    i, j, k = spans
    return i, j, k
