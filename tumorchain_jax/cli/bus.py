"""`tumorchain bus`: breast ultrasound, from public data sets to classifiers and baselines."""

import argparse
import json
from pathlib import Path

from tumorchain_jax.cli.options import (
    CONFIG_HELP,
    Command,
    takes_overrides,
    use_compilation_cache,
)
from tumorchain_jax.core.errors import InputError

VERBS = ("prepare", "crossval")


def add_command(command: Command) -> None:
    """Add the `bus` subcommand."""
    bus = command("bus", _bus, "Breast ultrasound: prepare data sets, cross-validate classifiers")
    add = bus.add_argument
    add("what", choices=VERBS)
    add("-i", "--input", type=Path, nargs="+", metavar="DIR", help="prepare: folders of data sets")
    add("-o", "--output", type=Path, metavar="DIR", help="prepare: new folder")
    add("--allow-colour", action="store_true", help="prepare: take coloured pictures as grey")
    add("--skip-bad", action="store_true", help="prepare: leave out and list unusable pictures")
    add("--config", type=Path, help=f"crossval: {CONFIG_HELP}")
    add("--data", type=Path, metavar="DIR", help="crossval: folder that prepare wrote")
    add("--workdir", type=Path, metavar="DIR", help="crossval: where its trainings go")
    add("--seeds", type=int, nargs="+", default=[0], metavar="N", help="crossval: default 0")
    add("--leave-out", action="store_true", help="crossval: also train without each data set")
    add("--json", action="store_true", help="print plain values")
    takes_overrides(bus)


def _bus(options: argparse.Namespace) -> int:
    run = {"prepare": _prepare, "crossval": _crossval}[options.what]
    return run(options)


def _needed(options: argparse.Namespace, *names: str) -> None:
    for name in names:
        if not getattr(options, name):
            flag = f"--{name}"
            raise InputError("command line", flag, "none", f"one for bus {options.what}", "give it")


def _prepare(options: argparse.Namespace) -> int:
    from tumorchain_jax.ultrasound.prepare import facts_text, prepare

    _needed(options, "input", "output")
    if options.overrides:
        raise InputError("command line", options.overrides[0], "given", "none", "leave it out")
    facts = prepare(options.input, options.output, options.allow_colour, options.skip_bad)
    print(json.dumps(facts) if options.json else facts_text(facts))
    return 0


def _crossval(options: argparse.Namespace) -> int:
    from tumorchain_jax.core.config import read_config
    from tumorchain_jax.evaluation.ultrasound.report import report

    _needed(options, "config", "data", "workdir")
    use_compilation_cache()
    config = read_config(options.config, options.overrides)
    if config.get("task") != "classification":
        found = str(config.get("task", "tumorchain"))
        raise InputError(options.config, "task", found, "classification", "use a bus_... one")
    config.data.folder = str(options.data)
    values, said = report(config, options.workdir, options.seeds, options.leave_out)
    print(json.dumps(values) if options.json else said)
    return 0
