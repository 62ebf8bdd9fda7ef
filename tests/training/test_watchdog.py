import json
import time
from pathlib import Path

import pytest

from tumorchain_jax.training.watchdog import Report, Watchdog, stragglers

NOW = 1000.0


def report(
    process: int, step: int, doing: str, since: float = 900.0, reported: float = 999.0
) -> Report:
    return Report(process, f"host{process}", step, doing, since, reported)


OLD = report(3, 1, "data", reported=0.0)
"""Of an earlier run with more processes."""


@pytest.mark.parametrize(
    ("reports", "line"),
    [
        (
            [report(0, 8, "step"), report(1, 8, "step"), report(2, 8, "data", 400.0)],
            "process 2 on host2 is at step 8, waiting for data for 600 s",
        ),
        (
            [report(0, 8, "step"), report(1, 7, "step"), report(2, 8, "data")],
            "process 1 on host1 is at step 7, computing for 100 s",
        ),
        (
            [report(0, 8, "step"), report(1, 8, "step", reported=300.0), report(2, 8, "data")],
            "process 1 on host1 has not reported for 700 s",
        ),
        ([report(0, 8, "step"), report(2, 8, "step")], "process 1 has never reported"),
        (
            [report(n, 8, "step") for n in range(3)],
            "; ".join(
                f"process {n} on host{n} is at step 8, computing for 100 s" for n in range(3)
            ),
        ),
        (
            [report(0, 8, "step"), report(1, 8, "step"), report(2, 8, "checkpoint"), OLD],
            "process 2 on host2 is at step 8, writing a checkpoint for 100 s",
        ),
    ],
    ids=["data", "behind", "silent", "never", "all", "old"],
)
def test_stragglers_are_named(reports: list[Report], line: str) -> None:
    assert stragglers(reports, 3, NOW, 60.0) == line


def test_watchdog_prints_once_per_hang(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dog = Watchdog(tmp_path, 0.2)
    dog.doing(5, "data")
    time.sleep(1.0)
    first = capsys.readouterr().err
    told = json.loads((tmp_path / "processes" / "0.json").read_text())
    assert (told["process"], told["step"], told["doing"]) == (0, 5, "data")
    dog.doing(6, "step")
    time.sleep(1.0)
    second = capsys.readouterr().err
    dog.close()
    assert first.startswith("tumorchain: no progress for 0 s: process 0 on ")
    assert "is at step 5, waiting for data" in first
    assert "is at step 6, computing" in second
    assert first.count("\n") == second.count("\n") == 1


def test_watchdog_without_timeout_does_nothing(tmp_path: Path) -> None:
    dog = Watchdog(tmp_path, 0.0)
    dog.doing(1, "data")
    dog.close()
    assert list(tmp_path.iterdir()) == []
