"""`tumorchain bus`: breast ultrasound, from public data sets to classifiers and baselines."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tumorchain_jax import NOTICE
from tumorchain_jax.cli import bus_chains
from tumorchain_jax.cli.options import (
    CONFIG_HELP,
    Command,
    progress_apart,
    read_task,
    takes_overrides,
    use_compilation_cache,
)
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.pretrained import BUS_NANO

if TYPE_CHECKING:
    from ml_collections import ConfigDict

    from tumorchain_jax.ultrasound.lesion import Box

PREPARED = "folder that `bus prepare` wrote"


def add_command(command: Command) -> None:
    """Add the subcommands of `bus`."""
    prepare = command("bus prepare", _prepare, "Make one folder with a manifest of data sets")
    add = prepare.add_argument
    add(
        "-i", "--input", type=Path, nargs="+", required=True, metavar="DIR",
        help="data sets: BUS-BRA, BrEaST, BUSI or BUS-CoT, as they are published",
    )  # fmt: skip
    add("-o", "--output", type=Path, required=True, metavar="DIR", help="new folder")
    add("--allow-colour", action="store_true", help="take coloured pictures as grey")
    add("--skip-bad", action="store_true", help="leave out and list unusable pictures")
    add("--json", action="store_true", help="print the counts as JSON")

    crossval = command(
        "bus crossval", _crossval, "Train on folds; score what each has not seen, baselines beside"
    )
    add = crossval.add_argument
    _takes_trainings(crossval)
    add("--leave-out", action="store_true", help="also train without each data set, and score it")
    add("--ship", type=Path, metavar="DIR", help="new folder for one classifier of all folds")
    add(
        "--others", type=Path, nargs="+", default=[], metavar="DIR",
        help="with --ship: pictures that are no breast ultrasound, to measure its guard on",
    )  # fmt: skip
    add("--json", action="store_true", help="print the tables as JSON")
    takes_overrides(crossval)

    shift = command("bus shift", _shift, "Score sets and devices that training was not shown")
    _takes_trainings(shift)
    add = shift.add_argument
    add(
        "--styles", nargs="*", choices=("histogram", "fda"), default=["histogram", "fda"],
        help="looks lent to half of the pictures, beside none (default: all)",
    )  # fmt: skip
    add("--device", default="Logiq 7", metavar="NAME", help="also train on this one alone")
    add("--json", action="store_true", help="print the table as JSON")
    takes_overrides(shift)

    evaluate = command("bus evaluate", _evaluate, "Score the part that no training has seen")
    _takes_classifier(evaluate)
    evaluate.add_argument("--data", type=Path, required=True, metavar="DIR", help=PREPARED)
    evaluate.add_argument("--json", action="store_true", help="print the scores as JSON")

    predict = command("bus predict", _predict, "Score pictures, or refuse what is no such picture")
    add = predict.add_argument
    add(
        "-i", "--input", type=Path, nargs="+", required=True, metavar="PICTURE",
        help="pictures: PNG, JPEG, BMP, TIFF or DICOM",
    )  # fmt: skip
    _takes_classifier(predict)
    add("--box", metavar="X,Y,W,H", help="the lesion in pixels, for a classifier of lesions")
    add("--json", action="store_true", help="print a line of JSON for each picture")
    bus_chains.add_verbs(command)


def _takes_trainings(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--config", type=Path, required=True, metavar="CONFIG", help=CONFIG_HELP)
    add("--data", type=Path, required=True, metavar="DIR", help=PREPARED)
    add(
        "--workdir", type=Path, required=True, metavar="DIR",
        help="folder of the trainings; rerun the same command to resume",
    )  # fmt: skip
    add("--seeds", type=int, nargs="+", default=[0], metavar="N", help="one or more; default: 0")


def _takes_classifier(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c", "--checkpoint", type=Path, default=BUS_NANO, metavar="DIR",
        help="folder that `bus crossval --ship` wrote; default: the classifier in the package",
    )  # fmt: skip


def _prepare(options: argparse.Namespace) -> int:
    from tumorchain_jax.ultrasound.prepare import facts_text, prepare

    facts = prepare(options.input, options.output, options.allow_colour, options.skip_bad)
    print(json.dumps(facts) if options.json else facts_text(facts))
    return 0


def _crossval(options: argparse.Namespace) -> int:
    from tumorchain_jax.evaluation.ultrasound.report import report

    config = _classification(options)
    others = {folder.name: folder for folder in options.others}
    with progress_apart(options):
        values, said = report(
            config, options.workdir, options.seeds, options.leave_out, options.ship, others
        )
    print(json.dumps(values) if options.json else said)
    return 0


def _shift(options: argparse.Namespace) -> int:
    from tumorchain_jax.evaluation.ultrasound.shift import shift

    config = _classification(options)
    with progress_apart(options):
        rows, said = shift(config, options.workdir, options.seeds, options.styles, options.device)
    print(json.dumps(rows) if options.json else said)
    return 0


def _classification(options: argparse.Namespace) -> "ConfigDict":
    use_compilation_cache()
    config = read_task(options, "classification", "use a bus_... one")
    config.data.folder = str(options.data)
    return config


def _evaluate(options: argparse.Namespace) -> int:
    from tempfile import TemporaryDirectory

    from tumorchain_jax.evaluation.ultrasound.predict import evaluate
    from tumorchain_jax.evaluation.ultrasound.tables import evaluation_text

    with TemporaryDirectory() as cache:
        values = evaluate(options.checkpoint, options.data, Path(cache))
    print(json.dumps(values) if options.json else evaluation_text(values))
    return 0


def _predict(options: argparse.Namespace) -> int:
    from tumorchain_jax.evaluation.ultrasound.predict import predict

    skipped: list[InputError] = []

    def skip(error: InputError) -> None:
        skipped.append(error)
        print(f"tumorchain: skipped: {error}", file=sys.stderr)

    several = skip if len(options.input) > 1 else None
    for row in predict(options.checkpoint, options.input, _box(options.box), several):
        print(json.dumps(row) if options.json else f"{row['picture']}: {row['said']}")
    if not options.json:
        print("malignant: a probability; crossval.txt beside the classifier says what it is worth")
        print(NOTICE)
    return 2 if skipped else 0


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
