"""Killed at any moment, nothing that was answered is paid for again."""

from pathlib import Path

import pytest
from kill_calls import IN_FLIGHT, kill_and_resume


@pytest.mark.system
def test_kill_and_resume_buys_nothing_twice(tmp_path: Path) -> None:
    found = kill_and_resume(tmp_path, 3, 240)
    assert found["kills"] == 3
    assert found["most at a kill"] <= IN_FLIGHT
    assert (found["paid again"], found["not kept"]) == (0, 0)
