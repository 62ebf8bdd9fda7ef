import json
import os
import re
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from ml_collections import ConfigDict

from tumorchain_jax.core.errors import InputError, Stopped
from tumorchain_jax.training.fit import fit
from tumorchain_jax.training.program import Program
from tumorchain_jax.training.state import Metrics, TrainState
from tumorchain_jax.training.task import TrainingTask

RATE = optax.linear_schedule(1.0, 0.0, 10)


@jax.jit
def update(state: TrainState, batch: jax.Array) -> tuple[TrainState, Metrics]:
    rate = RATE(state.optimizer["count"])
    weight = state.trained["w"] * (1 - 0.1 * rate) + batch
    optimizer = {"count": state.optimizer["count"] + 1}
    state = TrainState(
        step=state.step + 1,
        trained={"w": weight},
        frozen=state.frozen,
        optimizer=optimizer,
        statistics={"mean": 0.9 * state.statistics["mean"] + 0.1 * batch.mean(0)},
    )
    return state, {"loss": jnp.sum(weight**2)}


def stream(first_step: int, stop: int, spoilt: int = 0) -> Iterator[jax.Array]:
    """A batch for each step; the run is interrupted after step `stop`."""
    for step in range(first_step + 1, stop + 1):
        value = np.nan if step == spoilt else np.sin(step)
        yield jax.device_put(np.full((2, 2), value, np.float32))
    raise KeyboardInterrupt


def run(workdir: Path, stop: int = 99, size: int = 2, spoilt: int = 0, **config: Any) -> TrainState:
    """Six steps."""
    step_fn = config.pop("update", update)
    checkpoint = {"every": 1, "minutes": 0, "keep": 2, "best": "loss"}
    watch = {"profile": "", "wandb": "", "hang_timeout_s": 0.0}
    fields = {
        "log_every": 1,
        "checkpoint": checkpoint | config.pop("checkpoint", {}),
        "watch": watch | config.pop("watch", {}),
    } | config
    state = TrainState(
        step=jnp.int32(0),
        trained={"w": jnp.ones((2, size))},
        frozen={},
        optimizer={"count": jnp.int32(0)},
        statistics={"mean": jnp.zeros(2)},
    )
    batches_from = lambda step: stream(step, stop, spoilt)
    abstract = jax.tree.map(shape_of, state)
    task = TrainingTask(
        name="toy",
        program=Program(step_fn, abstract, None, optax.identity(), RATE),
        steps=6,
        initial=lambda: state,
        stages=["pretraining: 3 steps"],
        batches_from=batches_from,
        volumes=2,
        best=fields["checkpoint"]["best"],
        describe_batch=lambda step: [f"scan {step}"],
    )
    return fit(workdir, task, ConfigDict(fields))


def shape_of(leaf: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)


def assert_same(found: TrainState, expected: TrainState) -> None:
    """Parameters, optimizer and statistics, bit for bit."""
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    assert np.any(found.statistics["mean"])


def logged(workdir: Path) -> list[dict]:
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    kept = ("step", "loss", "learning_rate")
    return [{name: line[name] for name in kept} for line in lines]


def steps_kept(workdir: Path) -> set[str]:
    return {path.name for path in (workdir / "checkpoints").iterdir()}


def test_log_has_losses_and_rates(tmp_path: Path) -> None:
    state = run(tmp_path, log_every=4)
    four, six = logged(tmp_path)
    assert (four["step"], six["step"]) == (4, 6)  # the last step is always told
    assert (four["learning_rate"], six["learning_rate"]) == pytest.approx((0.7, 0.5))
    assert six["loss"] == pytest.approx(float((state.trained["w"] ** 2).sum()))
    assert int(state.step) == 6
    assert steps_kept(tmp_path) == {"5", "6"}
    assert json.loads((tmp_path / "config.json").read_text())["log_every"] == 4


