"""How far a run is, read from its folder at any time."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import locked
from tumorchain_jax.engine.run.outputs import SUMS
from tumorchain_jax.engine.run.run import read_run
from tumorchain_jax.engine.run.store import read_places

MOST_SHOWN = 20


@dataclass(frozen=True)
class Status:
    """How far a run is.

    Attributes:
        cases: in its list.
        done: of these, by now; cases that have left the list since are counted too.
        records: of the cases that are done.
        left_out: reason -> records.
        rejected: reason -> chains set aside.
        failed: reason -> cases.
        is_complete: whether the outputs are there.
        is_running: whether a process is at work on it.
    """

    cases: int
    done: int
    records: int
    left_out: Mapping[str, int]
    rejected: Mapping[str, int]
    failed: Mapping[str, int]
    is_complete: bool
    is_running: bool


def status(folder: Path) -> Status:
    """Read how far a run is, also while it is at work.

    Raises:
        InputError: the folder is none of a run.
    """
    cases = read_run(folder)["cases"]
    done = records = 0
    left_out: Counter[str] = Counter()
    rejected: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for path in sorted((folder / ".engine" / "cases").glob("*.frames")):
        heads = {place.head.case: place.head for place in read_places(path)}
        for head in heads.values():
            done += 1
            records += len(head.records)
            rejected.update(head.rejected)
            left_out.update(head.left_out)
            failed.update([head.error] if head.error else [])
    try:
        with locked(folder / ".engine" / "lock", folder):
            is_running = False
    except InputError:
        is_running = True
    complete = (folder / SUMS).is_file()
    return Status(
        cases, done, records, dict(left_out), dict(rejected), dict(failed), complete, is_running
    )  # fmt: skip


def text(found: Status) -> str:
    """The same as lines."""
    state = "complete" if found.is_complete else "not complete"
    lines = [
        f"{state}{', at work now' if found.is_running else ''}",
        f"cases: {found.done} of {found.cases}",
        f"records: {found.records}",
    ]
    lines += _most("left out", "records", found.left_out)
    lines += _most("set aside", "chains", found.rejected)
    lines += _most("failed", "cases", found.failed)
    return "\n".join(lines)


def _most(what: str, unit: str, reasons: Mapping[str, int]) -> list[str]:
    """The most frequent reasons first."""
    order = sorted(reasons, key=lambda reason: (-reasons[reason], reason))
    lines = [f"{what}: {reasons[reason]} {unit}: {reason}" for reason in order[:MOST_SHOWN]]
    if rest := sum(reasons[reason] for reason in order[MOST_SHOWN:]):
        lines.append(f"{what}: {rest} {unit} for {len(order) - MOST_SHOWN} other reasons")
    return lines
