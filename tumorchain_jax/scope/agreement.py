"""Do the organs of a label map lie where the scan shows them?"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, UInt8

from tumorchain_jax.scope.coarse import CoarseScan
from tumorchain_jax.scope.findings import Finding
from tumorchain_jax.scope.organ_table import OrganTable
from tumorchain_jax.scope.position import LUNGS

# TotalSegmentator v2 ids by what they are made of; hollow organs may hold anything.
BONES = (*range(25, 51), *range(69, 79), 91, *range(92, 117))
SOLID = (1, 2, 3, 5, 7, 51, 52, 63, *range(80, 90))
# The same organs in the ids of version 1 (its class_map_part_* of 2022).
V1_LUNGS, V1_BONES = tuple(range(13, 18)), (*range(18, 42), *range(58, 93))
V1_SOLID = (1, 2, 3, 5, 7, 8, 10, 44, 45, 46, 47, 48, *range(94, 104))
V1_GREATEST, V1_GAIN, MAX_V1_MISFIT = 104, 0.1, 0.15

# HU of each kind, wide enough for every phase of contrast, fatty liver and pneumonia.
LUNG_HU, SOLID_HU, BONE_HU = (-1100.0, -300.0), (-50.0, 450.0), (50.0, 3100.0)
# Share of the voxels of a kind that may have other HU, on a grid of 5 mm where edges are mixed: at
# most 0.09 in phantoms with their own map; over 0.4 in bones or solid organs with another's.
MAX_MISFIT, FEWEST = 0.35, 40
# Share of all labelled voxels that may lie outside the body: none does in phantoms.
MAX_OUTSIDE = 0.05
# Contrast at the borders of organs, measured in a window of HU, over that at the borders of the
# same map displaced by 20 mm, in the least favourable of six directions: 1.66 or more in phantoms
# with their own map, 0.79 to 1.02 with that of another patient.
EDGE_HU, SHIFT_MM, FEWEST_BORDERS = (-250.0, 300.0), 20.0, 300
MIN_EDGE, WEAK_EDGE = 1.05, 1.2

OWN_MAP = "give the label map made from this scan"
KINDS = ("lungs", "solid organs", "bones")


def check_agreement(table: OrganTable, coarse: CoarseScan) -> Iterator[Finding]:
    """Find a label map of other ids, of another scan, displaced, turned, or of air."""
    labels = table.labels
    if not labels.any():
        return
    wrong = _misfit(_kinds(labels, LUNGS, SOLID, BONES), table.hu)
    if labels.max() <= V1_GREATEST:
        v1 = _misfit(_kinds(labels, V1_LUNGS, V1_SOLID, V1_BONES), table.hu)
        if wrong.total - v1.total > V1_GAIN and v1.total < MAX_V1_MISFIT:
            found = f"ids that fit version 1 ({v1.total:.0%} misplaced) better than 2"
            found += f" ({wrong.total:.0%})"
            hint = "convert the map, or segment the scan with version 2"
            yield Finding(True, "ids", found, "ids of TotalSegmentator v2, task `total`", hint)
    for kind, share in zip(KINDS, wrong.shares, strict=True):
        if share > MAX_MISFIT:
            found = f"{share:.0%} of the voxels of {kind} with HU that they cannot have"
            yield Finding(True, "mask", found, f"at most {MAX_MISFIT:.0%}", OWN_MAP)
    outside = float(np.mean(~coarse.trunk[labels > 0]))
    if outside > MAX_OUTSIDE:
        found = f"{outside:.0%} of the organs outside the body"
        yield Finding(True, "mask", found, f"at most {MAX_OUTSIDE:.0%}", OWN_MAP)
    edge = _edge_ratio(labels, table.hu, coarse.spacing)
    if edge < WEAK_EDGE:
        found = f"{edge:.2f} times the contrast at organ borders that a displaced map has"
        expected = f"over {WEAK_EDGE:g}"
        yield Finding(edge < MIN_EDGE, "mask", found, expected, OWN_MAP)


class Misfit(NamedTuple):
    """Shares of voxels with HU that they cannot have: of each kind, and of all; NaN for too few."""

    shares: tuple[float, ...]
    total: float


def _kinds(labels: UInt8[np.ndarray, "..."], *ids_of_kinds: tuple[int, ...]) -> np.ndarray:
    """Return 1, 2, 3 for voxels of lungs, solid organs and bones, else 0."""
    lookup = np.zeros(256, np.uint8)
    for kind, ids in enumerate(ids_of_kinds, start=1):
        lookup[list(ids)] = kind
    return lookup[labels]


def _misfit(kinds: np.ndarray, hu: np.ndarray) -> Misfit:
    wrong, counts = [], []
    for kind, (low, high) in enumerate((LUNG_HU, SOLID_HU, BONE_HU), start=1):
        inside = hu[kinds == kind]
        wrong.append(int(((inside < low) | (inside > high)).sum()))
        counts.append(inside.size)
    shares = tuple(w / n if n >= FEWEST else np.nan for w, n in zip(wrong, counts, strict=True))
    return Misfit(shares, sum(wrong) / sum(counts) if sum(counts) >= FEWEST else np.nan)


def _edge_ratio(
    labels: UInt8[np.ndarray, "D H W"], hu: Float[np.ndarray, "D H W"], spacing: np.ndarray
) -> float:
    """Return the contrast at the map's borders over the greatest of the displaced maps'."""
    clipped = hu.clip(*EDGE_HU)
    own, count = _edge_contrast(labels, clipped)
    if count < FEWEST_BORDERS:
        return np.inf
    displaced = [0.0]
    for axis, step in enumerate(np.maximum(1, np.rint(SHIFT_MM / spacing)).astype(int)):
        if step >= labels.shape[axis] // 2:
            continue
        length = labels.shape[axis] - step
        for here, there in ((0, step), (step, 0)):
            index = np.arange(length)
            moved = labels.take(index + here, axis), clipped.take(index + there, axis)
            contrast, count = _edge_contrast(*moved)
            displaced.append(contrast if count >= FEWEST_BORDERS else 0.0)
    return own / max(displaced) if max(displaced) else np.inf


def _edge_contrast(labels: np.ndarray, hu: np.ndarray) -> tuple[float, int]:
    """Return the mean difference in HU across borders of labels, and how many there are."""
    total, count = 0.0, 0
    for axis in range(3):
        differs = np.diff(labels, axis=axis) != 0
        total += float(np.abs(np.diff(hu, axis=axis))[differs].sum())
        count += int(differs.sum())
    return total / max(count, 1), count
