"""`tumorchain bust`: BUST-AI Bench, from cases to a report."""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tumorchain_jax import NOTICE
from tumorchain_jax.cli.options import SEEDS, Command, check_numbers
from tumorchain_jax.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tumorchain_jax.llm.progress import Progress

CASES = "folder that `bust cases` wrote"
STUDY = "folder that `bust pages` wrote"


def add_command(command: Command) -> None:
    """Add the subcommands of `bust`."""
    cases = command("bust cases", _cases, "Choose the cases of a reading study, and draw the flow")
    add = cases.add_argument
    add(
        "-i", "--input", type=Path, required=True, metavar="DIR",
        help="folder that `bus prepare` wrote, or any with such a manifest",
    )  # fmt: skip
    add("-o", "--output", type=Path, required=True, metavar="DIR", help="new folder")
    add("--least-side", type=int, default=128, metavar="PX", help="of a picture (default: 128)")
    add("--histopathology", action="store_true", help="refuse lesions without a histopathology")
    add("--allow-text", action="store_true", help="keep pictures with burned-in text")
    add("--json", action="store_true", help="print the flow as JSON")

    pages = command("bust pages", _pages, "Write a page for each reader, to be read offline")
    add = pages.add_argument
    _takes_cases(add)
    add("-o", "--output", type=Path, required=True, metavar="DIR", help="new folder: the study")
    add("--readers", nargs="+", required=True, metavar="NAME", help="two or more")
    add("--arbiter", required=True, metavar="NAME", help="decides where readers differ")
    add("--seed", type=int, default=0, help="of each reader's order of the cases (default: 0)")
    _takes_lexicon(add)

    decide = command("bust adjudicate", _adjudicate, "Import readings; agreement, disputes, log")
    add = decide.add_argument
    _takes_cases(add)
    add("--study", type=Path, required=True, metavar="DIR", help=STUDY)
    add(
        "--files", type=Path, nargs="+", required=True, metavar="FILE",
        help="readings that the readers' pages saved",
    )  # fmt: skip
    add("--arbiter", type=Path, metavar="FILE", help="what the arbiter's page saved")
    add("--json", action="store_true", help="print the agreement as JSON")

    safety = command("bust safety", _safety, "Make pictures on which a confident answer is wrong")
    add = safety.add_argument
    _takes_cases(add)
    add("-o", "--output", type=Path, required=True, metavar="DIR", help="new folder")
    add("--each", type=int, default=30, metavar="N", help="of a group, at most (default: 30)")
    add("--seed", type=int, default=0, help="default: 0")
    add("--ct", type=Path, metavar="DIR", help="pictures of CT slices, for that group")
    add("--abdomen", type=Path, metavar="DIR", help="pictures of the abdomen, for that group")

    ask = command("bust ask", _ask, "Ask a model behind an endpoint; no reply is paid for twice")
    add = ask.add_argument
    _takes_cases(add)
    add("-o", "--output", type=Path, required=True, metavar="DIR", help="the run; resumed if there")
    add("--safety", type=Path, metavar="DIR", help="folder that `bust safety` wrote")
    add("--endpoint", required=True, metavar="NAME", help="of the endpoints file")
    add(
        "--endpoints", type=Path, default=Path("endpoints.toml"), metavar="FILE",
        help="where endpoints are described (llm/README.md); default: endpoints.toml",
    )  # fmt: skip
    add("--allow-remote", action="store_true", help="let pictures leave this machine")
    add("--budget", type=float, metavar="COST", help="the most that all replies may cost")
    add(
        "--sweep", type=int, default=0, metavar="N",
        help="cases that are asked five times at temperatures 0, 0.3, 0.7 and 1 (default: 0)",
    )  # fmt: skip
    add("--seed", type=int, default=0, help="of the draw of these cases (default: 0)")
    add(
        "--thinking", nargs="+", choices=("on", "off"), default=[], metavar="MODE",
        help="on, off, or both to compare them: by the switch that the endpoints file names",
    )  # fmt: skip
    _takes_lexicon(add)
    add("--json", action="store_true", help="print the counts as JSON")

    tiers = command("bust tiers", _tiers, "Sort lesions by difficulty: consensus of classifiers")
    add = tiers.add_argument
    _takes_cases(add)
    add(
        "--family", nargs="+", required=True, metavar="NAME=FILE",
        help="two or more: a family and its scores.jsonl of `bus crossval`, three or more seeds",
    )  # fmt: skip
    add("-o", "--output", type=Path, required=True, metavar="FILE", help="file of the tiers")

    report = command("bust report", _report, "Score a run as the plan says; one page, checklists")
    add = report.add_argument
    _takes_cases(add)
    add(
        "--run", dest="asked", type=Path, required=True, metavar="DIR",
        help="folder that `bust ask` wrote",
    )  # fmt: skip
    add("-o", "--output", type=Path, required=True, metavar="DIR", help="new folder")
    add(
        "--study", type=Path, metavar="DIR",
        help="adjudicated study as the reference; else the categories of the manifest",
    )  # fmt: skip
    add("--tiers", type=Path, metavar="FILE", help="what `bust tiers` wrote")
    add(
        "--classifiers", nargs="+", default=[], metavar="NAME=FILE",
        help="out-of-fold scores of classifiers, beside the model",
    )  # fmt: skip
    add("--json", action="store_true", help="print the scores as JSON")

    simulate = command(
        "bust simulate", _simulate, "Prove the agreement's arithmetic on simulated readers"
    )
    add = simulate.add_argument
    add("--runs", type=int, default=100, metavar="N", help="default: 100")
    add("--cases", type=int, default=200, metavar="N", help="of a run (default: 200)")
    add("--seed", type=int, default=0, help="default: 0")
    add("-i", "--input", type=Path, metavar="DIR", help=f"with --study: {CASES}")
    add(
        "--study", type=Path, metavar="DIR",
        help="instead, write made-up files of the study's readers and arbiter, for a dry run",
    )  # fmt: skip
    add("--json", action="store_true", help="print plain values")


