"""Segment scans to files: which label maps to make, and how each is made and written."""

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from mimetypes import MimeTypes
from pathlib import Path
from typing import Any

import numpy as np

from tumorchain_jax.anatomy.organs import TOTALSEGMENTATOR
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import atomic_directory, write_file
from tumorchain_jax.dicom.source import read_source
from tumorchain_jax.inference.case_list import NIFTI, list_cases, scan_name
from tumorchain_jax.inference.dicom_files import labels_file
from tumorchain_jax.report.contact_sheet import contact_sheet, png
from tumorchain_jax.report.folder import SEG
from tumorchain_jax.scan.read import read_ct
from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.scope.check import check_labels, check_scan
from tumorchain_jax.scope.coarse import coarse_scan
from tumorchain_jax.scope.findings import enforce
from tumorchain_jax.segmentation.label_file import write_labels
from tumorchain_jax.segmentation.masks import IMPLAUSIBLE
from tumorchain_jax.segmentation.statistics import organ_statistics, totalsegmentator_record
from tumorchain_jax.segmentation.total import TotalSegmenter

CLASSES = dict(enumerate(TOTALSEGMENTATOR))
del CLASSES[0]
STATISTICS, PREVIEW = "statistics.json", "preview.png"
SIDE_FILES = (STATISTICS, SEG, PREVIEW)
NO_SEG = "no organ was found, so there is no DICOM SEG"
OTHER_ENDINGS = (".gz", ".mha", ".mhd", ".nrrd", ".mgz", ".dcm", ".img", ".hdr", ".npy", ".npz")
"""Endings of volume files that are not written here: nobody means a folder of such a name."""


@dataclass(frozen=True)
class Job:
    """One scan to segment.

    Attributes:
        output: a `.nii.gz` or `.nii` file for one label map, or a folder for one file per organ.
        overwrite: an earlier label map, or a folder of nothing but organs, may be there.
        more: names of the files that are written beside it: of `SIDE_FILES`.
    """

    ct: Path
    output: Path
    overwrite: bool = False
    more: tuple[str, ...] = ()

    @property
    def one_map(self) -> bool:
        """Whether all organs go to one file."""
        return self.output.name.endswith(NIFTI)

    def beside(self, name: str) -> Path:
        """The path of a side file: in the folder, or named after the label map."""
        if not self.one_map:
            return self.output / name
        return self.output.with_name(f"{scan_name(self.output)}.{name}")


def list_jobs(
    inputs: Sequence[Path],
    output: Path,
    one_map: bool,
    overwrite: bool = False,
    more: tuple[str, ...] = (),
) -> list[Job]:
    """List the label maps that a command line asks for.

    Args:
        inputs: as of `list_cases`.
        output: a NIfTI file, for one scan; or a folder that gets NAME.nii.gz of each scan with
            `one_map`, else ORGAN.nii.gz of the one scan, or NAME/ORGAN.nii.gz of several.
        overwrite: replace earlier outputs.
        more: names of side files of each, of `SIDE_FILES`.

    Raises:
        InputError: as `list_cases`, or one file for several scans, or a file that is not NIfTI.
    """
    if _is_other_file(output.name):
        found, expected = f"a name ending in {output.suffix}", f"{' or '.join(NIFTI)}, or a folder"
        raise InputError(output, "-o", found, expected, "name another")
    cases = list_cases(inputs, [], output)
    if output.name.endswith(NIFTI):
        if len(cases) != 1:
            found, hint = f"one file for {len(cases)} scans", "name a folder"
            raise InputError(output, "-o", found, "one scan, or a folder", hint)
        return [Job(cases[0].ct, output, overwrite, more)]
    return [
        Job(
            case.ct,
            output / f"{case.name}.nii.gz" if one_map else case.output,
            overwrite,
            more,
        )
        for case in cases
    ]


def _is_other_file(name: str) -> bool:
    """Whether a name is that of a file (a picture, a text), but not of NIfTI."""
    if name.endswith(NIFTI):
        return False
    known, _ = MimeTypes().guess_type(name.lower())
    return known is not None or name.lower().endswith(OTHER_ENDINGS)


def check_organs(segmenter: TotalSegmenter, organs: Iterable[str]) -> None:
    """Refuse names of no organ, and of organs that these weights do not find.

    Raises:
        InputError: for the first such name.
    """
    for name in organs:
        if name not in CLASSES.values():
            close = get_close_matches(name.lower(), CLASSES.values(), n=3)
            hint = f"did you mean {' or '.join(close)}?" if close else "see --list-classes"
            hint = "put spaces between names" if "," in name else hint
            raise InputError("command line", "-rs", repr(name), "an organ of `total`", hint)
        if name not in segmenter.organs:
            found = ", ".join(sorted(segmenter.organs))
            hint = "name others, or other weights"
            raise InputError(segmenter.name, "-rs", name, f"what it finds: {found}", hint)


