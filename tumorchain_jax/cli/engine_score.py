"""`tumorchain engine score`: the data engine by rules on reports of known truth."""

import argparse
import json
import os

from tumorchain_jax import NOTICE
from tumorchain_jax.cli.options import SEEDS, Command, check_numbers


def add_score(command: Command) -> None:
    """Add the `engine score` subcommand."""
    score = command("engine score", _score, "Measure the rules on synthetic reports of known truth")
    add = score.add_argument
    add(
        "--patients",
        type=int,
        default=1000,
        metavar="N",
        help="how many, each reported by one writer (default: 1000)",
    )
    add("--seed", type=int, default=10**6, help="seed of the first patient (default: 1000000)")
    add(
        "--style",
        action="append",
        default=[],
        metavar="NAME",
        help="a writer (phantoms/reports/README.md); repeat it for more (default: all, in turn)",
    )
    add("--workers", type=int, default=os.cpu_count(), help="processes (default: one a core)")
    add("--json", action="store_true", help="print everything as JSON")


def _score(options: argparse.Namespace) -> int:
    from tumorchain_jax.engine.measure.measure import measure
    from tumorchain_jax.engine.measure.tables import figures, lines

    check_numbers(options, patients=(1, 10**6), seed=SEEDS, workers=(1, 1024))
    found = figures(measure(options.patients, options.seed, options.style, options.workers))
    if options.json:
        print(json.dumps(found, indent=1))
        return 0
    print("\n".join(lines(found)))
    print(NOTICE)
    return 0
