"""Training: `train`, `experiments`."""

import argparse
from pathlib import Path

from tumorchain_jax.cli.options import (
    Command,
    check_processes,
    takes_overrides,
    takes_processes,
    use_compilation_cache,
)


def add_commands(command: Command) -> None:
    """Train one model, or those of the paper's experiments."""
    train = command("train", _train, "Train from a configuration")
    train.add_argument("--config", type=Path, required=True, help="a configs/*.py file")
    train.add_argument("--workdir", type=Path, required=True)
    add = train.add_argument
    add("--profile", metavar="FIRST:LAST", help="steps to trace, into WORKDIR/profile")
    add(
        "--exit-when-stopped",
        type=int,
        default=0,
        metavar="CODE",
        help="after a signal; default: 0",
    )
    takes_processes(train)
    takes_overrides(train)

    experiments = command("experiments", _experiments, "The paper's experiments, one table of all")
    add = experiments.add_argument
    add("--config", type=Path, required=True, help="configs/experiments.py or one like it")
    add("--workdir", type=Path, required=True, help="what is done in it already is kept")
    add("--only", nargs="+", default=[], metavar="NAME", help="these experiments; default: all")
    add("--list", action="store_true", help="tell what there is and what is done; do nothing")
    takes_overrides(experiments)


def _train(options: argparse.Namespace) -> int:
    from tumorchain_jax.parallel.processes import join
    from tumorchain_jax.training.config import read_config
    from tumorchain_jax.training.loop import train
    from tumorchain_jax.training.segmenter import train_segmenter

    check_processes(options)
    if options.coordinator:
        join(options.coordinator, options.processes, options.process)
    config = read_config(options.config, options.overrides)
    if options.profile:
        config.watch.profile = options.profile
    if "segmenter" in config:
        train_segmenter(config, options.workdir)
    else:
        train(config, options.workdir)
    print(f"checkpoint: {options.workdir / 'export'}")
    return 0


def _experiments(options: argparse.Namespace) -> int:
    from tumorchain_jax.experiments.runner import run_experiments, states
    from tumorchain_jax.training.config import read_config

    config = read_config(options.config, options.overrides)
    if options.list:
        for name, state in states(config, options.workdir).items():
            print(f"{name:<24}{state}")
        return 0
    use_compilation_cache()
    print(run_experiments(config, options.workdir, options.only), end="")
    return 0
