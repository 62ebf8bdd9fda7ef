"""`tumorchain weights`: list and fetch published weights."""

import argparse
import json
from typing import TYPE_CHECKING

from tumorchain_jax.cli.options import Command

if TYPE_CHECKING:
    from tumorchain_jax.weights.catalogue import Weights


def add_command(command: Command) -> None:
    """Add the `weights` subcommands."""
    listed = command("weights list", _list, "List published weights: source, size, licence")
    listed.add_argument("--json", action="store_true", help="print the list as JSON")
    pull = command("weights pull", _pull, "Fetch published weights; a stopped download resumes")
    add = pull.add_argument
    add("name", metavar="NAME", help="as in `weights list`")
    add("--accept-licence", action="store_true", help="you have read the licence and accept it")
    add(
        "--mirror",
        default="",
        metavar="URL",
        help="take TotalSegmentator's archives from this address; of models of the Hugging Face "
        "Hub, HF_ENDPOINT names another server",
    )


def _list(options: argparse.Namespace) -> int:
    from tumorchain_jax.weights.catalogue import CATALOGUE
    from tumorchain_jax.weights.pull import is_pulled

    if options.json:
        print(json.dumps([_facts(each) for each in CATALOGUE.values()]))
        return 0
    rows = [
        (
            each.name,
            f"{each.size / 1e9:.1f} GB",
            each.about,
            each.licence,
            each.source + (" (pulled)" if is_pulled(each) else ""),
        )
        for each in CATALOGUE.values()
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
    return 0


def _facts(weights: "Weights") -> dict[str, object]:
    from tumorchain_jax.weights.pull import is_pulled

    return {
        "name": weights.name,
        "about": weights.about,
        "licence": weights.licence,
        "bytes": weights.size,
        "source": weights.source,
        "pulled": is_pulled(weights) if weights.archives else None,
    }


def _pull(options: argparse.Namespace) -> int:
    from tumorchain_jax.weights.pull import find, pull

    weights = find(options.name)
    print(f"{weights.name}: {weights.size / 1e9:.1f} GB, {weights.licence}, {weights.source}")
    path = pull(weights, options.accept_licence, options.mirror)
    print(f"There: {path}\nNext: {weights.after.format(path=path)}")
    return 0
