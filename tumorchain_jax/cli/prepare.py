"""`tumorchain prepare`: make a training data set from CTs, label maps and records."""

import argparse
import json
import os
from dataclasses import asdict
from pathlib import Path

from tumorchain_jax import NOTICE
from tumorchain_jax.cli.options import Command, check_numbers, takes_overrides


def add_command(command: Command) -> None:
    """Add the `prepare` subcommand."""
    prepare = command(
        "prepare", _prepare, "Make a training data set from CTs, label maps and records"
    )
    add = prepare.add_argument
    add(
        "-i",
        "--input",
        type=Path,
        required=True,
        metavar="SCANS",
        help="JSON lines with scan, ct, labels (and lesions, abnormal), or a folder with a folder "
        "for each scan, at any depth: NAME/ct.nii.gz (or the DICOM folder NAME/ct), "
        "NAME/labels.nii.gz, and NAME/lesions.nii.gz where lesions are known",
    )
    add(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="DATA",
        help="folder of the data set; rerun the same command to resume",
    )
    add(
        "--records",
        type=Path,
        required=True,
        help="JSON lines, one record each; `scan` is a scan's name",
    )
    add(
        "--config",
        type=Path,
        required=True,
        help="training configuration; its grid and CT window are used",
    )
    add(
        "--tokenizer",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder with the tokenizer.json of the model",
    )
    add(
        "--split",
        type=Path,
        metavar="DIR",
        help="folder with a split.json (default: one patient in ten is for testing)",
    )
    by = prepare.add_mutually_exclusive_group()
    by.add_argument(
        "--workers", type=int, default=os.cpu_count(), help="processes (default: one for each core)"
    )
    by.add_argument(
        "--ray",
        nargs="?",
        const="",
        metavar="ADDRESS",
        help="work on a Ray cluster (default: the one that Ray finds, else this machine)",
    )
    add("--json", action="store_true", help="print the counts as JSON")
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
        crops = config.model.crop
        done = prepare(options.output, scans, records, split, tokenizer, preprocess, workers, crops)
    speed = round(done.volumes_per_second_per_core, 2)
    facts = {"folder": str(options.output), **asdict(done), "volumes_per_second_per_core": speed}
    if options.json:
        print(json.dumps(facts))
        return 0
    print(
        f"{options.output}\n"
        f"scans: {done.scans}, of which {done.written} written ({done.already_done} by an earlier "
        f"run), {done.skipped} skipped\n"
        f"records: {done.records}, of which {done.kept} used, {done.left_out} left out\n"
        f"patients: {done.train_patients} for training, {done.test_patients} for testing"
    )
    if done.left_out or done.skipped:
        print(f"reasons: {options.output / 'skipped.jsonl'}")
    if speed:
        print(f"{speed} volumes a second per core")
    print(NOTICE)
    return 0