def check_job(job: Job, scans: Sequence[Path]) -> None:
    """Refuse, before any work is done, an output that must not or cannot be written.

    Args:
        scans: of all jobs.

    Raises:
        InputError: the output exists and `job.overwrite` is off; it is one of the scans, or a
            folder with other files, which overwriting would delete; its folder cannot be written.
    """
    output = job.output.resolve()
    for scan in scans:
        inside = not job.one_map and output in scan.resolve().parents
        if inside or scan.resolve() == output:
            raise _refusal(job.output, f"the scan {scan}", "another")
    for path in (job.output, *map(job.beside, {STATISTICS, *job.more})):
        if path.exists() and not job.overwrite:
            raise _refusal(path, "an existing one", "a new one (or --overwrite)")
    if job.output.exists() and job.output.is_dir() == job.one_map:
        found, expected = ("a folder", "a file") if job.one_map else ("a file", "a folder")
        raise _refusal(job.output, found, expected)
    if job.output.is_dir():
        ours = {*SIDE_FILES, *(f"{name}.nii.gz" for name in CLASSES.values())}
        others = sorted(path.name for path in job.output.iterdir() if path.name not in ours)
        if others:
            raise _refusal(job.output, f"{others[0]}, which is no organ", "masks of organs alone")
    parent = next(path for path in job.output.absolute().parents if path.exists())
    if not (parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)):
        raise _refusal(parent, "a place that cannot be written", "a folder to write to")


def _refusal(path: Path, found: str, expected: str) -> InputError:
    return InputError(path, "output", found, expected, "name another")


def segment(
    segmenter: TotalSegmenter,
    job: Job,
    organs: Sequence[str] | None = None,
    force: bool = False,
) -> dict[str, Any]:
    """Segment one scan and write what was found.

    Args:
        organs: names; None: all that the segmenter finds.
        force: segment a scan that cannot be an abdominal CT.

    Returns:
        scan, output, segmenter, weights (model name -> identity), found (names), warnings, forced
        (findings that would have refused the scan), statistics, seconds.

    Raises:
        InputError: the scan cannot be used, or is implausible and not forced, or the output cannot
            be written.
    """
    started = time.monotonic()
    ct = read_ct(job.ct)
    coarse = coarse_scan(ct)
    assessed = enforce(ct.source, check_scan(ct, coarse), force)
    labels = segmenter(ct, organs)
    doubts = map(IMPLAUSIBLE.format, check_labels(labels, coarse))
    wanted = segmenter.organs if organs is None else organs
    names = {number: name for number, name in CLASSES.items() if name in wanted}
    weights = {model.name: model.identity() for model in segmenter.models_for(wanted)}
    files: dict[str, bytes] = {}
    record, lacking = None, []
    if STATISTICS in job.more:
        record = totalsegmentator_record(organ_statistics(ct, labels.voxels, names))
        files[STATISTICS] = f"{json.dumps(record, indent=4)}\n".encode()
    if PREVIEW in job.more:
        files[PREVIEW] = png(contact_sheet(ct, labels))
    if SEG in job.more and labels.voxels.any():
        source = read_source(job.ct)
        files[SEG] = labels_file(source, labels, segmenter.name, weights.values())
    elif SEG in job.more:
        lacking = [NO_SEG]
    try:
        _write(job, labels, names, segmenter.name, files)
    except OSError as error:
        found = error.strerror or type(error).__name__
        raise _refusal(job.output, found, "a place to write to") from error
    facts: dict[str, Any] = {
        "scan": str(job.ct),
        "output": str(job.output),
        "segmenter": segmenter.name,
        "weights": weights,
        "warnings": [*ct.warnings, *assessed.warnings, *doubts, *lacking],
        "forced": list(assessed.forced),
        "found": [names[number] for number in np.unique(labels.voxels).tolist() if number],
    }
    if record is not None:
        facts["statistics"] = record
    return facts | {"seconds": round(time.monotonic() - started, 3)}


def _write(
    job: Job,
    labels: Volume,
    names: Mapping[int, str],
    segmenter: str,
    files: Mapping[str, bytes],
) -> None:
    """Write all files; an earlier output, its side files included, is replaced as a whole."""
    job.output.parent.mkdir(parents=True, exist_ok=True)
    if job.one_map:
        write_labels(job.output, labels, names, segmenter)
        for name in SIDE_FILES:
            if name in files:
                write_file(job.beside(name), files[name])
            elif job.overwrite:
                job.beside(name).unlink(missing_ok=True)
        return
    with atomic_directory(job.output.resolve(), job.overwrite) as folder:
        for number, name in names.items():
            mask = Volume((labels.voxels == number).astype(np.uint8), labels.affine)
            write_labels(folder / f"{name}.nii.gz", mask, {1: name}, segmenter)
        for name, content in files.items():
            write_file(folder / name, content)
