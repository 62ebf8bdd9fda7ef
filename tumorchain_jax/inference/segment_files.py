"""`tumorchain segment`: which label maps are to be made, and how each is made and written."""

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from tumorchain_jax.anatomy.organs import TOTALSEGMENTATOR
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import write_file
from tumorchain_jax.inference.case_list import NIFTI, list_cases, scan_name
from tumorchain_jax.scan.read import read_ct
from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.segmentation.label_file import write_labels
from tumorchain_jax.segmentation.statistics import organ_statistics, totalsegmentator_record
from tumorchain_jax.segmentation.total import TotalSegmenter

CLASSES = dict(enumerate(TOTALSEGMENTATOR))
del CLASSES[0]
OTHER_ENDINGS = (".gz", ".mha", ".mhd", ".nrrd", ".mgz", ".dcm", ".img", ".hdr", ".npy", ".npz")
"""Of files that are not written here: nobody means a folder of such a name."""


@dataclass(frozen=True)
class Job:
    """One scan to segment.

    Attributes:
        output: a `.nii.gz` file for one label map, or a folder for a file an organ.
    """

    ct: Path
    output: Path

    @property
    def one_map(self) -> bool:
        """Whether all organs go to one file."""
        return self.output.name.endswith(NIFTI)

    @property
    def masks(self) -> dict[str, Path]:
        """The file of each organ, where each has one."""
        return {name: self.output / f"{name}.nii.gz" for name in CLASSES.values()}

    @property
    def statistics(self) -> Path:
        """Where the statistics go."""
        if not self.one_map:
            return self.output / "statistics.json"
        return self.output.with_name(f"{scan_name(self.output)}.statistics.json")


def list_jobs(inputs: Sequence[Path], output: Path, one_map: bool) -> list[Job]:
    """What a command line asks for.

    Args:
        inputs: as of `list_cases`.
        output: a NIfTI file, for one scan; a folder that gets NAME.nii.gz of each scan with
            `one_map`, or else ORGAN.nii.gz of the one scan, or NAME/ORGAN.nii.gz of several.

    Raises:
        InputError: as `list_cases`, or one file for several scans, or a file that is not NIfTI.
    """
    if output.name.endswith(OTHER_ENDINGS) and not output.name.endswith(NIFTI):
        found, expected = f"a name ending in {output.suffix}", f"{' or '.join(NIFTI)}, or a folder"
        raise InputError(output, "-o", found, expected, "name another")
    cases = list_cases(inputs, [], output)
    if output.name.endswith(NIFTI):
        if len(cases) != 1:
            found, hint = f"one file for {len(cases)} scans", "name a folder"
            raise InputError(output, "-o", found, "one scan, or a folder", hint)
        return [Job(cases[0].ct, output)]
    if one_map:
        return [Job(case.ct, output / f"{scan_name(case.ct)}.nii.gz") for case in cases]
    return [Job(case.ct, case.output) for case in cases]


def check_organs(segmenter: TotalSegmenter, organs: Iterable[str]) -> None:
    """Refuse what no organ is called, and what these weights do not find.

    Raises:
        InputError: there is such a name.
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


def check_job(job: Job, scans: Sequence[Path], overwrite: bool) -> None:
    """Refuse, before any work is done, what must not or cannot be written.

    Args:
        scans: of all jobs.

    Raises:
        InputError: it is there and `overwrite` is off, it is a scan, or there is no place for it.
    """
    written = {path.resolve() for path in (job.output, *job.masks.values())}
    for scan in scans:
        if scan.resolve() in written:
            raise InputError(job.output, "output", f"the scan {scan}", "another", "name another")
    for path in (job.output, job.statistics):
        if path.exists() and not overwrite:
            expected = "a new one (or --overwrite)"
            raise InputError(path, "output", "an existing one", expected, "name another")
    if job.output.exists() and job.output.is_dir() == job.one_map:
        found, expected = ("a folder", "a file") if job.one_map else ("a file", "a folder")
        raise InputError(job.output, "output", found, expected, "name another")
    parent = next(path for path in job.output.absolute().parents if path.exists())
    if not (parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)):
        found = "a place that cannot be written"
        raise InputError(parent, "output", found, "a folder to write to", "name another")


def segment(
    segmenter: TotalSegmenter,
    job: Job,
    organs: Sequence[str] | None = None,
    statistics: bool = False,
) -> dict[str, Any]:
    """Segment one scan and write what was found.

    Args:
        organs: None: all that the segmenter finds.
        statistics: of each organ, in a file of their own.

    Returns:
        what was done.

    Raises:
        InputError: the scan cannot be used.
    """
    started = time.monotonic()
    ct = read_ct(job.ct)
    labels = segmenter(ct, organs)
    wanted = segmenter.organs if organs is None else organs
    names = {number: name for number, name in CLASSES.items() if name in wanted}
    record = None
    if statistics:
        record = totalsegmentator_record(organ_statistics(ct, labels.voxels, names))
    try:
        _write(job, labels, names, segmenter.name, record)
    except OSError as error:
        found, hint = error.strerror or type(error).__name__, "name another"
        raise InputError(job.output, "output", found, "a place to write to", hint) from error
    models = segmenter.models_for(wanted)
    facts: dict[str, Any] = {
        "scan": str(job.ct),
        "output": str(job.output),
        "segmenter": segmenter.name,
        "weights": {model.name: model.identity() for model in models},
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
    statistics: Mapping[str, Any] | None,
) -> None:
    """Write all files. What was there of another scan, or of other organs, does not stay."""
    stale = [job.statistics] if statistics is None else []
    if job.one_map:
        job.output.parent.mkdir(parents=True, exist_ok=True)
        write_labels(job.output, labels, names, segmenter)
    else:
        job.output.mkdir(parents=True, exist_ok=True)
        for number, name in names.items():
            mask = Volume((labels.voxels == number).astype(np.uint8), labels.affine)
            write_labels(job.masks[name], mask, {1: name}, segmenter)
        stale += [path for name, path in job.masks.items() if name not in names.values()]
    if statistics is not None:
        write_file(job.statistics, f"{json.dumps(statistics, indent=4)}\n".encode())
    for path in stale:
        path.unlink(missing_ok=True)
