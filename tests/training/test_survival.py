"""Runs of real processes that are stopped, one way or another."""

import json
import runpy
import signal
import socket
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load

pytestmark = [pytest.mark.program, pytest.mark.system]
SURVIVAL = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("survival.py"))))
finish, logged, start = SURVIVAL.finish, SURVIVAL.logged, SURVIVAL.start


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds a run that was left alone."""
    folder = tmp_path_factory.mktemp("survival")
    finish(start(folder / "whole"))
    return folder


def test_resume_after_a_kill_is_bit_identical(folder: Path) -> None:
    assert SURVIVAL.survive(folder, "SIGKILL", times=1, seed=3)


def test_resume_with_another_number_of_processes_and_devices(folder: Path) -> None:
    """A signal to one of two processes ends both, after the same step."""
    run = folder / "stopped"
    mesh = json.dumps({"fsdp": 2, "sequence": 2})
    alone = start(run, MESH=mesh, JAX_NUM_CPU_DEVICES="4")
    SURVIVAL.wait_for_step(run, 5, alone)
    alone.send_signal(signal.SIGTERM)
    assert "stopped at step" in finish(alone)
    assert not (run / "export").exists()

    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    first = len(logged(run))
    pair = [start(run, PROCESS=f"{address},2,{index}") for index in range(2)]
    SURVIVAL.wait_for_step(run, first + 5, pair[0])
    pair[1].send_signal(signal.SIGTERM)
    words = [next(w for w in finish(p).splitlines() if w.startswith("stopped")) for p in pair]
    assert words[0] == words[1]
    assert len(logged(run)) > first
    assert not (run / "export").exists()

    finish(start(run))
    for found, expected in zip(logged(run), logged(folder / "whole"), strict=True):
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-6)
    expected = load(SURVIVAL.weights(folder / "whole"))
    for path, leaf in load(SURVIVAL.weights(run)).items():
        np.testing.assert_allclose(leaf, expected[path], rtol=0, atol=1e-3, err_msg=path)
