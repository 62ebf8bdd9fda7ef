"""Who is late, when a run stands still.

A step of several processes ends when the last of them has come. Each tells in a small file what it
is doing; when nothing has moved for long, the first process reads them all and says who is behind.
"""

import json
import socket
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from tumorchain_jax.core.files import AnyPath, write_file

FOLDER = "processes"


class Report(NamedTuple):
    """What a process said of itself.

    Attributes:
        doing: `data`, `step`, `checkpoint`.
        since: when it began that (seconds, as `time.time`).
        told: when it said so.
    """

    process: int
    host: str
    step: int
    doing: str
    since: float
    told: float


class Watchdog:
    """Tells, and in the first process watches, from a thread of its own.

    Args:
        patience: seconds without progress after which it speaks up; 0 for never.
    """

    def __init__(self, workdir: AnyPath, patience: float):
        self._folder, self._patience = workdir / FOLDER, patience
        self._process, self._host = jax.process_index(), socket.gethostname()
        self._now: tuple[int, str, float] = (0, "data", time.time())
        self._complained = 0.0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        if patience:
            self._folder.mkdir(exist_ok=True)
            self._thread.start()

    def doing(self, step: int, what: str) -> None:
        """What the main thread does from now on."""
        self._now = (step, what, time.time())

    def close(self) -> None:
        """End the thread."""
        self._end.set()
        if self._patience:
            self._thread.join(timeout=1)  # it may hang on storage that does

    def _run(self) -> None:
        while not self._end.wait(self._patience / 10):
            try:
                self._tell()
                if self._process == 0:
                    self._watch()
            except (OSError, ValueError, TypeError):
                # Storage that fails is the checkpoints' to report, and a report may be of another
                # version's run.
                continue

    def _tell(self) -> None:
        step, what, since = self._now
        report = Report(self._process, self._host, step, what, since, time.time())
        path = self._folder / f"{self._process}.json"
        write_file(path, json.dumps(report._asdict()).encode())

    def _watch(self) -> None:
        _, _, since = self._now
        still = time.time() - since
        if still < self._patience or self._complained == since:
            return
        reports = [read_report(path) for path in sorted(self._folder.glob("*.json"))]
        line = who_is_late(reports, jax.process_count(), time.time(), self._patience)
        print(f"tumorchain: no progress for {still:.0f} s: {line}", file=sys.stderr, flush=True)
        self._complained = since


def read_report(path: AnyPath) -> Report:
    """A process's own word."""
    values: dict[str, Any] = json.loads(path.read_text())
    return Report(**values)


def who_is_late(reports: Sequence[Report], processes: int, now: float, patience: float) -> str:
    """One line: which processes hold up the others.

    Late is who has said nothing for long; else who is at an earlier step than others; else who
    does something else than to compute the step, in which the others wait for it.
    """
    reports = [report for report in reports if report.process < processes]
    told = {report.process for report in reports}
    unheard = [f"process {number} has never reported" for number in range(processes)]
    lost = [line for number, line in enumerate(unheard) if number not in told]
    lost += [
        f"{_name(report)} has not reported for {now - report.told:.0f} s"
        for report in reports
        if now - report.told > patience
    ]
    if lost:
        return "; ".join(lost)
    newest = max(report.step for report in reports)
    behind = [report for report in reports if report.step < newest]
    behind = behind or [report for report in reports if report.doing != "step"]
    late = behind or reports
    what = {"data": "waiting for data", "step": "computing", "checkpoint": "writing a checkpoint"}
    return "; ".join(
        f"{_name(report)} is at step {report.step}, {what[report.doing]} for "
        f"{now - report.since:.0f} s"
        for report in late
    )


def _name(report: Report) -> str:
    return f"process {report.process} on {report.host}"
