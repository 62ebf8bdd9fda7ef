"""The organ masks that a chain of reasoning needs: given, or segmented as organs are named."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from tumorchain_jax.anatomy.organs import MERGE, ORGANS, TOTALSEGMENTATOR, merge_labels
from tumorchain_jax.scan.preprocess import GridTransform, resample_labels
from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.segmentation.statistics import OrganStatistics, organ_statistics
from tumorchain_jax.segmentation.total import Part, TotalSegmenter

MERGED = dict(enumerate(ORGANS))
NO_MASK = (
    "no organ mask: the answer rests on the global view alone. No organ can be looked at again, "
    "located or classified. Give a TotalSegmentator v2 `total` label map, or a segmenter"
)
NOTHING = "the segmenter found no organ in this scan"
PREDICTED = "the organ masks are a machine's ({}): nobody has checked them"


@dataclass(frozen=True)
class MaskOrigin:
    """Who says where the organs are.

    Attributes:
        kind: a label map that was given, one that a network made, or none.
        source: the file's name, or the segmenter's.
        weights: of what ran, by part: their SHA-256, or another program's version.
    """

    kind: Literal["given", "predicted", "none"]
    source: str
    weights: Mapping[str, str]


@dataclass(frozen=True)
class Segmenting:
    """A scan whose organs are segmented when they are named.

    Attributes:
        labels: TotalSegmentator ids on the scan's voxels, as far as they are known.
        transform: where the model's grid lies.
    """

    ct: Volume
    labels: Volume
    transform: GridTransform
    segmenter: TotalSegmenter


@dataclass(frozen=True)
class OrganMasks:
    """Where a scan's organs are, as far as it is known.

    Attributes:
        merged: uint8 `[D, H, W]`, merged labels (Table 10) on the model's grid.
        origin: who says so.
        statistics: on the scan's own voxels, of each merged label that has some.
        segmenting: makes more; None once there is no more to be had.
    """

    merged: np.ndarray
    origin: MaskOrigin
    statistics: Mapping[str, OrganStatistics]
    segmenting: Segmenting | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader must know of them, one line each."""
        if self.origin.kind == "none":
            return (NO_MASK,)
        if self.origin.kind == "given":
            return ()
        return (PREDICTED.format(self.origin.source), *(() if self.statistics else (NOTHING,)))

    def missing_models(self, organs: Collection[int]) -> tuple[Part, ...]:
        """What would have to run to find these merged labels, and has not."""
        if self.segmenting is None:
            return ()
        names = [TOTALSEGMENTATOR[i] for i, label in enumerate(MERGE) if i and label in organs]
        found = self.segmenting.segmenter.finding(names)
        return tuple(part for part in found if part.name not in self.origin.weights)

    def showing(self, organs: Collection[int]) -> "OrganMasks":
        """These, and all that the parts find that these merged labels need; itself if none does."""
        parts, state = self.missing_models(organs), self.segmenting
        if state is None or not parts:
            return self
        found = state.segmenter.run(state.ct, parts)
        # As in a run of all parts: the larger id is the later part's.
        labels = replace(found, voxels=np.maximum(state.labels.voxels, found.voxels))
        weights = {**self.origin.weights, **{part.name: part.identity() for part in parts}}
        origin = MaskOrigin("predicted", state.segmenter.name, weights)
        complete = len(weights) == len(state.segmenter.parts)
        masks = _masks(state.ct, labels, state.transform, origin)
        return masks if complete else replace(masks, segmenting=replace(state, labels=labels))


def given_masks(ct: Volume, labels: Volume, transform: GridTransform) -> OrganMasks:
    """Those of a label map: TotalSegmentator ids on the scan's voxels."""
    return _masks(ct, labels, transform, MaskOrigin("given", Path(labels.source).name, {}))


def lazy_masks(ct: Volume, transform: GridTransform, segmenter: TotalSegmenter) -> OrganMasks:
    """None, until organs are named that the segmenter finds."""
    labels = Volume(np.zeros(ct.shape, np.uint8), ct.affine)
    empty = _masks(ct, labels, transform, MaskOrigin("none", segmenter.name, {}))
    more = Segmenting(ct, labels, transform, segmenter) if segmenter.parts else None
    return replace(empty, segmenting=more)


def _masks(ct: Volume, labels: Volume, transform: GridTransform, origin: MaskOrigin) -> OrganMasks:
    merged = merge_labels(resample_labels(labels, transform))
    measured = organ_statistics(ct, merge_labels(labels.voxels), MERGED)
    organs = {name: each for name, each in measured.items() if each.voxels and name != ORGANS[0]}
    return OrganMasks(merged, origin, organs)
