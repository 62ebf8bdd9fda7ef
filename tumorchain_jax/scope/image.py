"""Image statistics of a CT: noise, slices out of order, values that are not Hounsfield units."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from scipy import ndimage

from tumorchain_jax.scan.orientation import canonical
from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.scope.coarse import HIGHEST_HU, LOWEST_HU, CoarseScan
from tumorchain_jax.scope.findings import Finding

# Correlation of neighbouring voxels: 5 real CTs (an abdomen, four limbs) are at 0.97 or more, 40
# simple phantoms at 0.93, 40 realistic ones (voxels of 3 mm, up to strong noise) at 0.79; white
# noise is at 0, a checkerboard of 4 voxels at 0.5.
MIN_CORRELATION, LINES = 0.6, 48
# Mean difference of neighbouring slices over that of slices 40 mm apart: at most 0.27 in the real
# CTs, 0.45 in phantoms with slices of 5 mm; about 1 for shuffled slices.
APART_MM, LEAST_APART_MM, MAX_ORDER = 40.0, 20.0, 0.75
# Difference of two neighbouring slices over the median of the nine around: at most 1.6 in the real
# CTs and in phantoms.
MAX_JUMP, NEIGHBOURHOOD = 3.0, 9
# Of all slices, how many may repeat the one before: nearest-neighbour resampling makes up to 80 %.
MAX_REPEATED = 0.9
# Different values (HU) in a sample of voxels: at least 700 in real CTs and phantoms; a picture of
# 8 bits has 256, a label map given as a scan has 118.
MIN_VALUES, FEW_VALUES = 64, 257
# Air is -1000 HU by definition; a mean of blocks outside the body may hold clothes and table.
AIR_HU, MIN_AIR_SHARE = -850.0, 0.02
# Share of the body that is fat or soft tissue (-150 to 150 HU; bone, contrast and gas are the
# rest): 0.80 or more in the real CTs, 0.86 or more in phantoms.
TISSUE_HU, MIN_TISSUE = (-150.0, 150.0), 0.6
# Fat is at -115 to -85 HU. Of the body's voxels at -140 to -25 HU, at most 0.35 are over -70 in an
# abdomen and in 80 phantoms (0.58 in a lean calf), 0.87 or more when intensities are halved.
LEAN_HU, FAT_HU, MAX_LEAN, MIN_FAT = (-70.0, -25.0), (-140.0, -70.0), 0.7, 0.1

ORIGINAL = "give the original CT, in HU"


def check_image(ct: Volume, coarse: CoarseScan) -> Iterator[Finding]:
    """Find what no CT of a body shows, wherever in the body it was taken."""
    fine = canonical(ct)
    yield from _check_noise(fine)
    yield from _check_order(fine, coarse)
    yield from _check_values(fine, coarse)


def _check_noise(fine: Volume) -> Iterator[Finding]:
    lowest = min(_correlation(fine.voxels, axis) for axis in range(3))
    if lowest < MIN_CORRELATION:
        found = f"neighbouring voxels with a correlation of {lowest:.2f}"
        expected = f"over {MIN_CORRELATION:g}"
        yield Finding(True, "noise", found, expected, "give a scan, not noise or a test pattern")


def _correlation(voxels: np.ndarray, axis: int) -> float:
    """Correlation of neighbours along an axis, on lines spread over the volume."""
    lines = np.moveaxis(voxels, axis, -1)
    steps = [max(1, size // LINES) for size in lines.shape[:2]]
    sample = np.clip(lines[:: steps[0], :: steps[1]], LOWEST_HU, HIGHEST_HU).astype(np.float64)
    sample -= sample.mean()
    power = float((sample**2).mean())
    return float((sample[..., 1:] * sample[..., :-1]).mean()) / power if power else 0.0


def _check_order(fine: Volume, coarse: CoarseScan) -> Iterator[Finding]:
    slices, step = coarse.slices, fine.spacing[0]
    steps = np.array([np.abs(b - a).mean() for a, b in pairwise(slices)])
    thinned = fine.voxels[:, ::3, ::3]
    repeated = np.array([np.array_equal(a, b) for a, b in pairwise(thinned)])
    # Empty slices are alike: what is asked is whether an image is repeated.
    repeated &= steps == 0
    repeated &= slices[1:].max((1, 2)) > LOWEST_HU / 2
    if repeated.any():
        at = int(repeated.argmax()) + 1
        found = f"{int(repeated.sum())} of {len(slices)} slices that repeat the one before"
        found += f" (first: slice {at + 1} from below)"
        hint = "give the scan as it was acquired"
        yield Finding(bool(repeated.mean() > MAX_REPEATED), "slices", found, "none", hint)
    apart = min(round(APART_MM / step), len(slices) // 2)
    if apart < 2 or apart * step < LEAST_APART_MM:
        return
    far = np.median([np.abs(b - a).mean() for a, b in zip(slices, slices[apart:], strict=False)])
    if np.median(steps) > MAX_ORDER * far:
        found = f"neighbouring slices as different as slices {apart * step:.0f} mm apart"
        expected = "slices that change little by little"
        hint = "sort the slices by their position"
        yield Finding(True, "slices", found, expected, hint)
        return
    usual = ndimage.median_filter(steps, NEIGHBOURHOOD, mode="nearest")
    jump = steps / np.maximum(usual, 1.0)
    if jump.max() > MAX_JUMP:
        at = int(jump.argmax()) + 1
        found = f"a jump between slices {at} and {at + 1} from below"
        hint = "check that no slice is missing, replaced or repeated there"
        yield Finding(False, "slices", found, "slices that change little by little", hint)


def _check_values(fine: Volume, coarse: CoarseScan) -> Iterator[Finding]:
    steps = [max(1, size // 64) for size in fine.shape]
    sample = np.rint(fine.voxels[:: steps[0], :: steps[1], :: steps[2]])
    different = len(np.unique(sample))
    if different < min(FEW_VALUES, sample.size // 8):
        found, expected = f"only {different} different values", f"{FEW_VALUES} or more"
        hint = f"{ORIGINAL}, not a picture or a label map"
        yield Finding(different < MIN_VALUES, "values", found, expected, hint)
    hu, trunk = coarse.hu, coarse.trunk
    outside = hu[~ndimage.binary_dilation(trunk, iterations=2) & (hu < -300)]
    if outside.size > MIN_AIR_SHARE * hu.size and np.median(outside) > AIR_HU:
        found = f"air around the body at {np.median(outside):.0f} HU"
        yield Finding(True, "HU", found, "about -1000 HU", f"{ORIGINAL}, with its own scaling")
    inside = hu[coarse.body]
    if inside.size:
        low, high = TISSUE_HU
        tissue = float(np.mean((inside > low) & (inside < high)))
        if tissue < MIN_TISSUE:
            found = f"{tissue:.0%} of the body between {low:.0f} and {high:.0f} HU"
            expected = f"fat and soft tissue in {MIN_TISSUE:.0%} or more"
            hint = f"{ORIGINAL}, not an MR, a picture, or values scaled or inverted"
            yield Finding(True, "HU", found, expected, hint)
        fat, lean = (float(np.mean((inside > a) & (inside <= b))) for a, b in (FAT_HU, LEAN_HU))
        if fat + lean > MIN_FAT and lean > MAX_LEAN * (fat + lean):
            found = f"{lean:.0%} of the body at {LEAN_HU[0]:.0f} to {LEAN_HU[1]:.0f} HU"
            expected = "fat at about -100 HU"
            yield Finding(False, "HU", found, expected, f"{ORIGINAL}, with its own scaling")
