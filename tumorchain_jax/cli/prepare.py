"""`tumorchain prepare`: make a training data set from CTs, label maps and records."""

import argparse
import json
import os
from dataclasses import asdict
from pathlib import Path

from tumorchain_jax import NOTICE
from tumorchain_jax.cli.options import (
    Command,
    check_numbers,
    takes_overrides,
)


def add_command(command: Command) -> None:
    """Add the `prepare` subcommand."""
    prepare = command("prepare", _prepare, "A data set to train on, from CTs, label maps, records")
    add = prepare.add_argument
    add(
        "-i",
        "--input",
        type=Path,
        required=True,
        metavar="SCANS",
        help="JSON lines with scan, ct, labels (and lesions, abnormal), or a folder with a folder "
        "for each scan: NAME/ct.nii.gz (or the DICOM folder NAME/ct), NAME/labels.nii.gz",
    )
    add("-o", "--output", type=Path, required=True, metavar="DATA", help="a stopped run goes on")
    add("--records", type=Path, required=True, help="JSON lines; scan is a scan's name")
    add("--config", type=Path, required=True, help="of the training: its grid and window")
    add("--tokenizer", type=Path, required=True, metavar="DIR", help="with a tokenizer.json")
    add("--split", type=Path, metavar="DIR", help="with a split.json; default: drawn, 9 to 1")
    by = prepare.add_mutually_exclusive_group()
    by.add_argument("--workers", type=int, default=os.cpu_count(), help="default: one a core")
    by.add_argument(
        "--ray",
        nargs="?",
        const="",
        metavar="ADDRESS",
        help="work on a Ray cluster; default: the one at hand, else this machine",
    )
    add("--json", action="store_true", help="what was done as JSON")
    takes_overrides(prepare)


def _prepare(options: argparse.Namespace) -> int:
    from tumorchain_jax.core.config import read_config
    from tumorchain_jax.core.workers import RayWorkers, local_workers
    from tumorchain_jax.data.prepare import prepare
    from tumorchain_jax.data.record_file import RecordFile
    from tumorchain_jax.data.scan_list import read_scans
    from tumorchain_jax.data.splits import read_split, split_patients
    from tumorchain_jax.models.language.tokenizer import Tokenizer
    from tumorchain_jax.scan.preprocess import PreprocessConfig
    from tumorchain_jax.weights.model_folder import check_vocabulary

    check_numbers(options, workers=(1, 1024))
    config = read_config(options.config, options.overrides)
    image, window = config.model.encoder.image, config.window
    preprocess = PreprocessConfig(image, window.level, window.width)
    tokenizer = Tokenizer.load(options.tokenizer)
    check_vocabulary(options.tokenizer, tokenizer, config.model)
    scans = read_scans(options.input)
    records = RecordFile(options.records, {scan.name for scan in scans})
    patients = records.patients.values()
    split = read_split(options.split) if options.split else split_patients(patients)
    workers = local_workers(options.workers) if options.ray is None else RayWorkers(options.ray)
    with workers:
        done = prepare(options.output, scans, records, split, tokenizer, preprocess, workers)
    speed = round(done.volumes_per_second_per_core, 2)
    facts = {"folder": str(options.output), **asdict(done), "volumes_per_second_per_core": speed}
    if options.json:
        print(json.dumps(facts))
        return 0
    print(
        f"{options.output}\n"
        f"scans: {done.scans}, of which {done.written} written ({done.already_done} by an earlier "
        f"run), {done.skipped} skipped\n"
        f"records: {done.records}, of which {done.kept} kept, {done.left_out} left out"
    )
    if done.left_out or done.skipped:
        print(f"why: {options.output / 'skipped.jsonl'}")
    if speed:
        print(f"{speed} volumes a second per core")
    print(NOTICE)
    return 0
