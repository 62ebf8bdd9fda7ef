"""The load script in its short form: clients, faults and a SIGKILL."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.system(haste=True)


def test_no_answer_goes_to_the_wrong_client_under_load() -> None:
    script = Path(__file__).parents[1] / "system" / "load_serve.py"
    # Memory is judged in the long form alone: here it is still growing to its size.
    command = [sys.executable, str(script), "--seconds", "20", "--clients", "12", "--no-memory"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 failures" in done.stdout
    assert "'answers'" in done.stdout
