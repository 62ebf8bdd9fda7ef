"""The loop itself: steps, metrics, checkpoints, resume. Knows nothing of what is trained."""

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import optax
from ml_collections import ConfigDict

from tumorchain_jax.parallel.processes import is_first
from tumorchain_jax.training.checkpoint import Checkpoints
from tumorchain_jax.training.metrics import MetricsLog, NoLog
from tumorchain_jax.training.step import Metrics, TrainState


def fit(
    workdir: Path,
    abstract: TrainState,
    initial: Callable[[], TrainState],
    update: Callable[[TrainState, Any], tuple[TrainState, Metrics]],
    batches_from: Callable[[int], Iterator[Any]],
    schedule: optax.Schedule,
    steps: int,
    config: ConfigDict,
) -> TrainState:
    """Train up to `steps`, from the latest checkpoint in `workdir` if there is one.

    Args:
        abstract: the state's shapes, types and places.
        initial: makes the state where training starts; not called if there is a checkpoint.
        batches_from: the batches after a step, on their devices.
        config: reads `log_every` and `checkpoint`.

    Raises:
        InputError: the checkpoint is of another configuration.
        FloatingPointError: the loss is no longer finite.
    """
    workdir.mkdir(parents=True, exist_ok=True)
    checkpoints = Checkpoints(workdir, config.checkpoint.every, config.checkpoint.keep)
    state = checkpoints.restore(abstract)
    if state is None:
        state = initial()
    first_step = int(state.step)
    if is_first():
        part = workdir / ".config.json.part"
        part.write_text(config.to_json_best_effort(indent=1) + "\n")
        part.replace(workdir / "config.json")
    log = MetricsLog(workdir, first_step, steps) if is_first() else NoLog()
    started = time.monotonic()
    try:
        stream = batches_from(first_step)
        for step in range(first_step + 1, steps + 1):
            batch = next(stream)
            with jax.transfer_guard("disallow"):
                state, metrics = update(state, batch)
            log.advance()
            if step % config.log_every == 0 or step == steps:
                values = {name: float(value) for name, value in jax.device_get(metrics).items()}
                if not math.isfinite(values["loss"]):
                    raise FloatingPointError(f"step {step}: loss {values['loss']}")
                values["learning_rate"] = float(schedule(step - 1))
                values["seconds"] = round(time.monotonic() - started, 2)
                log.write(step, values)
            checkpoints.save(step, state, force=step == steps)
    finally:
        log.close()
        checkpoints.close()
    return state
