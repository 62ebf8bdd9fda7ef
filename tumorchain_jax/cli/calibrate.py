"""`tumorchain calibrate`: give a model's answers a confidence that means what it says."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from tumorchain_jax import NOTICE
from tumorchain_jax.cli.options import SEEDS, Command, check_numbers, use_compilation_cache


def add_command(command: Command) -> None:
    """Add the `calibrate` subcommand."""
    add = command(
        "calibrate", _calibrate, "Calibrate a model's confidence on digital patients"
    ).add_argument
    add(
        "-c",
        "--checkpoint",
        type=Path,
        required=True,
        metavar="DIR",
        help="model folder; calibration.json and reliability.svg are written into it",
    )
    add(
        "--phantoms",
        type=int,
        default=200,
        metavar="N",
        help="digital patients, of which none was trained or evaluated on; default: 200",
    )
    add("--seed", type=int, default=5_000_000, metavar="N", help="of the first; default: 5000000")
    add(
        "--threshold",
        type=float,
        default=0.5,
        metavar="P",
        help="reports withhold answers of a lower confidence; default: 0.5",
    )
    add("--json", action="store_true", help="print calibration.json")


def _calibrate(options: argparse.Namespace) -> int:
    from tumorchain_jax.evaluation.calibrate import calibrate
    from tumorchain_jax.evaluation.calibration import calibration_text

    check_numbers(options, phantoms=(1, 10**6), seed=SEEDS, threshold=(0, 1))
    use_compilation_cache()
    calibration = calibrate(options.checkpoint, options.seed, options.phantoms, options.threshold)
    print(
        json.dumps(asdict(calibration))
        if options.json
        else f"{calibration_text(calibration)}\nwritten to {options.checkpoint}\n{NOTICE}"
    )
    return 0
