"""`tumorchain segment`: organ masks of one or several CTs."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tumorchain_jax import NOTICE
from tumorchain_jax.cli.options import Command, use_compilation_cache
from tumorchain_jax.cli.printing import printer
from tumorchain_jax.cli.segmenter_flags import segmenter_hint, segmenter_of, takes_segmenter
from tumorchain_jax.cli.web_input import fetched, scan_input, store_files, takes_web
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.text import printable

if TYPE_CHECKING:
    from tumorchain_jax.cli.web_input import Fetched


def add_command(command: Command) -> None:
    """Add the `segment` subcommand."""
    segment = command("segment", _segment, "Make organ masks of one or several CTs")
    add = segment.add_argument
    add(
        "-i",
        "--input",
        type=scan_input,
        nargs="+",
        metavar="CT",
        help="NIfTI file, folder or zip archive of a DICOM series, address of a series on a "
        "DICOMweb server, or folder of scans, as for analyze",
    )
    takes_web(segment)
    add(
        "-o",
        "--output",
        type=Path,
        metavar="SEG",
        help="SEG.nii.gz: one label map; a folder: one file per organ, or with -ml one label map "
        "per scan",
    )
    add("-ta", choices=["total"], default="total", help="TotalSegmentator's task; there is one")
    add(
        "-rs",
        "--roi-subset",
        "--roi_subset",
        nargs="+",
        metavar="ORGAN",
        help="these organs alone; only the models that find them run",
    )
    add("-ml", "--ml", action="store_true", help="one label map instead of one file per organ")
    add(
        "-s",
        "--statistics",
        action="store_true",
        help="write statistics.json (for SEG.nii.gz: SEG.statistics.json) with each organ's volume "
        "in mm3 and mean intensity in HU; organs at the edge of the scan included",
    )
    add(
        "-ro",
        "--resampling-order",
        type=int,
        choices=range(6),
        default=1,
        help="order of the spline that resamples a scan for TotalSegmentator's weights; default: "
        "1, as TotalSegmentator since 2.16; before it was 3",
    )
    add("-lc", "--list-classes", action="store_true", help="print ids and names of the organs")
    takes_segmenter(segment, ["jax", "totalsegmentator"])
    add(
        "--force",
        action="store_true",
        help="segment a scan that cannot be an abdominal CT, such as a leg or noise, all the same",
    )
    add(
        "--dicom",
        action="store_true",
        help="of DICOM series: also write a DICOM SEG of the scan's own patient and study "
        "(SEG.segmentation.dcm, or segmentation.dcm in a folder of organs; extra dicom)",
    )
    add(
        "--preview",
        action="store_true",
        help="also write a contact sheet of the scan with the organs' outlines (SEG.preview.png, "
        "or preview.png in a folder of organs)",
    )
    add("--quiet", action="store_true", help="print nothing")
    add("--json", action="store_true", help="print results as JSON, a list for several CTs")
    add(
        "--overwrite",
        action="store_true",
        help="replace an earlier label map, or a folder that holds nothing but masks of organs",
    )


def _segment(options: argparse.Namespace) -> int:
    from tumorchain_jax.inference.segment_files import CLASSES

    if options.list_classes:
        lines = "\n".join(f"{number:3} {name}" for number, name in CLASSES.items())
        print(json.dumps(CLASSES) if options.json else lines)
        return 0
    for flag in ("input", "output"):
        if getattr(options, flag) is None:
            raise InputError("command line", f"-{flag[0]}", "none", "a path", "name it")
    with fetched(options) as inputs:
        return _segment_all(options, inputs)


def _segment_all(options: argparse.Namespace, inputs: "Fetched") -> int:
    from tqdm import tqdm

    from tumorchain_jax.inference.segment_files import (
        PREVIEW,
        STATISTICS,
        check_job,
        check_organs,
        list_jobs,
        segment,
    )
    from tumorchain_jax.report.folder import SEG

    sides = ((STATISTICS, options.statistics), (SEG, options.dicom), (PREVIEW, options.preview))
    more = tuple(name for name, wanted in sides if wanted)
    jobs = list_jobs(inputs.paths, options.output, options.ml, options.overwrite, more)
    scans = [job.ct for job in jobs]
    for job in jobs:
        check_job(job, scans)
    if options.dicom:
        from tumorchain_jax.inference.dicom_files import check_sources

        check_sources(scans)
    organs = options.roi_subset
    segmenter = segmenter_of(options, options.resampling_order, organs, options.quiet)
    check_organs(segmenter, organs or ())
    use_compilation_cache()
    done, refused = [], 0
    for job in tqdm(jobs, "scans", disable=True if options.quiet or len(jobs) < 2 else None):
        try:
            facts = segment(segmenter, job, organs, options.force)
            facts["scan"] = inputs.name(job.ct)
            stored = ""
            if options.stow and (seg := job.beside(SEG)).is_file():
                stored = store_files(inputs, job.ct, {SEG: seg.read_bytes()})
        except InputError as error:
            if len(jobs) == 1:
                raise
            refused += 1
            tqdm.write(f"tumorchain: skipped: {error}", file=sys.stderr)
            continue
        done.append(facts)
        for kind in ("forced", "warnings"):
            for line in () if options.quiet else facts[kind]:
                warning = f"tumorchain: {kind.removesuffix('s')}: {facts['scan']}: {line}"
                tqdm.write(printable(warning), sys.stderr)
        if not (options.quiet or options.json):
            count = len(facts["found"])
            found = f"{count} organ{'s' * (count != 1)} found by {segmenter.name}"
            line = f"{facts['output']}: {found}, {facts['seconds']:.1f} s"
            tqdm.write(printable(f"{line}\n{stored}" if stored else line), sys.stdout)
    if options.json:
        print(json.dumps(done if len(jobs) > 1 else done[0]))
    say = printer(options.quiet or options.json)
    if hint := segmenter_hint(segmenter):
        say(hint)
    say(NOTICE)
    return 2 if refused else 0
