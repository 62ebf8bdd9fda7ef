"""Runs that are killed: nothing is lost, nothing doubled, the bytes are the same."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import kill_runs
import pytest

from tumorchain_jax.core.text import printable
from tumorchain_jax.engine.run.status import status

MakeCases = Callable[..., Path]
pytestmark = pytest.mark.system(haste=True)


def start(cases: Path, folder: Path, seconds: float, limit: int = -1) -> subprocess.Popen[str]:
    """Start the command with agents that take their time, and perhaps a small disk."""
    script = f"""
import functools, resource, sys, time
from tumorchain_jax.cli.main import main
from tumorchain_jax.engine.run import agents
from tumorchain_jax.engine.agents.pipeline import process

def slowly(case, settings):
    time.sleep({seconds})
    return process(case, settings)

agents.process = slowly
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
sys.exit(main(["engine", "run", "-i", {str(cases)!r}, "-o", {str(folder)!r}, "--workers", "1"]))
"""
    return subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for(folder: Path, cases: int) -> None:
    for _ in range(600):
        if (folder / ".engine" / "run.json").is_file() and status(folder).done >= cases:
            return
        time.sleep(0.02)
    raise AssertionError(f"not {cases} cases in time")


def test_killed_runs_give_the_bytes_of_an_undisturbed_one(
    make_cases: MakeCases, tmp_path: Path
) -> None:
    cases, draw = make_cases(30), random.Random(0)
    for number in (6, 18):
        process = start(cases, tmp_path / "killed", 0.02)
        wait_for(tmp_path / "killed", number)
        process.kill()
        process.communicate()
        assert status(tmp_path / "killed").done < 30
        kill_runs.tear(tmp_path / "killed", draw)
    for name in ("killed", "undisturbed"):
        _, error = start(cases, tmp_path / name, 0.0).communicate()
        assert error == ""
    assert kill_runs.compare(tmp_path / "undisturbed", tmp_path / "killed") == {
        "lost": 0, "doubled": 0, "other files": 0,
    }  # fmt: skip


def test_sigterm_drains_and_the_command_says_so(make_cases: MakeCases, tmp_path: Path) -> None:
    process = start(make_cases(200), tmp_path / "out", 0.02)
    wait_for(tmp_path / "out", 3)
    os.kill(process.pid, signal.SIGTERM)
    out, error = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")
    found = status(tmp_path / "out")
    assert 3 <= found.done < 200
    assert error == (
        f"tumorchain: stopped after {found.done} of 200 cases; rerun the same command to resume\n"
    )


def test_full_disk_is_one_line_and_loses_nothing(make_cases: MakeCases, tmp_path: Path) -> None:
    cases = make_cases(12)
    process = start(cases, tmp_path / "out", 0.0, limit=20_000)
    out, error = process.communicate()
    assert (process.returncode, out) == (2, "")
    assert "out: output: found File too large, expected a place to write to; free some" in error
    assert error.count("\n") == 1
    assert printable(error) == error
    assert not (tmp_path / "out" / "records.jsonl").exists()
    assert status(tmp_path / "out").done > 0
    _, error = start(cases, tmp_path / "out", 0.0).communicate()
    assert error == ""
    assert status(tmp_path / "out").is_complete
