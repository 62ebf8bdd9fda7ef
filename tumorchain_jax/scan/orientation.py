"""Reorder a volume's axes (permutations and flips, no resampling) together with its affine."""

import numpy as np
from nibabel.orientations import (
    apply_orientation,
    axcodes2ornt,
    inv_ornt_aff,
    io_orientation,
    ornt_transform,
)

from tumorchain_jax.scan.volume import Volume

# The ends of the canonical axes D, H, W: towards Superior, Posterior, Left, so that an axial slice
# [H, W] shows as radiologists see it: anterior on top, the patient's right on the viewer's left.
CANONICAL = "SPL"


def orientation(affine: np.ndarray) -> np.ndarray:
    """Return nibabel's `[3, 2]` (world axis, direction) of the axes closest to an affine's."""
    return io_orientation(affine)


def reorient(volume: Volume, target: np.ndarray) -> Volume:
    """Return a volume with its axes in the order and direction `target` (see `orientation`).

    An oblique volume keeps its obliquity: each of its axes goes to the closest target axis. The
    voxels are a view where numpy can make one.
    """
    change = ornt_transform(orientation(volume.affine), target)
    return Volume(
        voxels=apply_orientation(volume.voxels, change),
        affine=volume.affine @ inv_ornt_aff(change, volume.shape),
        source=volume.source,
    )


def canonical(volume: Volume) -> Volume:
    """Return the volume as `[D, H, W]` in the canonical frame."""
    return reorient(volume, axcodes2ornt(tuple(CANONICAL)))
