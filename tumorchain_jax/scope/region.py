"""Is the body on a CT a trunk, of a person's size, and the way up that the header says?

All from the scan alone. Lungs lie above, the spine at the back, the liver on the right.
"""

from collections.abc import Iterator

import numpy as np
from scipy import ndimage

from tumorchain_jax.scan.orientation import canonical
from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.scope.coarse import AIR_HU, CoarseScan
from tumorchain_jax.scope.findings import Finding

# Cross-section of the trunk: 69 to 144 cm2 in four CTs of thighs and lower legs, 530 or more in an
# abdomen and 40 phantoms. A waist of 44 cm (10th percentile of 2-year-olds: Fernandez et al., J
# Pediatr 2004) is 154 cm2 if round; one of 200 cm, over the largest of NHANES 2015-2018
# (Vital Health Stat 3(46), 2021), is 3,200 cm2.
SMALLEST_CM2, LARGEST_CM2 = 150.0, 3200.0
# A person is at most some 2.3 m long, and a gantry 0.9 m wide at most.
LONGEST_MM, WIDEST_MM = 2300.0, 900.0
SHORTEST_MM = 60.0
EMPTY_SHARE = 0.05
# Share of bone (over 200 HU) that is as dense as the shaft of a long bone or the skull (over 1,000
# HU; the cortex of the femur is at 1,200 to 1,700): 0.00 in the abdomen, 0.02 or less in 40 simple
# and 40 realistic phantoms; 0.33 to 0.62 in three limbs and 0.11 in a knee. Metal (over 2,500 HU)
# is left out.
BONE_HU, DENSE_HU, METAL_HU = 200.0, 1000.0, 2500.0
MAX_DENSE, FEWEST_BONE_VOXELS = 0.2, 200
# Lungs: the share of their air in the upper half of the scan is 0.99 in an abdomen and 0.81 or more
# in 40 phantoms; under 0.2 when they are upside down. Gas in the bowel is thinner than a lung.
LUNG_HU, LUNG_ML, MIN_UPPER = -400.0, 150.0, 0.35
# How far behind the middle of the body the central bone of a slice lies, over the body's depth:
# 0.21 in an abdomen, 0.06 or more in 40 simple and 40 realistic phantoms; the opposite back to
# front.
CENTRAL, SPINE_HU, MIN_BEHIND, MIN_SPINE_SLICES = 0.1, 150.0, -0.02, 0.5
# The largest piece of soft tissue near the base of the lungs is the liver: 0.78 of it lies right
# of the middle in an abdomen, 0.88 or more in simple phantoms, 0.07 in one of 40 realistic ones:
# so this only warns.
LIVER_HU, LIVER_ML, MIN_RIGHT = (20.0, 220.0), 100.0, 0.35
BASE_CM2, NEAR_BASE_MM = 20.0, 100.0

NOT_ABDOMEN = "give a CT of the abdomen"


def check_region(ct: Volume, coarse: CoarseScan) -> Iterator[Finding]:
    """Find a body that is missing, of an impossible size, a limb or a head, or turned over."""
    if not coarse.occupied.any():
        hint = f"{NOT_ABDOMEN}; check the spacing and the scaling"
        yield Finding(True, "body", "no body in the scan", "a patient", hint)
        return
    yield from _check_size(coarse)
    yield from _check_bone(ct, coarse)
    yield from _check_upright(coarse)
    yield from _check_front(coarse)
    yield from _check_sides(coarse)


def _check_size(coarse: CoarseScan) -> Iterator[Finding]:
    area = float(np.median(coarse.area_cm2[coarse.occupied]))
    size = [np.ptp(np.nonzero(coarse.trunk.any(axes))[0]) + 1 for axes in ((0, 2), (0, 1))]
    depth, width = np.array(size) * coarse.spacing[1:]
    check_spacing = "check the spacing, and that the scan is of an abdomen"
    if not SMALLEST_CM2 <= area <= LARGEST_CM2 or max(depth, width) > WIDEST_MM:
        found = f"a body of {area:.0f} cm2 in cross-section ({width:.0f} x {depth:.0f} mm)"
        expected = f"a trunk of {SMALLEST_CM2:.0f} to {LARGEST_CM2:.0f} cm2"
        yield Finding(True, "body", found, expected, check_spacing)
    length = len(coarse.hu) * coarse.spacing[0]
    if length > LONGEST_MM:
        found, expected = f"a scan {length:.0f} mm long", f"at most {LONGEST_MM:.0f} mm"
        yield Finding(True, "body", found, expected, check_spacing)
    elif length < SHORTEST_MM:
        found, expected = f"a scan {length:.0f} mm long", f"at least {SHORTEST_MM:.0f} mm"
        hint = "most organs are cut; give the whole abdomen"
        yield Finding(False, "body", found, expected, hint)
    empty = 1 - coarse.occupied.mean()
    if empty > EMPTY_SHARE:
        found = f"{empty:.0%} of the slices with little or no body"
        hint = "give the whole scan, without empty slices"
        yield Finding(False, "body", found, "a body in each slice", hint)
    edges = coarse.body[coarse.occupied]
    sides = (edges[:, 0], edges[:, -1], edges[:, :, 0], edges[:, :, -1])
    cut = sum(side.any(1).mean() > 0.5 for side in sides)
    if cut >= 3:
        found = f"a body that reaches {cut} sides of the image"
        hint = "organs may be cut; give the whole field of view"
        yield Finding(False, "body", found, "air around the body", hint)


