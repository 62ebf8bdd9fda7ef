"""Measure the volume and mean density of the organs of a label map."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tumorchain_jax.scan.volume import Volume

# TotalSegmentator looks as deep (statistics.py): labels of the outermost slices are often bad.
EDGE = 3


@dataclass(frozen=True)
class OrganStatistics:
    """Measurements of one organ.

    Attributes:
        voxels: number of voxels.
        volume_ml: their volume.
        mean_hu: mean of the scan in them; None for an organ without voxels.
        cut: whether it comes within three voxels of the scan's edge, so that part of it may lie
            outside.
    """

    voxels: int
    volume_ml: float
    mean_hu: float | None
    cut: bool


def organ_statistics(
    ct: Volume, labels: np.ndarray, names: Mapping[int, str]
) -> dict[str, OrganStatistics]:
    """Measure each organ.

    Args:
        ct: HU, `[I, J, K]`.
        labels: uint8 `[I, J, K]`.
        names: of the labels to measure.

    Returns:
        by name, in the order of `names`.
    """
    voxels, total = np.zeros(256, np.int64), np.zeros(256)
    # Plane by plane: weights of the whole scan in float64 would take twice the scan's memory.
    for hu, plane in zip(ct.voxels.T, labels.T, strict=True):
        voxels += np.bincount(plane.ravel(), minlength=256)
        total += np.bincount(plane.ravel(), hu.ravel(), minlength=256)
    at_edge = _labels_at_edge(labels)
    voxel_ml = float(np.prod(ct.spacing)) / 1000
    return {
        name: OrganStatistics(
            voxels=int(voxels[label]),
            volume_ml=float(voxels[label] * voxel_ml),
            mean_hu=float(total[label] / voxels[label]) if voxels[label] else None,
            cut=label in at_edge,
        )
        for label, name in names.items()
    }


def totalsegmentator_record(
    statistics: Mapping[str, OrganStatistics],
) -> dict[str, dict[str, Any]]:
    """Return the fields of TotalSegmentator's `statistics.json` (`--stats_include_incomplete`).

    Volume in mm3 and intensity in HU, both 0 for an absent organ; `cut` is added here.
    """
    return {
        name: {
            "volume": round(organ.volume_ml * 1000, 5),
            "intensity": round(organ.mean_hu or 0.0, 5),
            "cut": organ.cut,
        }
        for name, organ in statistics.items()
    }


def _labels_at_edge(labels: np.ndarray) -> set[int]:
    found: set[int] = set()
    for axis in range(3):
        along = np.moveaxis(labels, axis, 0)
        for slab in (along[:EDGE], along[-EDGE:]):
            found.update(np.unique(slab).tolist())
    return found
