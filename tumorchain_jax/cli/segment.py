"""`segment`, and the flags that say which segmenter."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tumorchain_jax import NOTICE
from tumorchain_jax.cli.options import Command, use_compilation_cache
from tumorchain_jax.errors import InputError

if TYPE_CHECKING:
    from tumorchain_jax.segmentation.total import TotalSegmenter


def add_commands(command: Command) -> None:
    """Find organs."""
    segment = command("segment", _segment, "Organ masks of one or several CTs")
    add = segment.add_argument
    add("-i", "--input", type=Path, nargs="+", metavar="CT")
    add(
        "-o",
        "--output",
        type=Path,
        metavar="SEG",
        help="SEG.nii.gz: one label map; a folder: a file an organ, or with -ml a map a scan",
    )
    add("-ta", "--task", choices=["total"], default="total")
    add("-rs", "--roi-subset", nargs="+", metavar="ORGAN", help="only these, and what finds them")
    add("-ml", "--ml", action="store_true", help="one label map in place of a file an organ")
    add(
        "-s",
        "--statistics",
        action="store_true",
        help="statistics.json (of SEG.nii.gz: SEG.statistics.json): volume in mm3, intensity in "
        "mean HU; organs at the edge included",
    )
    add(
        "-ro",
        "--resampling-order",
        type=int,
        choices=range(6),
        default=1,
        help="of the spline that resamples a scan for TotalSegmentator's weights; default: 1, as "
        "TotalSegmentator since 2.16; before it was 3",
    )
    add("-lc", "--list-classes", action="store_true", help="ids and names of the organs")
    takes_segmenter(segment, ["jax", "totalsegmentator"])
    add("-q", "--quiet", action="store_true", help="say nothing")
    add("--json", action="store_true", help="what was done as JSON, a list for several CTs")
    add(
        "--overwrite",
        action="store_true",
        help="replace what is there: of a folder, the files of all organs and the statistics",
    )


def takes_segmenter(command: argparse.ArgumentParser, kinds: list[str]) -> None:
    """Which segmenter, with which weights."""
    add = command.add_argument
    add(
        "--segmenter",
        choices=kinds,
        default="jax",
        help="jax: the networks here; totalsegmentator: hand scans to the program if installed"
        + ("; none: no masks, the global view alone" if "none" in kinds else ""),
    )
    add(
        "--weights",
        nargs="?",
        const="",
        metavar="DIR",
        help="of an nnU-Net model, or all of TotalSegmentator's; without DIR: where it keeps them; "
        "default: the nano segmenter of the package, which has only seen digital patients",
    )
    add(
        "--segmenter-dtype",
        choices=["float32", "bfloat16"],
        default="float32",
        help="in which the networks here compute: bfloat16 is for TPUs and GPUs",
    )
    add("-f", "--fast", action="store_true", help="TotalSegmentator's 3 mm model")
    add(
        "--no-cache",
        action="store_true",
        help="make masks anew; else those of the same scan and weights are kept, without a name, "
        "in ~/.cache/tumorchain/segmentations (XDG_CACHE_HOME), up to 2 GiB",
    )


def segmenter_of(
    options: argparse.Namespace,
    order: int = 1,
    organs: list[str] | None = None,
    quiet: bool = False,
) -> "TotalSegmenter":
    """The one that the flags of `takes_segmenter` name."""
    from tumorchain_jax.segmentation.cache import SegmentationCache
    from tumorchain_jax.segmentation.choice import choose_segmenter

    return choose_segmenter(
        options.segmenter,
        options.weights,
        fast=options.fast,
        order=order,
        dtype=options.segmenter_dtype,
        organs=organs,
        cache=None if options.no_cache else SegmentationCache(),
        quiet=quiet,
    )


def _segment(options: argparse.Namespace) -> int:
    from tqdm import tqdm

    from tumorchain_jax.segmentation.command import (
        CLASSES,
        check_job,
        check_organs,
        list_jobs,
        segment,
    )

    if options.list_classes:
        lines = "\n".join(f"{number:3} {name}" for number, name in CLASSES.items())
        print(json.dumps(CLASSES) if options.json else lines)
        return 0
    for flag in ("input", "output"):
        if getattr(options, flag) is None:
            raise InputError("command line", f"-{flag[0]}", "none", "a path", "name it")
    jobs = list_jobs(options.input, options.output, options.ml)
    for job in jobs:
        check_job(job, [job.ct for job in jobs], options.overwrite)
    organs = options.roi_subset
    segmenter = segmenter_of(options, options.resampling_order, organs, options.quiet)
    check_organs(segmenter, organs or ())
    use_compilation_cache()
    done, refused = [], 0
    for job in tqdm(jobs, "scans", disable=True if options.quiet or len(jobs) < 2 else None):
        try:
            facts = segment(segmenter, job, organs, options.statistics)
        except InputError as error:
            if len(jobs) == 1:
                raise
            refused += 1
            tqdm.write(f"tumorchain: skipped: {error}", file=sys.stderr)
            continue
        done.append(facts)
        if not (options.quiet or options.json):
            count = len(facts["found"])
            found = f"{count} organ{'s' * (count != 1)} found by {segmenter.name}"
            tqdm.write(f"{facts['output']}: {found}, {facts['seconds']:.1f} s", sys.stdout)
    if options.json:
        print(json.dumps(done if len(jobs) > 1 else done[0]))
    elif not options.quiet:
        print(NOTICE)
    return 2 if refused else 0
