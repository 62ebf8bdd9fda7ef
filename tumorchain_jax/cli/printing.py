"""Printing at the terminal: plain lines, and a report's chain."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tumorchain_jax.core.text import printable

if TYPE_CHECKING:
    from tumorchain_jax.report.report import Report

Say = Callable[[str], None]


def printer(quiet: bool = False) -> Say:
    """Return a function that prints a line without control characters, or prints nothing."""
    return (lambda line: None) if quiet else (lambda line: print(printable(line)))


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Show on stderr what runs now and, once it is done, how long it took: in one line at a
    terminal, in two elsewhere."""
    terminal = sys.stderr.isatty()
    print(f"{name} ...", end="" if terminal else "\n", file=sys.stderr, flush=True)
    started = time.monotonic()
    ended = "stopped"
    try:
        yield
        ended = f"{time.monotonic() - started:.1f} s"
    finally:
        print(f" {ended}" if terminal else f"{name}: {ended}", file=sys.stderr, flush=True)


def print_chain(report: "Report", say: Say) -> None:
    """Print each round of a report, the organs it looked at again, and why the chain stopped."""
    from tumorchain_jax.anatomy.organs import display_name

    for number, each in enumerate(report.trace.rounds, start=1):
        say(f"  round {number}: {printable(each.text, allowed='')}")
        looked = [display_name(m.label) for m in each.organs if m.outcome == "looked_at"]
        if looked:
            say(f"           looks again at: {', '.join(looked)}")
    say(f"  stopped: {report.trace.stop_reason.replace('_', ' ')}")


def print_conclusion(report: "Report", say: Say) -> None:
    """Print the answer, or why there is none, and what is known about how far to rely on it."""
    verdict = report.verdict
    say(f"Conclusion: {report.headline}")
    if verdict is None:
        return
    if not verdict.answered:
        text = printable(report.conclusion, allowed="") or "nothing"
        say(f"  the model's text, not to be relied on: {text}")
    say(f"  {verdict.confidence.text}; {verdict.measured}")
