"""Statistics that a step updates without a gradient: BatchNorm's running mean and variance."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from tumorchain_jax.parallel.mesh import make_mesh
from tumorchain_jax.training.checkpoint import Checkpoints

pytestmark = pytest.mark.program
SCRIPT = Path(__file__).with_name("batch_norm.py")
TOY = SimpleNamespace(**runpy.run_path(str(SCRIPT)))


def expected_statistics(parts: int) -> tuple[np.ndarray, np.ndarray]:
    """Running mean and variance after one step from the initial weights, by NumPy."""
    params, statistics = TOY.variables()
    mean, var = np.array(statistics["norm/mean"]), np.array(statistics["norm/var"])
    for part in range(parts):
        x = TOY.batch(0)["x"][part::parts] @ params["first/kernel"]
        mean = TOY.MOMENTUM * mean + (1 - TOY.MOMENTUM) * x.mean(0)
        var = TOY.MOMENTUM * var + (1 - TOY.MOMENTUM) * x.var(0)
    return mean, var


@pytest.mark.parametrize("parts", [1, 2])
def test_statistics_of_a_step_are_those_of_numpy(parts: int) -> None:
    mesh = make_mesh({}, jax.devices()[:1])
    program = TOY.program(mesh, parts)
    batch = jax.device_put(TOY.batch(0))
    state, _ = program.step(TOY.start(program, mesh), batch)
    mean, var = expected_statistics(parts)
    np.testing.assert_allclose(state.statistics["norm/mean"], mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(state.statistics["norm/var"], var, rtol=1e-5)
    assert not {"norm/mean", "norm/var"} & state.params.keys()


def test_statistics_resume_from_a_checkpoint(tmp_path: Path) -> None:
    mesh = make_mesh({}, jax.devices()[:1])
    program = TOY.program(mesh, 1)
    state, losses = TOY.train(program, mesh, TOY.start(program, mesh), 0)
    half, _ = program.step(TOY.start(program, mesh), jax.device_put(TOY.batch(0)))
    checkpoints = Checkpoints(tmp_path, 1, {})
    checkpoints.save(1, half, 0.0)
    checkpoints.close()
    checkpoints = Checkpoints(tmp_path, 1, {})
    restored = checkpoints.restore(program.state)
    checkpoints.close()
    assert restored is not None
    again, rest = TOY.train(program, mesh, restored, 1)
    assert rest == losses[1:]
    jax.tree.map(np.testing.assert_array_equal, again, state)


@pytest.mark.system
def test_statistics_on_eight_devices_are_those_of_one() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT)],
        env={**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    one, eight, one_accumulated, eight_accumulated = json.loads(done.stdout)
    assert one["arrays"]["norm/mean"] != one_accumulated["arrays"]["norm/mean"]
    for found, expected in ((eight, one), (eight_accumulated, one_accumulated)):
        assert found["losses"] == pytest.approx(expected["losses"], rel=1e-5)
        for path, values in expected["arrays"].items():
            np.testing.assert_allclose(found["arrays"][path], values, rtol=1e-4, atol=1e-5)