def _takes_cases(add: "Callable[..., object]") -> None:
    add("-i", "--input", type=Path, required=True, metavar="DIR", help=CASES)


def _takes_lexicon(add: "Callable[..., object]") -> None:
    add(
        "--lexicon", default="5", metavar="EDITION",
        help="of BI-RADS: 5 (default), or 2025-provisional, from second-hand sources",
    )  # fmt: skip


def _cases(options: argparse.Namespace) -> int:
    from tumorchain_jax.evaluation.bust.cases import Rules, flow_text, flow_values, write_cases

    check_numbers(options, least_side=(16, 10_000))
    rules = replace(
        Rules(),
        least_side=options.least_side,
        histopathology=options.histopathology,
        allow_text=options.allow_text,
    )
    flow = write_cases(options.input, options.output, rules)
    print(json.dumps(flow_values(flow)) if options.json else flow_text(flow))
    return 0


def _pages(options: argparse.Namespace) -> int:
    from tumorchain_jax.evaluation.bust.page import page_name, write_pages
    from tumorchain_jax.ultrasound.lexicon import load_lexicon

    check_numbers(options, seed=SEEDS)
    study = write_pages(
        options.input, options.output, options.readers, options.arbiter, options.seed,
        load_lexicon(options.lexicon),
    )  # fmt: skip
    print(f"study {study.digest}: {len(study.cases)} cases")
    for reader in study.readers:
        print(f"{reader}: {options.output / page_name(reader)}")
    return 0


def _adjudicate(options: argparse.Namespace) -> int:
    from tumorchain_jax.evaluation.bust.adjudicate import adjudicate, agreement_text
    from tumorchain_jax.evaluation.bust.page import page_name
    from tumorchain_jax.evaluation.bust.study import read_study
    from tumorchain_jax.ultrasound.lexicon import lexicon_with

    study = read_study(options.study)
    lexicon = lexicon_with(study.lexicon, options.study)
    values = adjudicate(
        options.input, options.study, study, lexicon, options.files, options.arbiter
    )
    print(json.dumps(values) if options.json else agreement_text(values))
    if values["complete"]:
        return 0
    # Agreement is printed and the page is there, but there is no reference without the arbiter.
    raise InputError(
        "command line", "--arbiter", f"none, with {values['disputed']} cases in dispute",
        "the file of the arbiter's page", f"read {options.study / page_name(study.arbiter)}",
    )  # fmt: skip


