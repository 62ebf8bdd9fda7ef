"""`tumorchain compile`: ahead-of-time compilation for target hardware."""

import argparse
import json
import os
from pathlib import Path

from tumorchain_jax.cli.options import (
    CONFIG_HELP,
    Command,
    check_numbers,
    takes_overrides,
)


def add_command(command: Command) -> None:
    """Add the `compile` subcommand."""
    compile_ = command(
        "compile",
        _compile,
        "Compile for TPUs or GPUs that are not there: memory, traffic and FLOPs",
    )
    add = compile_.add_argument
    add("--config", type=Path, required=True, metavar="CONFIG", help=CONFIG_HELP)
    add(
        "--target",
        nargs="+",
        required=True,
        metavar="NAME",
        help="v5e-16, v5p-32, 2xv5e-16, h100-8 and so on",
    )
    add(
        "--program",
        nargs="+",
        choices=["train", "reason", "segment"],
        default=["train"],
        help="train: an optimizer step; reason: the reasoning loop; segment: a segmenter's "
        "network on tiles; default: train",
    )
    add("--batch", type=int, default=8, metavar="N", help="questions, or tiles, at once")
    add("--json", action="store_true", help="print rows as JSON")
    takes_overrides(compile_)


def _compile(options: argparse.Namespace) -> int:
    from tumorchain_jax.ahead_of_time.targets import ENVIRONMENT

    os.environ.update(ENVIRONMENT)
    from tumorchain_jax.ahead_of_time.compile import compile_ahead, table
    from tumorchain_jax.core.config import read_config

    check_numbers(options, batch=(1, 4096))
    config = read_config(options.config, options.overrides)
    rows = list(compile_ahead(config, options.target, options.program, options.batch))
    print(json.dumps(rows, indent=1) if options.json else table(rows))
    return 0
