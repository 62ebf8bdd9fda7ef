"""`tumorchain evaluate`: measure accuracy on cases whose truth is known."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from tumorchain_jax import NOTICE
from tumorchain_jax.anatomy.organs import TOTALSEGMENTATOR
from tumorchain_jax.cli.evaluate_endpoint import (
    add_endpoint_options,
    check_endpoint_options,
    evaluate_by_endpoint,
)
from tumorchain_jax.cli.options import (
    SEEDS,
    Command,
    add_patient_options,
    check_numbers,
    patient_settings,
    use_compilation_cache,
)
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.remote import as_path, local_copy

if TYPE_CHECKING:
    from tumorchain_jax.phantoms.settings import PatientSettings
    from tumorchain_jax.segmentation.total import TotalSegmenter


def add_command(command: Command) -> None:
    """Add the `evaluate` subcommand."""
    evaluate = command(
        "evaluate", _evaluate, "Score a model on phantoms, a data set or painted CTs (Table 1)"
    )
    source = evaluate.add_mutually_exclusive_group()
    # A text as default: argparse takes an equal number that is given for one that is not.
    source.add_argument(
        "--phantoms",
        type=int,
        default="100",
        metavar="N",
        help="digital patients no training has seen; default: 100",
    )
    source.add_argument("--data", type=Path, metavar="DIR", help="test patients of a data set")
    source.add_argument(
        "--real",
        type=Path,
        nargs=2,
        action="append",
        metavar=("CT", "LABELMAP"),
        help="real CT to paint tumours into, and its label map; may be repeated. With --dice: to "
        "segment, and a label map of its organs",
    )
    source.add_argument(
        "--rescore",
        dest="items",
        type=Path,
        metavar="FILE",
        help="score saved answers (items.jsonl) again, without a model",
    )
    add = evaluate.add_argument
    add(
        "--answers",
        type=Path,
        metavar="FILE",
        help="with --rescore: another model's answers to the same questions, as JSON lines",
    )
    add("--seed", type=int, default=2_000_000, metavar="N", help="of the first phantom or tumour")
    add_patient_options(add)
    add("--tumours", type=int, default=40, metavar="N", help="painted into each real CT")
    add(
        "-c",
        "--checkpoint",
        type=as_path,
        metavar="DIR",
        help="model folder, or gs://BUCKET/FOLDER, whose evaluation.json is written; default: the "
        "nano model",
    )
    add(
        "--segment",
        nargs="?",
        const=True,
        metavar="DIR",
        help="use masks by the nano segmenter, or by the weights in DIR, instead of the true ones",
    )
    output = evaluate.add_mutually_exclusive_group()
    output.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        help="new folder for answers, score, plot and failures; a stopped run is resumed",
    )
    output.add_argument(
        "--probe",
        type=Path,
        nargs="?",
        const=True,
        metavar="DATA",
        help="fit a linear probe to the visual tokens of the true lesions, on the training "
        "patients of DATA; without it, on those of --data",
    )
    output.add_argument(
        "--dice",
        action="store_true",
        help="with --phantoms or --real: measure the Dice of the segmenter's organ masks",
    )
    add(
        "--relabel",
        type=_relabel,
        metavar="N=ID,...",
        help="with --dice --real: what each label of LABELMAP means (TotalSegmentator v2 id); "
        "other labels are left out; default: labels are ids",
    )
    add_endpoint_options(add)
    add("--json", action="store_true", help="print the score as JSON")


def _evaluate(options: argparse.Namespace) -> int:
    from tumorchain_jax.evaluation.run import evaluate

    if options.checkpoint:
        options.checkpoint = local_copy(options.checkpoint)
    if options.relabel and not (options.dice and options.real):
        hint = "add --dice and --real, or leave it out"
        raise InputError("command line", "--relabel", "no label map", "one of --real", hint)
    if options.answers and not options.items:
        hint = "add --rescore ITEMS, which says what is asked"
        raise InputError("command line", "--answers", "no items", "--rescore as well", hint)
    check_endpoint_options(options)
    if options.probe:
        return _probe(options)
    if options.dice:
        return _dice(options)
    check_numbers(options, phantoms=(1, 10**6), tumours=(1, 10**6), seed=SEEDS)
    settings = _settings(options)
    if options.by or options.export:
        return evaluate_by_endpoint(options, settings)
    use_compilation_cache()
    score, text = evaluate(
        options.checkpoint,
        options.output,
        items=options.items,
        answers=options.answers,
        data=options.data,
        real=[(ct, labels) for ct, labels in options.real or ()],
        phantoms=options.phantoms,
        tumours=options.tumours,
        seed=options.seed,
        segmenter=_segmenter(options),
        settings=settings,
    )
    print(json.dumps(score) if options.json else text, end="\n" if options.json else "")
    return 0


def _settings(options: argparse.Namespace) -> "PatientSettings":
    settings = patient_settings(options)
    if settings.kind != "simple" and (options.data or options.items or options.real):
        hint = "leave out --data, --rescore and --real"
        raise InputError("command line", "--kind", "another source", "digital patients", hint)
    return settings


def _segmenter(options: argparse.Namespace) -> "TotalSegmenter | None":
    from tumorchain_jax.segmentation.factory import make_segmenter, nano_segmenter

    if options.segment is None:
        return None
    if options.data or options.items:
        hint = "ask about phantoms or real CTs"
        raise InputError("command line", "--segment", "a data set", "scans", hint)
    if options.segment is True:
        return nano_segmenter()
    return make_segmenter(weights=options.segment)


def _relabel(text: str) -> dict[int, int]:
    """Parse `1=5,2=5`: label of a map -> id."""
    try:
        pairs = [pair.split("=") for pair in text.split(",")]
        numbers = [(int(label), int(id_)) for label, id_ in pairs]
    except ValueError:
        numbers = []
    largest = len(TOTALSEGMENTATOR) - 1
    sound = all(0 < number <= largest for pair in numbers for number in pair)
    found = dict(numbers)
    if not found or not sound or len(found) < len(numbers):
        expected = f"pairs N=ID of 1 to {largest}, each label once, as 1=5,2=5"
        raise argparse.ArgumentTypeError(f"found {text!r}, expected {expected}")
    return found


def _dice(options: argparse.Namespace) -> int:
    from tumorchain_jax.evaluation.dice import dice_text, phantom_dice, scan_dice, summarise
    from tumorchain_jax.segmentation.factory import nano_segmenter

    if options.data or options.items:
        expected, hint = "digital patients or real CTs", "leave out --data and --rescore"
        raise InputError("command line", "--dice", "another source", expected, hint)
    check_numbers(options, phantoms=(1, 10**6), seed=SEEDS)
    settings = _settings(options)
    use_compilation_cache()
    segmenter = _segmenter(options) or nano_segmenter()
    if options.real:
        rows = scan_dice(segmenter, options.real, options.relabel)
    else:
        seeds = range(options.seed, options.seed + options.phantoms)
        rows = phantom_dice(segmenter, seeds, settings)
    organs = summarise(rows, segmenter.organs)
    values = {name: asdict(dice) for name, dice in organs.items()}
    print(json.dumps(values) if options.json else f"{dice_text(organs)}\n{NOTICE}")
    return 0


def _probe(options: argparse.Namespace) -> int:
    from tumorchain_jax.evaluation.patients import made_patients
    from tumorchain_jax.evaluation.probe import linear_probe, probe_text
    from tumorchain_jax.inference.analyzer import Analyzer
    from tumorchain_jax.pretrained import NANO_CHECKPOINT
    from tumorchain_jax.weights.model_folder import load_model

    model = options.checkpoint or NANO_CHECKPOINT
    if options.probe is True:
        if options.data is None:
            expected = "a data set's folder with --probe"
            raise InputError("command line", "--data", "none", expected, "name one")
        use_compilation_cache()
        rows = linear_probe(load_model(model), options.data)
    else:
        if options.data or options.items:
            expected, hint = "digital patients or real CTs", "leave out --data and --rescore"
            raise InputError("command line", "--probe", "another source", expected, hint)
        check_numbers(options, phantoms=(1, 10**6), tumours=(1, 10**6), seed=SEEDS)
        settings = _settings(options)
        use_compilation_cache()
        analyzer = Analyzer.load(model)
        patients = made_patients(
            analyzer,
            [(ct, labels) for ct, labels in options.real or ()],
            options.tumours,
            options.phantoms,
            options.seed,
            settings=settings,
        )
        rows = linear_probe(analyzer.checkpoint, options.probe, patients)
    print(json.dumps(rows) if options.json else f"{probe_text(rows)}\n{NOTICE}")
    return 0
