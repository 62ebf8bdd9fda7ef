"""`tumorchain judge`: mark the chains of an evaluation, and measure the judge that does it."""

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tumorchain_jax import NOTICE
from tumorchain_jax.cli.options import SEEDS, Command, check_numbers
from tumorchain_jax.core.errors import InputError

if TYPE_CHECKING:
    from tumorchain_jax.evaluation.chain.verdict import Judge


def add_command(command: Command) -> None:
    """Add the `judge` subcommand."""
    add = command(
        "judge", _judge, "Mark chains of thought (TumorChain-Eval), or calibrate the judge"
    ).add_argument
    add("action", nargs="?", choices=("calibrate",), help="measure the judge on known reports")
    add("-i", "--input", type=Path, metavar="FILE", help="items.jsonl of `tumorchain evaluate`")
    add(
        "-o",
        "--output",
        type=Path,
        metavar="PATH",
        help="new folder for marks, scores and page; a stopped run is resumed. With calibrate: "
        "the file of the calibration",
    )
    add(
        "--by",
        nargs="+",
        default=["rules"],
        metavar="JUDGE",
        help="rules (the default, offline), or: endpoint NAME, of the endpoints file",
    )
    add(
        "--endpoints",
        type=Path,
        default=Path("endpoints.toml"),
        metavar="FILE",
        help="where endpoints are described (llm/README.md); default: endpoints.toml",
    )
    add("--allow-remote", action="store_true", help="let texts leave this machine")
    add(
        "--journal",
        type=Path,
        metavar="FILE",
        help="replies that were paid for, never asked for again; default: beside the output",
    )
    add("--calibration", type=Path, metavar="FILE", help="what this judge was measured at")
    add("--subject", default="", metavar="MODEL", help="the model that wrote the chains")
    add("--allow-self", action="store_true", help="let a model judge its own chains")
    add("--strict", action="store_true", help="exit with 1 where over 2 %% of the chains failed")
    add("--rescore", type=Path, metavar="DIR", help="score a judged folder again, without a judge")
    add("--phantoms", type=int, default=300, metavar="N", help="calibrate: patients of each probe")
    add("--seed", type=int, default=6_000_000, metavar="N", help="calibrate: of the first patient")
    add(
        "--text-metrics",
        action="store_true",
        help="calibrate: instead, what BLEU, chrF and ROUGE are worth on the same reports",
    )
    add(
        "--styles",
        action="store_true",
        help="calibrate: instead, how the rules read reports that were written apart from them",
    )
    add("--json", action="store_true", help="print the scores as JSON")


def _judge(options: argparse.Namespace) -> int:
    from tumorchain_jax.evaluation.chain.run import judge_items, read_calibration, rescore

    if options.action:
        return _calibrate(options)
    if (options.input is None) == (options.rescore is None):
        hint = "name one file of items, or one folder to score again"
        raise InputError("command line", "-i, --rescore", "none or both", "one of them", hint)
    if options.rescore:
        values, text = rescore(options.rescore)
    else:
        calibration = read_calibration(options.calibration) if options.calibration else None
        with _named(options) as judge:
            values, text = judge_items(
                options.input, options.output, judge, calibration, options.subject
            )
    print(json.dumps(values) if options.json else text, end="\n" if options.json else "")
    return int(not values["judged"] or (options.strict and not values["usable"]))


def _calibrate(options: argparse.Namespace) -> int:
    from tumorchain_jax.core.files import write_file
    from tumorchain_jax.evaluation.chain.calibrate import calibrate
    from tumorchain_jax.evaluation.chain.run import calibration_values
    from tumorchain_jax.evaluation.chain.text import calibration_text

    if options.input or options.rescore:
        hint = "leave out -i and --rescore"
        raise InputError("command line", "calibrate", "items", "a judge alone", hint)
    check_numbers(options, phantoms=(1, 10**5), seed=SEEDS)
    if options.output and options.output.is_dir():
        hint = "name a file"
        raise InputError(options.output, "output", "a folder", "a file to write", hint)
    if options.text_metrics:
        return _text_metrics(options)
    if options.styles:
        return _styles(options)
    with _named(options) as judge:
        calibration = calibrate(judge, options.phantoms, options.seed)
    values = calibration_values(calibration)
    if options.output:
        write_file(options.output, (json.dumps(values, indent=1) + "\n").encode())
    print(json.dumps(values) if options.json else f"{calibration_text(calibration)}\n{NOTICE}")
    return 0 if calibration.passed else 1


def _text_metrics(options: argparse.Namespace) -> int:
    from dataclasses import asdict

    from tumorchain_jax.evaluation.chain.text_metrics import metrics_text, text_metrics

    rows = text_metrics(options.phantoms, options.seed)
    print(json.dumps([*map(asdict, rows)]) if options.json else f"{metrics_text(rows)}\n{NOTICE}")
    return 0


def _styles(options: argparse.Namespace) -> int:
    from tumorchain_jax.evaluation.chain.other_hands import plain, read_styles, styles_text

    rows = read_styles(options.phantoms, options.seed)
    print(json.dumps([*map(plain, rows)]) if options.json else f"{styles_text(rows)}\n{NOTICE}")
    return 0


@contextmanager
def _named(options: argparse.Namespace) -> Iterator["Judge"]:
    match options.by:
        case ["rules"]:
            from tumorchain_jax.evaluation.chain.rules import RulesJudge

            yield RulesJudge()
        case ["endpoint", name]:
            from tumorchain_jax.evaluation.chain.open_judge import (
                check_other,
                endpoint_judge,
                find_endpoint,
            )

            endpoint = find_endpoint(options.endpoints, name)
            if not options.action:
                from tumorchain_jax.evaluation.slices.run import recorded_subject

                # What the evaluation noted counts as well as what the user says.
                recorded = recorded_subject(options.input)
                for subject in {options.subject or recorded, recorded or options.subject}:
                    check_other(endpoint, subject, options.allow_self)
            with endpoint_judge(endpoint, _journal(options), options.allow_remote) as judge:
                yield judge
        case words:
            expected = "rules, or: endpoint NAME"
            raise InputError("command line", "--by", " ".join(words), expected, "name a judge")


def _journal(options: argparse.Namespace) -> Path:
    if options.journal:
        return options.journal
    if options.output:
        return options.output.with_name(f".{options.output.name}.replies.sqlite")
    hint = "give -o, or --journal"
    raise InputError("command line", "--journal", "none", "a file for the replies", hint)
