"""`tumorchain engine`: make questions with chains of thought from reports (TumorCoT)."""

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from tumorchain_jax import NOTICE
from tumorchain_jax.cli.engine_results import add_results
from tumorchain_jax.cli.engine_review import add_review
from tumorchain_jax.cli.engine_score import add_score
from tumorchain_jax.cli.options import Command, check_numbers
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.text import printable

if TYPE_CHECKING:
    from tumorchain_jax.engine.run.agents import Choice

LIST = "JSON lines with case, patient, scans, radiology (paths from the list's folder), and " \
    "pathology, masks, language, sex, age where they are known"  # fmt: skip


def add_command(command: Command) -> None:
    """Add the subcommands of `engine`."""
    run = command("engine run", _run, "Make records, facts and traces from a list of cases")
    _takes_cases(run)
    _takes_agents(run)
    add = run.add_argument
    add(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder to write to; rerun the same command to resume, also with more cases",
    )
    by = run.add_mutually_exclusive_group()
    by.add_argument(
        "--workers",
        type=int,
        default=os.cpu_count(),
        help="processes, or cases at a time where an agent is a language model (default: one for "
        "each core)",
    )
    by.add_argument(
        "--ray",
        nargs="?",
        const="",
        metavar="ADDRESS",
        help="work on a Ray cluster (default: the one that Ray finds, else this machine)",
    )
    add("--retry", action="store_true", help="work again on cases of which something was set aside")
    add("--json", action="store_true", help="print the counts as JSON")

    plan = command(
        "engine plan", _plan, "Check a list of cases; tell calls, tokens, price and hours of a run"
    )
    _takes_cases(plan)
    _takes_agents(plan)
    plan.add_argument("--json", action="store_true", help="print the plan as JSON")

    masks = command("engine masks", _masks, "Measure the masks of a scan, for the list of cases")
    add = masks.add_argument
    add("-i", "--input", type=Path, required=True, metavar="SCAN", help="CT that is measured")
    add("--labels", type=Path, metavar="MAP", help="its organs: TotalSegmentator v2 `total` ids")
    add(
        "--weights", type=Path, metavar="DIR",
        help="segmenter that makes the organs where no --labels are given",
    )  # fmt: skip
    add("--lesions", type=Path, metavar="MAP", help="its lesions: n in the n-th, else 0")
    add(
        "-o", "--output", type=Path, required=True, metavar="FILE",
        help="facts as JSON lines; `masks` of the case names it",
    )  # fmt: skip

    graph = command("engine graph", _graph, "Draw the knowledge graph as a page")
    graph.add_argument(
        "-o", "--output", type=Path, default=Path("graph.html"), metavar="PAGE",
        help="HTML file (default: graph.html)",
    )  # fmt: skip

    add_results(command)
    add_review(command)
    add_score(command)


def _takes_cases(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-i", "--input", type=Path, required=True, metavar="CASES", help=LIST
    )  # fmt: skip


def _takes_agents(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--mix",
        choices=("natural", "paper"),
        default="natural",
        help="of tasks: as the reports give them, or thinned out to the paper's shares",
    )
    add(
        "--agent",
        nargs="+",
        default=[],
        metavar="AGENT=BACKEND",
        help="backend of extractor, reasoner, calibrator or summarizer: rules, or llm:NAME of an "
        "endpoint (default: rules)",
    )
    add("--endpoints", type=Path, metavar="FILE", help="TOML file of language models' endpoints")
    add("--budget", type=float, metavar="PRICE", help="stop before more than this is spent")
    add("--allow-remote", action="store_true", help="permit endpoints on other machines")
    add(
        "--allow-raw",
        action="store_true",
        help="send reports to endpoints as they are, without replacing names, dates and numbers",
    )
    add(
        "--same-family",
        action="store_true",
        help="permit models of one family for reasoner and calibrator",
    )


def _choice(options: argparse.Namespace) -> "Choice":
    from tumorchain_jax.engine.run.agents import Choice

    return Choice(
        backends=tuple(options.agent),
        endpoints=options.endpoints,
        budget=options.budget,
        allow_remote=options.allow_remote,
        allow_raw=options.allow_raw,
        same_family=options.same_family,
        mix=options.mix,
    )


