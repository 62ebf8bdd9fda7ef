"""`tumorchain train`: train from a configuration."""

import argparse
from pathlib import Path

from tumorchain_jax.cli.options import (
    CONFIG_HELP,
    Command,
    check_processes,
    takes_overrides,
    takes_processes,
)
from tumorchain_jax.core.remote import as_path


def add_command(command: Command) -> None:
    """Add the `train` subcommand."""
    train = command("train", _train, "Train from a configuration")
    train.add_argument("--config", type=Path, required=True, help=CONFIG_HELP)
    train.add_argument(
        "--workdir", type=as_path, required=True, help="a folder, or gs://BUCKET/FOLDER"
    )
    add = train.add_argument
    add("--profile", metavar="FIRST:LAST", help="steps to trace, into WORKDIR/profile")
    add(
        "--preempted-exit-code",
        type=int,
        default=0,
        metavar="CODE",
        help="after a signal; default: 0",
    )
    takes_processes(train)
    takes_overrides(train)


def _train(options: argparse.Namespace) -> int:
    from tumorchain_jax.core.config import read_config
    from tumorchain_jax.parallel.processes import join
    from tumorchain_jax.training.registry import train

    check_processes(options)
    if options.coordinator:
        join(options.coordinator, options.processes, options.process)
    config = read_config(options.config, options.overrides)
    if options.profile:
        config.watch.profile = options.profile
    train(config, options.workdir)
    print(f"checkpoint: {options.workdir / 'export'}")
    return 0
