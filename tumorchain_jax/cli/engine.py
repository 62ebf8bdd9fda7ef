"""`tumorchain engine`: make questions with chains of thought from reports (TumorCoT)."""

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from tumorchain_jax import NOTICE
from tumorchain_jax.cli.engine_score import add_score
from tumorchain_jax.cli.options import SEEDS, Command, check_numbers
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.text import printable

if TYPE_CHECKING:
    from tumorchain_jax.engine.run.agents import Choice

LIST = "JSON lines with case, patient, scans, radiology (paths from the list's folder), and " \
    "pathology, masks, language, sex, age where they are known"  # fmt: skip
RUN = "folder that `engine run` wrote"
MOST_REVIEWED = 100_000


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

    status = command("engine status", _status, "Tell how far a run is, also while it is at work")
    _takes_run(status)
    status.add_argument("--json", action="store_true", help="print the counts as JSON")

    show = command(
        "engine show", _show, "Show the chain of custody of a record, down to the reports' words"
    )
    _takes_run(show)
    show.add_argument("id", metavar="ID", help="of the record, or its beginning (traces.jsonl)")
    show.add_argument(
        "-o", "--output", type=Path, metavar="PAGE", help="HTML file (default: ID.html)"
    )
    show.add_argument("--text", action="store_true", help="print it instead")

    verify = command(
        "engine verify", _verify, "Check that every claim of a run rests on facts and the graph"
    )
    _takes_run(verify)
    verify.add_argument("--json", action="store_true", help="print the counts as JSON")

    card = command("engine card", _card, "Print the card of a run's data set, as Markdown")
    _takes_run(card)

    export = command(
        "engine export", _export, "Write a run's records for prepare and Hugging Face datasets"
    )
    _takes_run(export)
    export.add_argument(
        "-o", "--output", type=Path, required=True, metavar="OUT", help="new folder"
    )
    export.add_argument("--json", action="store_true", help="print the counts as JSON")

    review = command(
        "engine review", _review, "Have people judge a sample; tell their rates and agreement"
    )
    _takes_run(review)
    add = review.add_argument
    add(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="REVIEW",
        help="folder of the review: made with a page for each reviewer if it is not there",
    )
    add("--sample", type=int, default=5000, metavar="N", help="records to review (default: 5000)")
    add("--seed", type=int, default=0, help="seed of the sample")
    add(
        "--reviewers",
        nargs="+",
        default=["A", "B"],
        metavar="NAME",
        help="letters and digits, one page each (default: A B)",
    )
    add(
        "--verdicts",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="files that the pages wrote: print rates and agreement; write the records that were "
        "corrected to REVIEW/corrected.jsonl",
    )
    add("--serve", metavar="NAME", help="hand a reviewer's page to the browsers of this machine")
    add("--port", type=int, default=0, help="of --serve (default: one that is free)")
    add("--json", action="store_true", help="print counts or rates as JSON")
    add_score(command)


def _takes_cases(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-i", "--input", type=Path, required=True, metavar="CASES", help=LIST
    )  # fmt: skip


def _takes_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_folder", type=Path, metavar="DIR", help=RUN)


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


def _status(options: argparse.Namespace) -> int:
    from tumorchain_jax.engine.run.status import status, text

    found = status(options.run_folder)
    print(json.dumps(asdict(found)) if options.json else printable(text(found)))
    return 0


def _show(options: argparse.Namespace) -> int:
    from tumorchain_jax.core.files import write_file
    from tumorchain_jax.engine.graph.load import shipped_graph
    from tumorchain_jax.engine.run import reading, show

    case, kept = reading.find(options.run_folder, options.id)
    if options.text:
        print(printable(show.text(case, kept, shipped_graph())))
        return 0
    path = options.output or Path(f"{kept.trace.record}.html")
    write_file(path, show.html(case, kept, shipped_graph()).encode())
    print(path)
    return 0


def _verify(options: argparse.Namespace) -> int:
    from tumorchain_jax.engine.run.verify import verify

    checked = verify(options.run_folder)
    if options.json:
        print(json.dumps(asdict(checked)))
    else:
        for line in checked.shown:
            print(printable(line, allowed=""))
        print(
            f"{checked.cases} cases, {checked.records} records, {checked.claims} claims, "
            f"{checked.facts} facts: {checked.problems} problems"
        )
    return 1 if checked.problems else 0


def _card(options: argparse.Namespace) -> int:
    from tumorchain_jax.engine.run.outputs import CARD
    from tumorchain_jax.engine.run.reading import check_complete

    check_complete(options.run_folder)
    print(printable((options.run_folder / CARD).read_text("utf-8")), end="")
    return 0


def _export(options: argparse.Namespace) -> int:
    from tumorchain_jax.engine.run.export import export

    counts = export(options.run_folder, options.output)
    if options.json:
        print(json.dumps({"folder": str(options.output), **counts}))
    else:
        sides = ", ".join(f"{count} records to {side}" for side, count in counts.items())
        print(f"{options.output}: {sides}")
    return 0


def _review(options: argparse.Namespace) -> int:
    from tumorchain_jax.engine.review.page import page_name, write_review

    check_numbers(options, sample=(1, MOST_REVIEWED), seed=SEEDS, port=(0, 65535))
    if not options.output.exists():
        counts = write_review(
            options.run_folder, options.output, options.reviewers, options.sample, options.seed
        )
        if options.json and not (options.verdicts or options.serve):
            print(json.dumps({"folder": str(options.output), **counts}))
        else:
            print(f"{sum(counts.values())} records to review")
            for name in options.reviewers:
                print(f"for {name}: {options.output / page_name(name)}")
    elif not (options.verdicts or options.serve):
        from tumorchain_jax.core.files import staging_path

        staging_path(options.output)  # refuses what is there already
    if options.serve:
        return _serve(options)
    if options.verdicts:
        return _score(options)
    return 0


def _serve(options: argparse.Namespace) -> int:
    from tumorchain_jax.engine.review.server import ReviewServer

    with ReviewServer(options.output, options.serve, options.port) as server:
        print(f"{server.address}\nverdicts: {server.verdicts}\nCtrl-C ends it", flush=True)
        server.serve_forever()
    return 0


def _score(options: argparse.Namespace) -> int:
    from tumorchain_jax.engine.review import verdicts
    from tumorchain_jax.engine.review.sample import read_sample

    sample = read_sample(options.output)
    files: dict[str, dict[str, verdicts.Verdict]] = {}
    for path in options.verdicts:
        reviewer, read = verdicts.read_verdicts(path, sample)
        if reviewer in files:
            expected = "one file of each reviewer"
            raise InputError(path, "reviewer", f"{reviewer} again", expected, "leave one out")
        files[reviewer] = read
    facts = verdicts.summary(sample, files)
    written, problems = verdicts.write_corrected(options.run_folder, options.output, files)
    if options.json:
        print(json.dumps(verdicts.plain(facts) | {"corrected": written, "problems": problems}))
        return 0
    print(printable(verdicts.text(facts)))
    if written or problems:
        print(f"corrected: {written} records in {options.output / verdicts.CORRECTED}")
    for problem in problems:
        print(printable(f"not taken: {problem}", allowed=""))
    return 0