def _check_bone(ct: Volume, coarse: CoarseScan) -> Iterator[Finding]:
    fine = canonical(ct).voxels
    steps = [max(1, size // 128) for size in fine.shape]
    sample = fine[:: steps[0], :: steps[1], :: steps[2]]
    bone = sample[(sample > BONE_HU) & (sample < METAL_HU)]
    if bone.size < FEWEST_BONE_VOXELS:
        return
    dense = float(np.mean(bone > DENSE_HU))
    if dense > MAX_DENSE:
        found = f"{dense:.0%} of the bone over {DENSE_HU:.0f} HU, as in a limb or a skull"
        expected = f"at most {MAX_DENSE:.0%}, as in spine, ribs and pelvis"
        yield Finding(True, "region", found, expected, NOT_ABDOMEN)


def _check_upright(coarse: CoarseScan) -> Iterator[Finding]:
    """Lungs belong above: air in the lower half alone means that the scan is upside down."""
    lungs = _lungs(coarse).sum((1, 2)) * coarse.spacing.prod() / 1000
    upper = float(lungs[len(lungs) // 2 :].sum() / max(lungs.sum(), 1e-6))
    if lungs.sum() > LUNG_ML and upper < MIN_UPPER and lungs[0] >= lungs[-1]:
        found = f"{1 - upper:.0%} of the lungs' air in the lower half of the scan"
        hint = "the scan is upside down, or its header is, or it is no abdomen"
        yield Finding(True, "orientation", found, "lungs above the abdomen", hint)


def _check_front(coarse: CoarseScan) -> Iterator[Finding]:
    """The spine lies behind the middle of the body."""
    places = []
    for trunk, hu in zip(coarse.trunk[coarse.occupied], coarse.hu[coarse.occupied], strict=True):
        rows, columns = np.nonzero(trunk)
        front, depth = rows.min(), np.ptp(rows) + 1
        middle, width = (columns.min() + columns.max()) / 2, np.ptp(columns) + 1
        rows, columns = np.nonzero(trunk & (hu > SPINE_HU))
        rows = rows[np.abs(columns - middle) < CENTRAL * width]
        if len(rows) > 1:
            places.append((np.median(rows) - front) / depth - 0.5)
    if len(places) < MIN_SPINE_SLICES * coarse.occupied.sum():
        return
    if np.median(places) < MIN_BEHIND:
        hint = "the scan is back to front, or its header is, or it is no abdomen"
        yield Finding(True, "orientation", "the spine in front", "the spine at the back", hint)


def _check_sides(coarse: CoarseScan) -> Iterator[Finding]:
    """The liver, the largest piece of soft tissue below the lungs, lies on the right."""
    pixel = coarse.spacing[1] * coarse.spacing[2] / 100
    levels = np.nonzero(_lungs(coarse).sum((1, 2)) * pixel > BASE_CM2)[0]
    part = slice(None)
    if len(levels):
        reach = round(NEAR_BASE_MM / coarse.spacing[0])
        part = slice(max(0, levels[0] - reach), levels[0] + reach + 1)
    low, high = LIVER_HU
    hu, trunk = coarse.hu[part], coarse.trunk[part]
    pieces, count = ndimage.label(
        ndimage.binary_erosion(trunk & (hu > low) & (hu < high), iterations=3)
    )
    if not count:
        return
    largest = pieces == 1 + np.bincount(pieces.ravel())[1:].argmax()
    if largest.sum() * coarse.spacing.prod() / 1000 < LIVER_ML:
        return
    columns = np.nonzero(trunk)[2]
    right = float(np.mean(np.nonzero(largest)[2] < (columns.min() + columns.max()) / 2))
    if right < MIN_RIGHT:
        found = f"{1 - right:.0%} of the largest solid organ on the left"
        hint = "the scan is mirrored, or its header is, unless the organs are (situs inversus)"
        yield Finding(False, "orientation", found, "the liver on the right", hint)


def _lungs(coarse: CoarseScan) -> np.ndarray:
    return ndimage.binary_opening(coarse.trunk & (coarse.hu < LUNG_HU) & (coarse.hu > AIR_HU))
