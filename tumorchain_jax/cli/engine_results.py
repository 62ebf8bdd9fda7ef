"""Subcommands of `tumorchain engine` that tell of a run, check it and hand it on."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from tumorchain_jax.cli.options import Command
from tumorchain_jax.core.text import printable

RUN = "folder that `engine run` wrote"


def add_results(command: Command) -> None:
    """Add `status`, `show`, `verify`, `card` and `export`."""
    status = command("engine status", _status, "Tell how far a run is, also while it is at work")
    takes_run(status)
    status.add_argument("--json", action="store_true", help="print the counts as JSON")

    show = command(
        "engine show", _show, "Show the chain of custody of a record, down to the reports' words"
    )
    takes_run(show)
    show.add_argument(
        "id", nargs="?", default="", metavar="ID",
        help="of the record, or its beginning: `record` in traces.jsonl (default: the first)",
    )  # fmt: skip
    show.add_argument(
        "-o", "--output", type=Path, metavar="PAGE", help="HTML file (default: ID.html)"
    )
    show.add_argument("--text", action="store_true", help="print it instead")

    verify = command(
        "engine verify", _verify, "Check that every claim of a run rests on facts and the graph"
    )
    takes_run(verify)
    verify.add_argument("--json", action="store_true", help="print the counts as JSON")

    card = command("engine card", _card, "Print the card of a run's data set, as Markdown")
    takes_run(card)

    export = command(
        "engine export", _export, "Write a run's records for prepare and Hugging Face datasets"
    )
    takes_run(export)
    export.add_argument(
        "-o", "--output", type=Path, required=True, metavar="OUT", help="new folder"
    )
    export.add_argument("--json", action="store_true", help="print the counts as JSON")


def takes_run(parser: argparse.ArgumentParser) -> None:
    """Add the folder of a run."""
    parser.add_argument("run_folder", type=Path, metavar="DIR", help=RUN)


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
