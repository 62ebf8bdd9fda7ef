"""`tumorchain judge`: mark the chains of an evaluation, and measure the judges that do it."""

import argparse
import json
import sys
from argparse import SUPPRESS
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tumorchain_jax import NOTICE
from tumorchain_jax.cli.options import SEEDS, Command, check_numbers
from tumorchain_jax.core.errors import InputError

if TYPE_CHECKING:
    from tumorchain_jax.evaluation.chain.verdict import Judge


def add_command(command: Command) -> None:
    """Add `judge`, and its subcommands `calibrate` and `agree`."""
    add = command("judge", _judge, "Mark chains of thought (TumorChain-Eval)").add_argument
    add("-i", "--input", type=Path, metavar="FILE", help="items.jsonl of `tumorchain evaluate`")
    add(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        help="new folder for marks, scores and page; a stopped run is resumed",
    )
    _takes_judge(add, ["rules"], Path("endpoints.toml"), False, None)
    add("--calibration", type=Path, metavar="FILE", help="what this judge was measured at")
    add("--subject", default="", metavar="MODEL", help="the model that wrote the chains")
    add("--allow-self", action="store_true", help="let a model judge its own chains")
    add("--strict", action="store_true", help="exit with 1 where over 2 %% of the chains failed")
    add("--rescore", type=Path, metavar="DIR", help="score a judged folder again, without a judge")
    add("--json", action="store_true", help="print the scores as JSON")

    calibrate = command(
        "judge calibrate", _calibrate, "Measure a judge on reports of known worth, against bars"
    )
    add = calibrate.add_argument
    add(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        default=SUPPRESS,
        help="new file for the calibration, which `judge --calibration` takes",
    )
    _takes_judge(add, SUPPRESS, SUPPRESS, SUPPRESS, SUPPRESS)
    add("--phantoms", type=int, default=300, metavar="N", help="patients of each probe")
    add("--seed", type=int, default=6_000_000, metavar="N", help="of the first patient")
    instead = calibrate.add_mutually_exclusive_group()
    instead.add_argument(
        "--text-metrics",
        action="store_true",
        help="instead, what BLEU, chrF and ROUGE are worth on the same reports",
    )
    instead.add_argument(
        "--styles",
        action="store_true",
        help="instead, how the rules read reports that were written apart from them",
    )
    add(
        "--rad-eval",
        nargs="+",
        metavar=("PYTHON", "METRIC"),
        help="with --text-metrics: an interpreter that has the package radeval, and metrics of it",
    )
    add("--json", action="store_true", default=SUPPRESS, help="print the calibration as JSON")

    agree = command(
        "judge agree", _agree, "Compare judges of the same chains: Krippendorff's alpha, medians"
    )
    add = agree.add_argument
    add("runs", nargs="+", type=Path, metavar="DIR", help="folders of `judge -o`, two or more")
    add("--json", action="store_true", default=SUPPRESS, help="print the agreement as JSON")


def _takes_judge(add: Callable[..., Any], by: Any, endpoints: Any, remote: Any, kept: Any) -> None:
    """Add the flags that name a judge, with their defaults."""
    add(
        "--by",
        nargs="+",
        default=by,
        metavar="JUDGE",
        help="rules (the default, offline), or: endpoint NAME, of the endpoints file",
    )
    add(
        "--endpoints",
        type=Path,
        default=endpoints,
        metavar="FILE",
        help="where endpoints are described (llm/README.md); default: endpoints.toml",
    )
    add(
        "--allow-remote",
        action="store_true",
        default=remote,
        help="let texts leave this machine",
    )
    add(
        "--journal",
        type=Path,
        default=kept,
        metavar="FILE",
        help="replies that were paid for, never asked for again; default: beside the output",
    )


def _judge(options: argparse.Namespace) -> int:
    from tumorchain_jax.evaluation.chain.run import judge_items, read_calibration, rescore

    if (options.input is None) == (options.rescore is None):
        hint = "name one file of items, or one folder to score again"
        raise InputError("command line", "-i, --rescore", "none or both", "one of them", hint)
    if options.rescore:
        _check_alone(options, "output", "calibration", "subject", "journal", "allow_self")
        values, text = rescore(options.rescore)
    else:
        calibration = read_calibration(options.calibration) if options.calibration else None
        with _named(options) as judge:
            values, text = judge_items(
                options.input, options.output, judge, calibration, options.subject
            )
    print(json.dumps(values) if options.json else text, end="\n" if options.json else "")
    return int(not values["judged"] or (options.strict and not values["usable"]))


def _agree(options: argparse.Namespace) -> int:
    from tumorchain_jax.evaluation.chain.agree import agree, agree_text, read_run

    _check_alone(options, *_OWN)
    values = agree([read_run(folder) for folder in options.runs])
    print(json.dumps(values) if options.json else f"{agree_text(values)}\n{NOTICE}")
    return 0


def _calibrate(options: argparse.Namespace) -> int:
    from tumorchain_jax.core.files import write_file
    from tumorchain_jax.evaluation.chain.bars import too_few
    from tumorchain_jax.evaluation.chain.calibrate import calibrate
    from tumorchain_jax.evaluation.chain.run import calibration_values
    from tumorchain_jax.evaluation.chain.text import calibration_text

    _check_alone(options, *_OWN)
    check_numbers(options, phantoms=(1, 10**5), seed=SEEDS)
    if options.output and options.output.exists():
        found = "a folder" if options.output.is_dir() else "there already"
        raise InputError(options.output, "output", found, "a new file", "name another")
    if options.rad_eval and (len(options.rad_eval) < 2 or not options.text_metrics):
        found, expected = " ".join(options.rad_eval), "PYTHON and metrics, with --text-metrics"
        raise InputError("command line", "--rad-eval", found, expected, "name both")
    if options.text_metrics:
        return _text_metrics(options)
    if options.styles:
        return _styles(options)
    if note := too_few(options.phantoms):
        print(f"tumorchain: {note}", file=sys.stderr)
    with _named(options) as judge:
        calibration = calibrate(judge, options.phantoms, options.seed)
    values = calibration_values(calibration)
    if options.output:
        write_file(options.output, (json.dumps(values, indent=1) + "\n").encode())
    print(json.dumps(values) if options.json else f"{calibration_text(calibration)}\n{NOTICE}")
    return 0 if calibration.passed else 1


_OWN = ("input", "rescore", "calibration", "subject", "allow_self", "strict")


def _check_alone(options: argparse.Namespace, *flags: str) -> None:
    """Refuse flags that mean nothing to what is done."""
    for flag in flags:
        if getattr(options, flag):
            name = f"--{flag.replace('_', '-')}"
            raise InputError("command line", name, "given", "only where chains are judged",
                             "leave it out")  # fmt: skip


def _text_metrics(options: argparse.Namespace) -> int:
    from dataclasses import asdict

    from tumorchain_jax.evaluation.chain.text_metrics import metrics_text, text_metrics

    others = None
    if options.rad_eval:
        others = Path(options.rad_eval[0]), options.rad_eval[1:]
    rows = text_metrics(options.phantoms, options.seed, others)
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
            if options.input:
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
