"""`tumorchain bus`: breast ultrasound, from public data sets to classifiers and baselines."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from tumorchain_jax.cli.options import (
    CONFIG_HELP,
    Command,
    takes_overrides,
    use_compilation_cache,
)
from tumorchain_jax.core.errors import InputError

if TYPE_CHECKING:
    from tumorchain_jax.ultrasound.lesion import Box

VERBS = ("prepare", "crossval", "evaluate", "predict")


def add_command(command: Command) -> None:
    """Add the `bus` subcommand."""
    bus = command("bus", _bus, "Breast ultrasound: prepare data sets, cross-validate classifiers")
    add = bus.add_argument
    add("what", choices=VERBS)
    add(
        *("-i", "--input"),
        type=Path,
        nargs="+",
        metavar="PATH",
        help="prepare: folders of data sets; predict: pictures",
    )
    add("-o", "--output", type=Path, metavar="DIR", help="prepare: new folder")
    add("--allow-colour", action="store_true", help="prepare: take coloured pictures as grey")
    add("--skip-bad", action="store_true", help="prepare: leave out and list unusable pictures")
    add("--config", type=Path, help=f"crossval: {CONFIG_HELP}")
    add("--data", type=Path, metavar="DIR", help="crossval, evaluate: folder that prepare wrote")
    add("--workdir", type=Path, metavar="DIR", help="crossval: where its trainings go")
    add("--seeds", type=int, nargs="+", default=[0], metavar="N", help="crossval: default 0")
    add("--leave-out", action="store_true", help="crossval: also train without each data set")
    add("--ship", type=Path, metavar="DIR", help="crossval: new folder for one classifier of all")
    add(
        "--others",
        type=Path,
        nargs="+",
        default=[],
        metavar="DIR",
        help="crossval --ship: pictures that are no breast ultrasound, to measure its guard on",
    )
    add("-c", "--checkpoint", type=Path, metavar="DIR", help="evaluate, predict: what --ship wrote")
    add("--box", metavar="X,Y,W,H", help="predict: the lesion in pixels, for a lesion classifier")
    add("--json", action="store_true", help="print plain values")
    takes_overrides(bus)


def _bus(options: argparse.Namespace) -> int:
    verbs = {
        "prepare": _prepare,
        "crossval": _crossval,
        "evaluate": _evaluate,
        "predict": _predict,
    }
    if options.overrides and options.what != "crossval":
        raise InputError("command line", options.overrides[0], "given", "none", "leave it out")
    return verbs[options.what](options)


def _needed(options: argparse.Namespace, *names: str) -> None:
    for name in names:
        if not getattr(options, name):
            flag = f"--{name}"
            raise InputError("command line", flag, "none", f"one for bus {options.what}", "give it")


def _prepare(options: argparse.Namespace) -> int:
    from tumorchain_jax.ultrasound.prepare import facts_text, prepare

    _needed(options, "input", "output")
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
    others = {folder.name: folder for folder in options.others}
    values, said = report(
        config, options.workdir, options.seeds, options.leave_out, options.ship, others
    )
    print(json.dumps(values) if options.json else said)
    return 0


def _evaluate(options: argparse.Namespace) -> int:
    from tempfile import TemporaryDirectory

    from tumorchain_jax.evaluation.ultrasound.predict import evaluate
    from tumorchain_jax.evaluation.ultrasound.tables import evaluation_text

    _needed(options, "checkpoint", "data")
    with TemporaryDirectory() as cache:
        values = evaluate(options.checkpoint, options.data, Path(cache))
    print(json.dumps(values) if options.json else evaluation_text(values))
    return 0


def _predict(options: argparse.Namespace) -> int:
    from tumorchain_jax.evaluation.ultrasound.predict import predict

    _needed(options, "checkpoint", "input")
    for row in predict(options.checkpoint, options.input, _box(options.box)):
        print(json.dumps(row) if options.json else f"{row['picture']}: {row['said']}")
    return 0


def _box(text: str | None) -> "Box | None":
    from tumorchain_jax.ultrasound.lesion import Box

    if text is None:
        return None
    try:
        box = Box(*map(int, text.split(",")))
    except (TypeError, ValueError):
        box = Box(0, 0, 0, 0)
    if min(box.x, box.y) < 0 or min(box.width, box.height) < 1:
        raise InputError("command line", "--box", text[:60], "X,Y,W,H in pixels", "fix it")
    return box