def _simulate(options: argparse.Namespace) -> int:
    from tumorchain_jax.evaluation.bust.dry_run import write_files
    from tumorchain_jax.evaluation.bust.simulate import proof_text, prove
    from tumorchain_jax.ultrasound.lexicon import load_lexicon

    check_numbers(options, runs=(1, 10_000), cases=(10, 10_000), seed=SEEDS)
    if (options.study is None) != (options.input is None):
        found = "one of -i and --study"
        raise InputError("command line", "--study", found, "both or none", "give both")
    if options.study:
        for path in write_files(options.input, options.study, options.seed):
            print(path)
        print(f"Made-up readings: they are nobody's. {NOTICE}", file=sys.stderr)
        return 0
    proof = prove(load_lexicon(), options.runs, options.cases, options.seed)
    print(json.dumps(proof._asdict()) if options.json else proof_text(proof))
    return 0


def _safety(options: argparse.Namespace) -> int:
    from tumorchain_jax.evaluation.bust.safety import write_safety

    check_numbers(options, each=(1, 10_000), seed=SEEDS)
    folders = {"ct": options.ct, "abdomen": options.abdomen}
    others = {name: folder for name, folder in folders.items() if folder}
    counts = write_safety(options.input, options.output, options.each, options.seed, others)
    for group, count in counts.items():
        print(f"{group:10} {count}")
    return 0


def _ask(options: argparse.Namespace) -> int:
    from tqdm import tqdm

    from tumorchain_jax.evaluation.bust.ask import ask
    from tumorchain_jax.evaluation.bust.plan import plan
    from tumorchain_jax.evaluation.chain.open_judge import find_endpoint
    from tumorchain_jax.ultrasound.lexicon import load_lexicon

    check_numbers(options, sweep=(0, 100_000), seed=SEEDS)
    lexicon = load_lexicon(options.lexicon)
    if len(set(options.thinking)) < len(options.thinking):
        found = " ".join(options.thinking)
        raise InputError("command line", "--thinking", found, "each mode once", "leave one out")
    endpoint = find_endpoint(options.endpoints, options.endpoint)
    print(f"statistical plan {plan().sha256}", file=sys.stderr)
    with tqdm(unit="question", disable=None) as bar:

        def tell(progress: "Progress") -> None:
            bar.total = progress.total
            bar.update(1)

        counts = ask(
            options.input, options.safety, options.output, endpoint, lexicon,
            sweep=options.sweep, thinking=options.thinking, seed=options.seed,
            budget=options.budget, allow_remote=options.allow_remote, tell=tell,
        )  # fmt: skip
    told = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    print(json.dumps(counts) if options.json else told)
    return 0


def _named(flag: str, words: list[str]) -> list[tuple[str, Path]]:
    found = []
    for word in words:
        name, sign, path = word.partition("=")
        if not (name and sign and path):
            raise InputError("command line", flag, word[:60], "NAME=FILE", "fix it")
        found.append((name, Path(path)))
    return found


def _tiers(options: argparse.Namespace) -> int:
    from tumorchain_jax.evaluation.bust.tiers import make_tiers, write_tiers

    values = make_tiers(options.input, _named("--family", options.family))
    write_tiers(options.output, values)
    told = ", ".join(f"{count} {tier}" for tier, count in values["counts"].items())
    print(f"{told}; {len(values['without'])} lesions without out-of-fold scores")
    return 0


def _report(options: argparse.Namespace) -> int:
    from tumorchain_jax.evaluation.bust.report import write_report

    values, said = write_report(
        options.input, options.asked, options.output, options.study, options.tiers,
        _named("--classifiers", options.classifiers),
    )  # fmt: skip
    print(json.dumps(values) if options.json else f"{said}\n{NOTICE}")
    return 0
