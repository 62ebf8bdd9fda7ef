"""`tumorchain compare`: the difference between two runs on the same questions."""

import argparse
import json
from pathlib import Path

from tumorchain_jax import NOTICE
from tumorchain_jax.cli.options import Command, check_numbers
from tumorchain_jax.core.errors import InputError


def add_command(command: Command) -> None:
    """Add the `compare` subcommand."""
    add = command(
        "compare", _compare, "Compare two runs on the same questions, with p and intervals"
    ).add_argument
    add(
        "runs",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="two items.jsonl of `tumorchain evaluate`, or two judged.jsonl of `tumorchain judge`",
    )
    add(
        "--by-size",
        action="store_true",
        help="which organ has the tumour, by its size; questions of one run alone are left out",
    )
    add("--strict", action="store_true", help="exit with 1 where judged runs cannot be compared")
    add(
        "--simulate",
        type=int,
        metavar="DRAWS",
        help="instead, measure false alarms and power of the test on simulated models",
    )
    add("--json", action="store_true", help="print the differences as JSON")


def _compare(options: argparse.Namespace) -> int:
    from tumorchain_jax.evaluation.by_size import differences, differences_text
    from tumorchain_jax.evaluation.chain.compare import compare_judged, judged_text
    from tumorchain_jax.evaluation.chain.judged import read_judged
    from tumorchain_jax.evaluation.compare import compare, compare_text
    from tumorchain_jax.evaluation.items import read_items

    if options.simulate is not None:
        if options.runs or options.by_size or options.strict:
            hint = "leave the others out"
            raise InputError("command line", "--simulate", "runs as well", "it alone", hint)
        return _simulate(options)
    if len(options.runs) != 2:
        hint = "name two files"
        raise InputError("command line", "runs", f"{len(options.runs)}", "two files", hint)
    first, second = options.runs
    names = str(first), str(second)
    kinds = [_is_judged(path) for path in options.runs]
    if any(kinds):
        if not all(kinds) or options.by_size:
            given = "--by-size" if options.by_size else "judged chains and items"
            expected, hint = "two judged.jsonl, or two items.jsonl", "name two files of one kind"
            raise InputError("command line", "runs", given, expected, hint)
        judged = compare_judged(read_judged(first), read_judged(second))
        print(json.dumps(judged) if options.json else f"{judged_text(judged, names)}\n{NOTICE}")
        return int(options.strict and not judged["usable"])
    if options.by_size:
        found = differences(read_items(first), read_items(second))
        print(json.dumps(found) if options.json else f"{differences_text(found)}\n{NOTICE}")
        return 0
    values = compare(read_items(first), read_items(second))
    print(json.dumps(values) if options.json else f"{compare_text(values, names)}\n{NOTICE}")
    return 0


def _is_judged(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            values = json.loads(file.readline())
    except (OSError, ValueError):
        return False  # the reader of items says what is wrong
    return isinstance(values, dict) and "marks" in values


def _simulate(options: argparse.Namespace) -> int:
    from tumorchain_jax.evaluation.simulation import check

    check_numbers(options, simulate=(1, 10**5))
    rows = check(options.simulate)
    if options.json:
        print(json.dumps(rows))
        return 0
    for name, row in rows.items():
        ends = f"[{row['from']:.1f}, {row['to']:.1f}]"
        print(f"{name}: called different in {row['called different']:.1f} % {ends} of "
              f"{row['draws']} draws")  # fmt: skip
    return 0