@pytest.mark.parametrize("every", [1, 2])
def test_resume_after_interrupt_is_bit_identical(tmp_path: Path, every: int) -> None:
    checkpoint = {"every": every, "keep": 1}
    expected = run(tmp_path / "whole", checkpoint=checkpoint)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped", stop=3, checkpoint=checkpoint)
    assert [line["step"] for line in logged(tmp_path / "stopped")] == [1, 2, 3]
    with (tmp_path / "stopped" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "lo')  # as a kill in the middle of a line leaves it
    found = run(tmp_path / "stopped", checkpoint=checkpoint)
    assert logged(tmp_path / "stopped") == logged(tmp_path / "whole")
    assert_same(found, expected)


def test_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    first = run(tmp_path)
    lines = (tmp_path / "metrics.jsonl").read_bytes()
    again = run(tmp_path, stop=0)
    np.testing.assert_array_equal(again.trained["w"], first.trained["w"])
    assert (tmp_path / "metrics.jsonl").read_bytes() == lines


def test_loss_not_finite_aborts_and_lists_the_scans(tmp_path: Path) -> None:
    with pytest.raises(FloatingPointError, match="step 3: loss nan; its batch: scan 3"):
        run(tmp_path, spoilt=3)
    assert steps_kept(tmp_path) == {"1", "2"}
    assert [line["step"] for line in logged(tmp_path)] == [1, 2]


def test_checkpoint_of_another_model_is_refused_and_nothing_changed(tmp_path: Path) -> None:
    run(tmp_path, stop=99)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(InputError, match=r"trained/w: found \(2, 2\), expected \(2, 5\)"):
        run(tmp_path, size=5, log_every=2)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_checkpoint_with_the_best_metric_stays(tmp_path: Path) -> None:
    """The loss rises and falls with sin; each is saved with the mean since the one before."""
    run(tmp_path / "each", checkpoint={"keep": 1})
    losses = [line["loss"] for line in logged(tmp_path / "each")]
    assert steps_kept(tmp_path / "each") == {str(1 + int(np.argmin(losses))), "6"}
    run(tmp_path / "pairs", checkpoint={"keep": 1, "every": 2})
    means = [np.mean(losses[i : i + 2]) for i in (0, 2, 4)]
    assert steps_kept(tmp_path / "pairs") == {str(2 + 2 * int(np.argmin(means))), "6"}


def test_checkpoint_best_of_unknown_metric_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"checkpoint\.best: found speed, expected one of loss"):
        run(tmp_path, checkpoint={"best": "speed"})


def test_loss_not_finite_between_two_logs_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(FloatingPointError, match="step 3: loss nan; its batch: scan 3"):
        run(tmp_path, spoilt=3, log_every=6, checkpoint={"every": 5})
    assert steps_kept(tmp_path) == set()


def test_checkpoint_is_due_by_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count()
    stopwatch = SimpleNamespace(monotonic=lambda: 40.0 * next(clock))
    monkeypatch.setattr("tumorchain_jax.training.fit.time", stopwatch)
    run(tmp_path, checkpoint={"every": 100, "minutes": 2, "keep": 9}, log_every=1)
    assert {"6"} < steps_kept(tmp_path) < {"1", "2", "3", "4", "5", "6"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_saves_stops_and_resumes(number: signal.Signals, tmp_path: Path) -> None:
    expected = run(tmp_path / "whole")

    def signalled(state: TrainState, batch: jax.Array) -> tuple[TrainState, Metrics]:
        if int(state.step) == 3:
            os.kill(os.getpid(), number)
        return update(state, batch)

    before = signal.getsignal(number)
    with pytest.raises(Stopped, match="at step 4 of 6"):
        run(tmp_path / "run", update=signalled, checkpoint={"every": 100}, log_every=100)
    assert signal.getsignal(number) == before
    assert steps_kept(tmp_path / "run") == {"4"}
    assert_same(run(tmp_path / "run"), expected)


def test_interrupt_twice_stops_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(state: TrainState, batch: jax.Array) -> tuple[TrainState, Metrics]:
        os.kill(os.getpid(), signal.SIGINT)
        assert capsys.readouterr().err == (
            "tumorchain: stopping once this step is saved; again: at once\n"
        )
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("went on")

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, update=interrupted)
    assert signal.getsignal(signal.SIGINT) == before


def test_profile_traces_a_range_of_steps(tmp_path: Path) -> None:
    run(tmp_path, watch={"profile": "2:3"})
    (trace,) = (tmp_path / "profile").rglob("*.xplane.pb")
    assert trace.stat().st_size > 1000


@pytest.mark.parametrize("steps", ["3", "0:2", "5:4", "a:b", "1:2:3"])
def test_profile_range_is_checked(tmp_path: Path, steps: str) -> None:
    with pytest.raises(InputError, match="expected FIRST:LAST"):
        run(tmp_path, watch={"profile": steps})


def test_rates_begin_with_the_second_step(tmp_path: Path) -> None:
    run(tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert "seconds_a_step" not in lines[0]  # it compiles
    for line in lines[1:]:
        assert line["volumes_per_second"] == pytest.approx(2 / line["seconds_a_step"], rel=0.1)
        assert 0 <= line["waiting_for_data"] <= 1


@pytest.mark.parametrize("name", ["file/run", "file"])
def test_workdir_that_cannot_be_written_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="expected a folder to write in") as error:
        run(tmp_path / name)
    assert "\n" not in str(error.value)


def test_plan_says_stages_steps_parameters_and_devices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, stop=99)
    *plan, speed = capsys.readouterr().out.splitlines()
    assert plan == [
        "plan: first pretraining: 3 steps",
        "plan: toy: 6 steps; 4 of 4 parameters trained; 1 cpu device",
    ]
    # The first step compiles: the second is the first that is timed.
    assert re.fullmatch(r"plan: \S+ s per step after step 2; about \d+ s left", speed)


def test_plan_of_a_resumed_run_says_where_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, stop=3)
    capsys.readouterr()
    run(tmp_path)
    line = capsys.readouterr().out
    assert line.startswith("plan: toy: 6 steps, resumed at step 3; 4 of 4 parameters trained; ")
    assert re.search(r"; about \d+ s left$", line.strip())
