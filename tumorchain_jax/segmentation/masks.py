"""Organ masks for a chain of reasoning: given, or segmented when organs are named."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from tumorchain_jax.anatomy.organs import MERGE, ORGANS, TOTALSEGMENTATOR, merge_labels
from tumorchain_jax.scan.preprocess import GridTransform, resample_labels
from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.scope.check import check_labels
from tumorchain_jax.scope.coarse import coarse_scan
from tumorchain_jax.segmentation.statistics import OrganStatistics, organ_statistics
from tumorchain_jax.segmentation.total import OrganModel, TotalSegmenter

MERGED = dict(enumerate(ORGANS))
NO_MASK = (
    "no organ mask: the answer rests on the global view alone. No organ can be looked at again, "
    "located or classified. Give a TotalSegmentator v2 `total` label map, or a segmenter"
)
IMPLAUSIBLE = "the organ masks are implausible: {}"
NOTHING = "the segmenter found no organ in this scan"
PREDICTED = "the organ masks are a machine's ({}): nobody has checked them"


@dataclass(frozen=True)
class MaskOrigin:
    """Where the organ masks come from.

    Attributes:
        kind: a label map that was given, one that a network made, or none.
        source: the file's name, or the segmenter's.
        weights: identity of each model that ran, by name: the SHA-256 of its weights, or another
            program's version.
    """

    kind: Literal["given", "predicted", "none"]
    source: str
    weights: Mapping[str, str]


@dataclass(frozen=True)
class PendingSegmentation:
    """A scan whose organs are segmented when they are named.

    Attributes:
        labels: TotalSegmentator ids found so far, on the scan's voxels.
        transform: place of the model grid in the patient.
    """

    ct: Volume
    labels: Volume
    transform: GridTransform
    segmenter: TotalSegmenter


@dataclass(frozen=True)
class OrganMasks:
    """Organ masks of a scan, as far as they have been segmented.

    Attributes:
        merged: uint8 `[D, H, W]`, merged labels (Table 10) on the model's grid.
        origin: where they come from.
        statistics: of each merged label that has voxels, on the scan's own grid.
        pending: what can still be segmented; None if nothing.
        labels: TotalSegmentator ids on the scan's voxels, of masks that `ensure` has just made.
        doubts: what is implausible about masks that were predicted, one line each.
    """

    merged: np.ndarray
    origin: MaskOrigin
    statistics: Mapping[str, OrganStatistics]
    pending: PendingSegmentation | None = None
    labels: Volume | None = None
    doubts: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader must know about the masks, one line each."""
        if self.origin.kind == "none":
            return (NO_MASK,)
        if self.origin.kind == "given":
            return ()
        nothing = () if self.statistics else (NOTHING,)
        return (PREDICTED.format(self.origin.source), *nothing, *self.doubts)

    def missing_models(self, organs: Collection[int]) -> tuple[OrganModel, ...]:
        """Return the models that find these merged labels and have not run."""
        if self.pending is None:
            return ()
        names = [TOTALSEGMENTATOR[i] for i, label in enumerate(MERGE) if i and label in organs]
        models = self.pending.segmenter.models_for(names)
        return tuple(model for model in models if model.name not in self.origin.weights)

    def ensure(self, organs: Collection[int]) -> "OrganMasks":
        """Return masks that include these merged labels; the same object if no model has to run."""
        models, pending = self.missing_models(organs), self.pending
        if pending is None or not models:
            return self
        found = pending.segmenter.run(pending.ct, models)
        # As in a run of all models: the larger id is the later model's.
        labels = replace(found, voxels=np.maximum(pending.labels.voxels, found.voxels))
        weights = {**self.origin.weights, **{model.name: model.identity() for model in models}}
        origin = MaskOrigin("predicted", pending.segmenter.name, weights)
        complete = len(weights) == len(pending.segmenter.models)
        masks = _masks(pending.ct, labels, pending.transform, origin)
        findings = check_labels(labels, coarse_scan(pending.ct))
        doubts = tuple(map(IMPLAUSIBLE.format, findings))
        left = None if complete else replace(pending, labels=labels)
        return replace(masks, pending=left, labels=labels, doubts=doubts)


def given_masks(ct: Volume, labels: Volume, transform: GridTransform) -> OrganMasks:
    """Make the masks of a label map: TotalSegmentator ids on the scan's voxels."""
    return _masks(ct, labels, transform, MaskOrigin("given", Path(labels.source).name, {}))


def lazy_masks(ct: Volume, transform: GridTransform, segmenter: TotalSegmenter) -> OrganMasks:
    """Make masks that are empty until organs are named that the segmenter finds."""
    labels = Volume(np.zeros(ct.shape, np.uint8), ct.affine)
    empty = _masks(ct, labels, transform, MaskOrigin("none", segmenter.name, {}))
    pending = PendingSegmentation(ct, labels, transform, segmenter) if segmenter.models else None
    return replace(empty, pending=pending)


def _masks(ct: Volume, labels: Volume, transform: GridTransform, origin: MaskOrigin) -> OrganMasks:
    merged = merge_labels(resample_labels(labels, transform))
    measured = organ_statistics(ct, merge_labels(labels.voxels), MERGED)
    organs = {name: each for name, each in measured.items() if each.voxels and name != ORGANS[0]}
    return OrganMasks(merged, origin, organs)
