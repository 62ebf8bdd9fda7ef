"""Hang watchdog: names the processes that hold up a run that makes no progress.

A step of several processes ends when the last of them has finished. Each process reports in a small
file what it is doing; without progress for long, the primary process reads the reports and prints
the stragglers.
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
    """The report of a process.

    Attributes:
        doing: `data`, `step`, `checkpoint`.
        since: when it began that (seconds, as `time.time`).
        reported: when it reported.
    """

    process: int
    host: str
    step: int
    doing: str
    since: float
    reported: float


class Watchdog:
    """Reports, and in the primary process watches, from a thread of its own.

    Args:
        hang_timeout_s: seconds without progress after which it prints; 0 for never.
    """

    def __init__(self, workdir: AnyPath, hang_timeout_s: float):
        self._folder, self._hang_timeout_s = workdir / FOLDER, hang_timeout_s
        self._process, self._host = jax.process_index(), socket.gethostname()
        self._now: tuple[int, str, float] = (0, "data", time.time())
        self._complained = 0.0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        if hang_timeout_s:
            self._folder.mkdir(exist_ok=True)
            self._thread.start()

    def doing(self, step: int, what: str) -> None:
        """Record what the main thread does from now on: `data`, `step` or `checkpoint`."""
        self._now = (step, what, time.time())

    def close(self) -> None:
        """End the thread."""
        self._end.set()
        if self._hang_timeout_s:
            self._thread.join(timeout=1)  # it may hang on storage that does

    def _run(self) -> None:
        while not self._end.wait(self._hang_timeout_s / 10):
            try:
                self._report()
                if self._process == 0:
                    self._watch()
            except (OSError, ValueError, TypeError):
                # Checkpoints report storage that fails; a report may be of another version.
                continue

    def _report(self) -> None:
        step, what, since = self._now
        report = Report(self._process, self._host, step, what, since, time.time())
        content = json.dumps(report._asdict()).encode()
        write_file(self._folder / f"{self._process}.json", content)

    def _watch(self) -> None:
        _, _, since = self._now
        still = time.time() - since
        if still < self._hang_timeout_s or self._complained == since:
            return
        reports = [read_report(path) for path in sorted(self._folder.glob("*.json"))]
        line = stragglers(reports, jax.process_count(), time.time(), self._hang_timeout_s)
        print(f"tumorchain: no progress for {still:.0f} s: {line}", file=sys.stderr, flush=True)
        self._complained = since


def read_report(path: AnyPath) -> Report:
    """Read the report of a process."""
    values: dict[str, Any] = json.loads(path.read_text())
    return Report(**values)


def stragglers(reports: Sequence[Report], processes: int, now: float, hang_timeout_s: float) -> str:
    """Describe in one line which processes hold up the others.

    These are the processes that have not reported for long; else those at an earlier step than
    others; else those that do not compute the step, in which the others wait for them.
    """
    reports = [report for report in reports if report.process < processes]
    seen = {report.process for report in reports}
    unheard = [f"process {number} has never reported" for number in range(processes)]
    lost = [line for number, line in enumerate(unheard) if number not in seen]
    lost += [
        f"{_name(report)} has not reported for {now - report.reported:.0f} s"
        for report in reports
        if now - report.reported > hang_timeout_s
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
