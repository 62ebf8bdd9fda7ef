"""`tumorchain experiments`: train and compare the paper's ablations."""

import argparse
from pathlib import Path

from tumorchain_jax.cli.options import (
    Command,
    takes_overrides,
    use_compilation_cache,
)


def add_command(command: Command) -> None:
    """Add the `experiments` subcommand."""
    experiments = command("experiments", _experiments, "Train and compare the paper's ablations")
    add = experiments.add_argument
    add(
        "--config",
        type=Path,
        required=True,
        metavar="CONFIG",
        help="experiments, or a file like it",
    )
    add("--workdir", type=Path, required=True, metavar="DIR", help="results in it are reused")
    add("--only", nargs="+", default=[], metavar="NAME", help="these experiments; default: all")
    add("--list", action="store_true", help="list experiments and their state; run nothing")
    takes_overrides(experiments)


def _experiments(options: argparse.Namespace) -> int:
    from tumorchain_jax.core.config import read_config
    from tumorchain_jax.experiments.runner import run_experiments, states

    config = read_config(options.config, options.overrides)
    if options.list:
        for name, state in states(config, options.workdir).items():
            print(f"{name:<24}{state}")
        return 0
    use_compilation_cache()
    print(run_experiments(config, options.workdir, options.only), end="")
    return 0