def _run(options: argparse.Namespace) -> int:
    from tumorchain_jax.core.workers import RayWorkers, local_workers
    from tumorchain_jax.engine.cases import read_cases
    from tumorchain_jax.engine.run.agents import made, threads
    from tumorchain_jax.engine.run.run import run

    check_numbers(options, workers=(1, 1024))
    choice = _choice(options)
    if options.ray is not None and not choice.all_by_rules:
        found, expected = "--ray with a language model", "--workers"
        hint = "its calls share one journal of replies, in one process"
        raise InputError("command line", "--ray", found, expected, hint)
    cases = read_cases(options.input)
    with made(choice, options.output) as agents:
        local = threads if agents.share_memory else local_workers
        with RayWorkers(options.ray) if options.ray is not None else local(options.workers) as by:
            done = run(
                options.output,
                cases,
                agents.process,
                agents.settings,
                by,
                prepare=agents.prepare,
                mix=options.mix,
                retry=options.retry,
                note=agents.note,
            )
        told = agents.told()
    for line in (*(f"warning: {warning}" for warning in done.warnings), *told):
        print(printable(f"tumorchain: {line}", allowed=""), file=sys.stderr)
    if options.json:
        print(json.dumps({"folder": str(options.output), **asdict(done)}))
    else:
        print(
            f"{options.output}\n"
            f"cases: {done.cases}, of which {done.already_done} done by an earlier run\n"
            f"records: {done.records}; left out: {done.left_out} that repeat another, tell their "
            f"answer or cannot be judged{f', {done.thinned} for the mix' if done.thinned else ''}\n"
            f"set aside: {done.rejected} chains, {done.failed} cases"
        )
        if done.rejected or done.failed:
            print(f"reasons: {options.output / 'rejected.jsonl'}")
        print(f"card: {options.output / 'README.md'}")
        print(NOTICE)
    if not done.records:
        said = "no record: the reports name no finding in an organ that is asked about"
        print(f"tumorchain: {said}", file=sys.stderr)
    # A run of which nothing came, or some cases failed, is no success for a script.
    return 1 if done.failed or not done.records else 0


def _plan(options: argparse.Namespace) -> int:
    from tumorchain_jax.engine.cases import check_cases
    from tumorchain_jax.engine.run.plan import plan, text

    choice = _choice(options)
    cases, problems = check_cases(options.input)
    for problem in problems:
        print(f"tumorchain: error: {problem}", file=sys.stderr)
    if problems:
        return 2
    facts = plan(cases, choice)
    print(json.dumps(facts) if options.json else text(facts))
    return 0


def _masks(options: argparse.Namespace) -> int:
    from tumorchain_jax.engine.measurements import write_measurements
    from tumorchain_jax.engine.segmenter import measure_files
    from tumorchain_jax.segmentation.factory import read_segmenter

    if (options.labels is None) == (options.weights is None):
        found = "both" if options.labels else "neither"
        expected = "one of --labels and --weights"
        raise InputError("command line", "organs", found, expected, "give one of them")
    segmenter = read_segmenter(options.weights) if options.weights else None
    facts = measure_files("", options.input, options.labels, options.lesions, segmenter)
    write_measurements(options.output, facts)
    organs = len({fact.organ for fact in facts})
    lesions = sum(fact.attribute == "finding" for fact in facts)
    print(f"{options.output}: {len(facts)} facts of {organs} organs and {lesions} lesions")
    print(NOTICE)
    return 0


def _graph(options: argparse.Namespace) -> int:
    from tumorchain_jax.core.files import write_file
    from tumorchain_jax.engine.graph.load import shipped_graph
    from tumorchain_jax.engine.graph.page import graph_page

    if options.output.is_dir():
        hint = "name a file, such as graph.html"
        raise InputError(options.output, "output", "a folder", "a file", hint)
    write_file(options.output, graph_page(shipped_graph()).encode())
    print(options.output)
    return 0
