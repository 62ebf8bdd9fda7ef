"""Killed at any moment, nothing that was answered is paid for again."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from llm_questions import endpoint, questions

from tumorchain_jax.bench.llm_stub import Behaviour, StubServer
from tumorchain_jax.llm.client import ask_all

KILLS, REQUESTS, IN_FLIGHT = 4, 300, 8


@pytest.mark.system
def test_kill_and_resume_buys_nothing_twice(tmp_path: Path) -> None:
    script = Path(__file__).parent / "asks_until_killed.py"
    generator = random.Random(0)
    faults = {"429": 0.05, "500": 0.05, "truncated": 0.05}
    with StubServer(Behaviour(0.03, faults, retry_after_s=0.05)) as server:
        command = [sys.executable, str(script), server.url, str(tmp_path / "j"), str(REQUESTS)]
        for _ in range(KILLS):
            process = subprocess.Popen(command, stdout=subprocess.PIPE)
            assert process.stdout is not None
            process.stdout.readline()  # at work
            time.sleep(generator.uniform(0.0, 0.3))
            process.kill()
            process.wait()
            process.stdout.close()
        paid = server.paid.total()
        assert 0 < paid < REQUESTS
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == f"all {REQUESTS}"
        twice = server.paid.total() - len(server.paid)
        assert twice <= KILLS * IN_FLIGHT
        kept = ask_all(endpoint("http://127.0.0.1:9"), tmp_path / "j", questions(REQUESTS))
    assert all(reply.ok and reply.from_journal for reply in kept)
