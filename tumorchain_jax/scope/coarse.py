"""A coarse copy of a CT and the patient's body in it: what the checks of a scan look at."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float
from scipy import ndimage

from tumorchain_jax.scan.orientation import canonical
from tumorchain_jax.scan.volume import Volume

COARSE_MM = 5.0
LOWEST_HU, HIGHEST_HU = -1024.0, 3000.0
"""Padding is taken as air, metal as the densest bone."""
BODY_HU = -300.0
AIR_HU = -950.0
"""Denser is a lung, at -900 to -700 HU; thinner is the air around the patient."""


@dataclass(frozen=True)
class CoarseScan:
    """A CT as means of blocks of about 5 mm, in canonical axes (to Superior, Posterior, Left).

    Attributes:
        hu: clipped to -1024 to 3000 HU.
        slices: the same in-plane, but with every slice of the scan.
        spacing: mm between voxels of `hu`.
        affine: canonical voxel index of `hu` -> mm RAS+.
    """

    hu: Float[np.ndarray, "D H W"]
    slices: Float[np.ndarray, "slices H W"]
    spacing: np.ndarray
    affine: Float[np.ndarray, "4 4"]

    @cached_property
    def trunk(self) -> Bool[np.ndarray, "D H W"]:
        """The largest connected piece over -300 HU, with all that it encloses (lungs, bowel gas).

        What a slice encloses is filled in before thin objects (table, clothes) are taken away, so
        that a thin chest wall still encloses the lungs. Where the side of a narrow image cuts a
        lung, that side encloses it.
        """
        filled = [_filled(plane) for plane in self.hu]
        thick = np.stack([ndimage.binary_opening(plane) for plane in filled])
        pieces, count = ndimage.label(thick)
        return pieces == 1 + np.bincount(pieces.ravel())[1:].argmax() if count else thick

    @cached_property
    def body(self) -> Bool[np.ndarray, "D H W"]:
        """The trunk without the air in it."""
        return self.trunk & (self.hu > BODY_HU)

    @cached_property
    def area_cm2(self) -> Float[np.ndarray, " D"]:
        """Axial cross-section of the trunk in each slice."""
        pixel = self.spacing[1] * self.spacing[2] / 100
        return self.trunk.sum((1, 2)) * pixel

    @cached_property
    def occupied(self) -> Bool[np.ndarray, " D"]:
        """Slices with a fifth or more of the usual cross-section."""
        filled = self.area_cm2[self.area_cm2 > 0]
        return self.area_cm2 > 0.2 * (np.median(filled) if filled.size else np.inf)


def _filled(hu: Float[np.ndarray, "H W"]) -> Bool[np.ndarray, "H W"]:
    """Fill in what the body encloses on a slice, the sides of the image being walls of a lung."""
    body = hu > BODY_HU
    for side in (np.s_[0], np.s_[-1], np.s_[:, 0], np.s_[:, -1]):
        at = np.flatnonzero(body[side])
        if len(at) == 0:
            continue
        between = slice(at[0], at[-1] + 1)
        gap = hu[side][between][~body[side][between]]
        if len(gap) and gap.mean() > AIR_HU:
            body[side][between] = True
    return ndimage.binary_fill_holes(body)


def coarse_scan(ct: Volume) -> CoarseScan:
    """Average a CT in blocks; a 512 x 512 x 300 scan takes about half a second."""
    fine = canonical(ct)
    factors = np.maximum(1, np.rint(COARSE_MM / np.array(fine.spacing))).astype(int)
    factors = np.minimum(factors, np.array(fine.shape) // 2)
    depth, rows, columns = (size // f for size, f in zip(fine.shape, factors, strict=True))
    slices = np.empty((fine.shape[0], rows, columns), np.float32)
    _, down, across = factors
    for plane, mean in zip(fine.voxels, slices, strict=True):
        clipped = np.clip(plane[: rows * down, : columns * across], LOWEST_HU, HIGHEST_HU)
        mean[:] = clipped.reshape(rows, down, columns, across).mean((1, 3), dtype=np.float32)
    step = factors[0]
    hu = slices[: depth * step].reshape(depth, step, rows, columns).mean(1)
    affine = fine.affine.copy()
    affine[:3, 3] += affine[:3, :3] @ ((factors - 1) / 2)
    affine[:3, :3] *= factors
    return CoarseScan(hu, slices, np.array(fine.spacing) * factors, affine)
