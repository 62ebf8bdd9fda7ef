"""`tumorchain phantoms`: write digital patients as NIfTI files, or reports of patients as text."""

import argparse
import json
from pathlib import Path

from tumorchain_jax import NOTICE
from tumorchain_jax.cli.options import (
    SEEDS,
    Command,
    add_patient_options,
    check_numbers,
    patient_settings,
)
from tumorchain_jax.core.errors import InputError


def add_command(command: Command) -> None:
    """Add the `phantoms` subcommand."""
    phantoms = command(
        "phantoms",
        _phantoms,
        "Write digital patients (NIfTI files) or their reports, with their truth",
    )
    add = phantoms.add_argument
    add(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder to write to; rerun the same command to resume",
    )
    add("--count", type=int, default=10, help="number of patients (default: 10)")
    add("--seed", type=int, default=0, help="seed of the first patient (default: 0)")
    add_patient_options(add)
    add(
        "--reports",
        type=int,
        metavar="N",
        help="write reports of N patients instead, without images: a case list for the data "
        "engine, the texts, and what each truly says",
    )
    add(
        "--style",
        action="append",
        default=[],
        metavar="NAME",
        help="with --reports: a writer, such as structured, telegraphic or german; repeat it for "
        "more (default: all, in turn)",
    )
    add(
        "--identifiers",
        action="store_true",
        help="with --reports: plant names, dates, numbers and addresses of nobody",
    )
    add("--json", action="store_true", help="print the counts as JSON")


def _phantoms(options: argparse.Namespace) -> int:
    if options.reports is not None:
        return _reports(options)
    if options.style or options.identifiers:
        flag = "--style" if options.style else "--identifiers"
        raise InputError("command line", flag, "no --reports", "--reports N", "add it")
    from tumorchain_jax.phantoms.folder import write_phantom_folders

    check_numbers(options, count=(1, 10**6), seed=SEEDS)
    settings = patient_settings(options)
    written = write_phantom_folders(options.output, options.seed, options.count, settings)
    speed = round(written.volumes_per_second_per_core, 2)
    if options.json:
        facts = {
            "folder": str(options.output),
            "made": written.made,
            "already_done": written.already_done,
            "volumes_per_second_per_core": speed,
        }
        print(json.dumps(facts))
        return 0
    print(f"{options.output}: {written.made} made, {written.already_done} already done")
    if written.made:
        print(f"{speed} volumes a second per core")
    print(NOTICE)
    return 0


def _reports(options: argparse.Namespace) -> int:
    from tumorchain_jax.phantoms.reports.folder import write_reports

    check_numbers(options, reports=(1, 10**6), seed=SEEDS)
    count, styles = options.reports, options.style
    texts = write_reports(options.output, options.seed, count, styles, options.identifiers)
    if options.json:
        print(json.dumps({"folder": str(options.output), "cases": count, "texts": texts}))
        return 0
    print(f"{options.output}: {count} cases, {texts} texts, cases.jsonl, truth.jsonl")
    print(NOTICE)
    return 0
