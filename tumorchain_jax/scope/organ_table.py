"""Volume, place and density of each organ of a label map: what the checks of a mask look at."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, UInt8

from tumorchain_jax.scan.orientation import canonical
from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.scope.coarse import LOWEST_HU, CoarseScan

IDS = 256
FEWEST_SAMPLES = 5


@dataclass(frozen=True)
class OrganTable:
    """Organs of a label map, by id; sizes and places of ids without a voxel are 0 and NaN.

    Attributes:
        labels: sampled at the centres of the voxels of a `CoarseScan`.
        hu: that coarse scan's HU.
        samples: how many of its voxels each id has.
        ml: volume.
        centre: mm RAS+.
        cut: whether the organ reaches an edge of the scan.
        middle: x (mm) of the middle of the trunk.
    """

    labels: UInt8[np.ndarray, "D H W"]
    hu: Float[np.ndarray, "D H W"]
    samples: np.ndarray
    ml: np.ndarray
    centre: Float[np.ndarray, "ids 3"]
    cut: np.ndarray
    middle: float

    def has(self, number: int) -> bool:
        """Whether an organ has voxels enough to be measured."""
        return bool(self.samples[number] >= FEWEST_SAMPLES)

    def values(self, ids: Collection[int]) -> Float[np.ndarray, " voxels"]:
        """HU of the coarse voxels with these ids."""
        return self.hu[np.isin(self.labels, list(ids))]


def organ_table(labels: Volume, coarse: CoarseScan) -> OrganTable:
    """Measure the organs of a label map on the grid of the scan that `coarse` was made from.

    Args:
        labels: uint8 ids.
    """
    fine = canonical(labels)
    ids = np.asarray(fine.voxels, np.uint8)
    # Centres of the blocks of the coarse scan; their sizes follow from the affines.
    factors = np.rint(coarse.spacing / fine.spacing).astype(int)
    sampled = ids[tuple(slice(factor // 2, None, factor) for factor in factors)]
    sampled = np.ascontiguousarray(sampled[tuple(map(slice, coarse.hu.shape))])
    flat = sampled.ravel()
    samples = np.bincount(flat, minlength=IDS)
    places = np.indices(sampled.shape, np.float32).reshape(3, -1)
    sums = np.stack([np.bincount(flat, place, IDS) for place in places], axis=1)
    with np.errstate(invalid="ignore"):
        index = sums / samples[:, None]
    centre = index @ coarse.affine[:3, :3].T + coarse.affine[:3, 3]
    cut = np.zeros(IDS, bool)
    for axis in range(3):
        for end in (0, -1):
            cut[np.unique(np.take(ids, end, axis))] = True
    columns = np.nonzero(coarse.trunk.any((0, 1)))[0]
    middle = np.nan
    if columns.size:
        left_right = np.array([0, 0, (columns[0] + columns[-1]) / 2])
        middle = float((coarse.affine[:3, :3] @ left_right + coarse.affine[:3, 3])[0])
    return OrganTable(
        sampled,
        np.maximum(coarse.hu, LOWEST_HU),
        samples,
        samples * coarse.spacing.prod() / 1000,
        centre,
        cut,
        middle,
    )
