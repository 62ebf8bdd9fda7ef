import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from ml_collections import ConfigDict

from tumorchain_jax.errors import InputError
from tumorchain_jax.training.fit import fit
from tumorchain_jax.training.step import Metrics, TrainState

RATE = optax.linear_schedule(1.0, 0.0, 10)


@jax.jit
def update(state: TrainState, batch: jax.Array) -> tuple[TrainState, Metrics]:
    rate = RATE(state.optimizer["count"])
    weight = state.trained["w"] * (1 - 0.1 * rate) + batch
    optimizer = {"count": state.optimizer["count"] + 1}
    state = state._replace(step=state.step + 1, trained={"w": weight}, optimizer=optimizer)
    return state, {"loss": jnp.sum(weight**2)}


def stream(first_step: int, stop: int, spoilt: int = 0) -> Iterator[jax.Array]:
    """A batch for each step; the run is interrupted after step `stop`."""
    for step in range(first_step + 1, stop + 1):
        value = np.nan if step == spoilt else np.sin(step)
        yield jax.device_put(np.full((2, 2), value, np.float32))
    raise KeyboardInterrupt


def run(workdir: Path, stop: int = 99, size: int = 2, spoilt: int = 0, **config: Any) -> TrainState:
    """Six steps."""
    fields = {"log_every": 1, "checkpoint": {"every": 1, "keep": 2}} | config
    state = TrainState(jnp.int32(0), {"w": jnp.ones((2, size))}, {}, {"count": jnp.int32(0)})
    batches_from = lambda step: stream(step, stop, spoilt)
    abstract = jax.tree.map(shape_of, state)
    return fit(workdir, abstract, lambda: state, update, batches_from, RATE, 6, ConfigDict(fields))


def shape_of(leaf: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)


def logged(workdir: Path) -> list[dict]:
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


def steps_kept(workdir: Path) -> set[str]:
    return {path.name for path in (workdir / "checkpoints").iterdir()}


def test_what_a_run_logs(tmp_path: Path) -> None:
    state = run(tmp_path, log_every=4)
    four, six = logged(tmp_path)
    assert (four["step"], six["step"]) == (4, 6)  # the last step is always told
    assert (four["learning_rate"], six["learning_rate"]) == pytest.approx((0.7, 0.5))
    assert six["loss"] == pytest.approx(float((state.trained["w"] ** 2).sum()))
    assert int(state.step) == 6
    assert steps_kept(tmp_path) == {"5", "6"}
    assert json.loads((tmp_path / "config.json").read_text())["log_every"] == 4


@pytest.mark.parametrize("every", [1, 2])
def test_a_stopped_run_goes_on_as_if_it_had_not_been(tmp_path: Path, every: int) -> None:
    checkpoint = {"every": every, "keep": 1}
    expected = run(tmp_path / "whole", checkpoint=checkpoint)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped", stop=3, checkpoint=checkpoint)
    assert [line["step"] for line in logged(tmp_path / "stopped")] == [1, 2, 3]
    with (tmp_path / "stopped" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "lo')  # as a kill in the middle of a line leaves it
    found = run(tmp_path / "stopped", checkpoint=checkpoint)
    assert logged(tmp_path / "stopped") == logged(tmp_path / "whole")
    np.testing.assert_array_equal(found.trained["w"], expected.trained["w"])


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    first = run(tmp_path)
    lines = (tmp_path / "metrics.jsonl").read_bytes()
    again = run(tmp_path, stop=0)
    np.testing.assert_array_equal(again.trained["w"], first.trained["w"])
    assert (tmp_path / "metrics.jsonl").read_bytes() == lines


def test_a_loss_that_is_no_number_stops_the_run_unsaved(tmp_path: Path) -> None:
    with pytest.raises(FloatingPointError, match="step 3: loss nan"):
        run(tmp_path, spoilt=3)
    assert steps_kept(tmp_path) == {"1", "2"}
    assert [line["step"] for line in logged(tmp_path)] == [1, 2]


def test_a_run_of_another_model_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    run(tmp_path, stop=99)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(InputError, match=r"trained/w: found \(2, 2\), expected \(2, 5\)"):
        run(tmp_path, size=5, log_every=2)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
