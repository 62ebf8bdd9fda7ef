"""A scan made ready for questions: read, preprocessed, its organs located."""

import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from nibabel.spatialimages import SpatialImage

from tumorchain_jax.anatomy.organs import DIGESTIVE
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.reasoning.crops import ScanCrops, cut_crops, place_crops
from tumorchain_jax.reasoning.organ_cells import CropLabels, OrganCells, organ_cells
from tumorchain_jax.scan.checks import check_ct, check_mask
from tumorchain_jax.scan.preprocess import PreparedScan, preprocess
from tumorchain_jax.scan.read import align_labels, from_array, from_nibabel, read_ct, read_labels
from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.scope.check import check_labels, check_scan
from tumorchain_jax.scope.coarse import coarse_scan
from tumorchain_jax.scope.findings import enforce
from tumorchain_jax.segmentation.label_file import made_by
from tumorchain_jax.segmentation.masks import OrganMasks, given_masks, lazy_masks
from tumorchain_jax.segmentation.total import TotalSegmenter
from tumorchain_jax.weights.model_folder import ModelFolder

MADE = "the label map says that it was segmented by {}: a machine's, if nobody has fixed it"
Scan = str | Path | SpatialImage | Volume | tuple[np.ndarray, np.ndarray]
"""A path (NIfTI file or DICOM folder), a nibabel image, or (HU array, affine to RAS+ mm)."""


@dataclass(frozen=True)
class PreparedCase:
    """A scan in its model shape, with its organs.

    Attributes:
        source: the scan's path as it was given, or what else it came from.
        scan: the model's input, and where it lies in the patient.
        cells: the ROI cells of each organ.
        warnings: about the scan and the label map, one line each.
        seconds: spent on each stage so far.
        masks: the organ masks that `cells` were made from; None where only the cells are stored.
        crops: around organs in the masks; None for a model that reads none.
        forced: findings that would have refused the scan or its mask, one line each.
        ct: the scan itself; None where only its model grid is stored.
        labels: TotalSegmentator v2 ids on its voxels; None without masks.
    """

    source: str
    scan: PreparedScan
    cells: OrganCells
    warnings: tuple[str, ...]
    seconds: dict[str, float]
    masks: OrganMasks | None = None
    crops: ScanCrops | None = None
    forced: tuple[str, ...] = ()
    ct: Volume | None = None
    labels: Volume | None = None


def prepare(
    scan: Scan,
    mask: Scan | None,
    checkpoint: ModelFolder,
    segmenter: TotalSegmenter | None,
    force: bool = False,
) -> PreparedCase:
    """Read and preprocess a scan; read its mask, or segment the digestive organs.

    Args:
        mask: TotalSegmentator v2 `total` label map of the scan; None: `segmenter` makes one.
        checkpoint: states the preprocessing and the token grid.
        segmenter: required without a mask.
        force: use a scan that cannot be an abdominal CT, or a mask that cannot belong to it.

    Raises:
        InputError: the scan or the mask cannot be used, or is implausible and not forced.
    """
    started = time.monotonic()
    ct = _volume(scan)
    warnings = ct.warnings + check_ct(ct)
    coarse = coarse_scan(ct)
    assessed = enforce(ct.source, check_scan(ct, coarse), force)
    given = None
    if mask is not None:
        given, about_mask = _read_mask(mask, ct)
        warnings += about_mask
        assessed += enforce(given.source, check_labels(given, coarse), force)
    warnings += assessed.warnings
    read_done = time.monotonic()
    prepared = preprocess(ct, checkpoint.preprocess)
    if given is not None:
        masks = given_masks(ct, given, prepared.transform)
    else:
        assert segmenter is not None, "a scan without a mask needs a segmenter"
        masks = lazy_masks(ct, prepared.transform, segmenter)
    labels = given or Volume(np.zeros(ct.shape, np.uint8), ct.affine)
    crops = _cut(ct, labels, masks, prepared, checkpoint)
    cells = _cells(masks, crops, checkpoint)
    seconds = {"read": read_done - started, "preprocess": time.monotonic() - read_done}
    warnings += prepared.warnings
    case = PreparedCase(
        ct.source, prepared, cells, warnings, seconds, masks, crops, assessed.forced, ct, given
    )
    return ensure_organs(case, DIGESTIVE, checkpoint)


def ensure_organs(
    case: PreparedCase, organs: Collection[int], checkpoint: ModelFolder
) -> PreparedCase:
    """Return the case with these organs segmented; the same object if nothing had to run.

    Args:
        organs: merged labels (Table 10).
    """
    started = time.monotonic()
    masks = case.masks and case.masks.ensure(organs)
    if masks is None or masks is case.masks:
        return case
    spent = case.seconds.get("segment", 0.0) + time.monotonic() - started
    seconds = case.seconds | {"segment": spent}
    assert case.masks is not None
    assert case.masks.pending is not None
    assert masks.labels is not None, "masks that a segmenter has just made have their label map"
    crops = _cut(case.masks.pending.ct, masks.labels, masks, case.scan, checkpoint)
    cells = _cells(masks, crops, checkpoint)
    return replace(
        case,
        masks=replace(masks, labels=None),
        cells=cells,
        crops=crops,
        seconds=seconds,
        labels=masks.labels,
    )


def _read_mask(mask: Scan, ct: Volume) -> tuple[Volume, tuple[str, ...]]:
    warnings: tuple[str, ...] = ()
    if isinstance(mask, str | Path):
        labels = read_labels(mask, ct)
        if Path(mask).is_file() and (segmenter := made_by(Path(mask))):
            warnings = (MADE.format(segmenter),)
    else:
        labels = align_labels(_volume(mask), ct)
    warnings += check_mask(labels, ct)
    if not labels.voxels.any():
        hint = "give the scan's own label map, or leave out the mask: the scan is segmented then"
        raise InputError(labels.source, "labels", "no organ at all", "organs", hint)
    return labels, warnings


def _cut(
    ct: Volume, labels: Volume, masks: OrganMasks, scan: PreparedScan, checkpoint: ModelFolder
) -> ScanCrops | None:
    """Cut the crops that the model reads, if any, around the organs found so far."""
    if checkpoint.model.crop is None:
        return None
    places = place_crops(ct, masks.merged, scan.transform, checkpoint.model.crop)
    return cut_crops(ct, labels, scan.transform, places, checkpoint.preprocess)


def _cells(masks: OrganMasks, crops: ScanCrops | None, checkpoint: ModelFolder) -> OrganCells:
    found = crops and CropLabels(crops.labels, crops.world)
    return organ_cells(masks.merged, checkpoint.model.roi, found)


def _volume(scan: Scan) -> Volume:
    if isinstance(scan, Volume):
        return scan
    if isinstance(scan, str | Path):
        return read_ct(scan)
    if isinstance(scan, SpatialImage):
        return from_nibabel(scan)
    return from_array(*scan)
