"""Results as DICOM objects of the scan's own patient and study, for an image archive."""

from collections.abc import Iterable
from io import BytesIO
from pathlib import Path

from pydicom.dataset import Dataset

from tumorchain_jax.anatomy.organs import TOTALSEGMENTATOR
from tumorchain_jax.dicom.device import Device
from tumorchain_jax.dicom.extra import check_extra
from tumorchain_jax.dicom.secondary_capture import secondary_captures
from tumorchain_jax.dicom.segmentation import Algorithm, segmentation
from tumorchain_jax.dicom.source import SourceSeries, read_source
from tumorchain_jax.dicom.structured_report import Findings, structured_report
from tumorchain_jax.report.folder import KEY_IMAGES, SEG, SR
from tumorchain_jax.report.key_pictures import key_pictures
from tumorchain_jax.report.record import ReportRecord
from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.segmentation.statistics import organ_statistics

ORGANS = {number: name for number, name in enumerate(TOTALSEGMENTATOR) if number}
GIVEN = "label map that was given"


def check_sources(scans: Iterable[Path]) -> None:
    """Refuse, before any work is done, scans whose results cannot be DICOM objects.

    Raises:
        InputError: highdicom is not installed; a scan is no DICOM series, or lacks an identifier.
    """
    check_extra()
    for scan in scans:
        read_source(scan)


def report_files(report: ReportRecord, scan: Path) -> dict[str, bytes]:
    """Make the objects of a report: a SEG if there are masks, the SR, and the key images.

    Args:
        scan: folder or zip archive of the series that the report is about.

    Returns:
        the files' content by their name in the report's folder.

    Raises:
        InputError: as `check_sources`, or the series is another one now.
    """
    source = read_source(scan)
    model = Device(report.model, report.weights_sha256)
    seg, organs = None, {}
    if report.ct is not None and report.labels is not None and report.labels.voxels.any():
        given = report.masks is None or report.masks.kind == "given"
        if given or report.masks is None:
            device = Device(GIVEN, "unknown")
        else:
            device = segmenter_device(report.masks.source, report.masks.weights.values())
        kind: Algorithm = "SEMIAUTOMATIC" if given else "AUTOMATIC"
        seg = segmentation(source, report.labels, ORGANS, device, kind)
        measured = organ_statistics(report.ct, report.labels.voxels, ORGANS)
        organs = {
            name: (each.volume_ml, each.mean_hu)
            for name, each in measured.items()
            if each.mean_hu is not None
        }
    found = Findings(
        report.question,
        [each.text for each in report.rounds],
        report.headline,
        [*report.forced, *report.warnings],
        organs,
    )
    files = {} if seg is None else {SEG: _bytes(seg)}
    files[SR] = _bytes(structured_report(source, found, model, seg))
    images = secondary_captures(source, key_pictures(report), model)
    return files | {name: _bytes(image) for name, image in zip(KEY_IMAGES, images, strict=False)}


def labels_file(
    source: SourceSeries, labels: Volume, segmenter: str, weights: Iterable[str]
) -> bytes:
    """Make the SEG of a label map that a segmenter made.

    Raises:
        InputError: the label map is empty.
    """
    return _bytes(segmentation(source, labels, ORGANS, segmenter_device(segmenter, weights)))


def segmenter_device(name: str, weights: Iterable[str]) -> Device:
    """Return a segmenter as a device; of several models the first one's weights stand for all."""
    return Device(name, next(iter(weights), "unknown"))


def _bytes(made: Dataset) -> bytes:
    buffer = BytesIO()
    made.save_as(buffer, enforce_file_format=True)
    return buffer.getvalue()
