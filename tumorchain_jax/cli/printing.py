"""Printing of a report's chain at the terminal."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tumorchain_jax.report.report import Report


def printer(quiet: bool) -> Any:
    """Return `print`, or a function that prints nothing."""
    return (lambda line: None) if quiet else print


def print_chain(report: "Report", say: Any) -> None:
    """Print each round of a report, the organs it looked at again, and why it stopped."""
    for number, text, organs in _rounds(report):
        say(f"  round {number}: {text}")
        if organs:
            say(f"           looks again at: {', '.join(organs)}")
    say(f"  stopped: {report.trace.stop_reason.replace('_', ' ')}")


def _rounds(report: "Report") -> Iterator[tuple[int, str, list[str]]]:
    from tumorchain_jax.anatomy.organs import display_name

    for number, each in enumerate(report.trace.rounds, start=1):
        looked = [display_name(m.label) for m in each.organs if m.outcome == "looked_at"]
        # Model text is data: no control characters reach the terminal.
        text = "".join(c if c.isprintable() else " " for c in each.text)
        yield number, text, looked
