"""Lesions found by HU alone: where an organ is clearly darker or brighter than its median.

A plain ruler's eye, with limits that were set beforehand and not tuned on any score.
"""

import numpy as np
from scipy import ndimage

from tumorchain_jax.anatomy.organs import LIVER, PANCREAS
from tumorchain_jax.evaluation.deeptumorvqa.ruler.measure import KIDNEYS
from tumorchain_jax.scan.volume import Volume

SEARCHED = (LIVER, PANCREAS, *KIDNEYS)
"""Solid organs; the colon's wall, gas and content differ too much."""
LEAST_HU, DEVIATIONS, SMOOTH_MM = 20.0, 3.0, 2.0
LEAST_CM3, RIM_VOXELS = 0.2, 1


def find_lesions(ct: Volume, labels: Volume) -> Volume:
    """Number the lesions of the solid organs.

    Args:
        ct: HU.
        labels: TotalSegmentator v2 ids on its grid.

    Returns:
        uint8, n in the n-th lesion.
    """
    spacing = np.array(ct.spacing)
    found = np.zeros(ct.shape, np.uint8)
    count, least = 0, LEAST_CM3 * 1000 / spacing.prod()
    for organ in SEARCHED:
        own = labels.voxels == organ
        if not own.any():
            continue
        (box,) = ndimage.find_objects(own.astype(np.uint8))
        inside = ndimage.binary_erosion(own[box], iterations=RIM_VOXELS)
        if not inside.any():
            continue
        image = ct.voxels[box].astype(np.float32)
        middle = float(np.median(image[inside]))
        # Outside the organ its own median, so that neighbours do not shine in.
        smooth = ndimage.gaussian_filter(np.where(own[box], image, middle), SMOOTH_MM / spacing)
        off = smooth - middle
        spread = 1.48 * float(np.median(np.abs(off[inside])))
        odd = inside & (np.abs(off) > max(LEAST_HU, DEVIATIONS * spread))
        parts, number = ndimage.label(odd)
        sizes = np.bincount(parts.ravel(), minlength=number + 1)
        for part in np.argsort(-sizes[1:]) + 1:
            if sizes[part] >= least and count < np.iinfo(np.uint8).max:
                count += 1
                found[box][parts == part] = count
    return Volume(found, ct.affine, f"lesions of {ct.source}, by HU")
