"""The training loop: steps, metrics, checkpoints, resume. It knows no model."""

import math
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from math import prod
from typing import Any

import jax
from jax.experimental import multihost_utils
from ml_collections import ConfigDict

from tumorchain_jax.core.errors import InputError, Stopped
from tumorchain_jax.core.files import AnyPath, write_file
from tumorchain_jax.parallel.preemption import PreemptionListener
from tumorchain_jax.parallel.processes import is_primary
from tumorchain_jax.training.checkpoint import Checkpoints
from tumorchain_jax.training.metrics import MetricsLog, NoLog, duration, seconds_per_step
from tumorchain_jax.training.profile import Profile
from tumorchain_jax.training.program import Program
from tumorchain_jax.training.state import Metrics, TrainState
from tumorchain_jax.training.task import TrainingTask
from tumorchain_jax.training.throughput import Throughput, Values, Work
from tumorchain_jax.training.watchdog import Watchdog


def fit(workdir: AnyPath, task: TrainingTask, config: ConfigDict) -> TrainState:
    """Train up to `task.steps`, from the newest checkpoint in `workdir` if there is one.

    Args:
        config: reads `log_every`, `checkpoint` and `watch`.

    Raises:
        InputError: the checkpoint is of another configuration, or `workdir` cannot be written to.
        FloatingPointError: a metric is not finite; no checkpoint after that step is saved.
        Stopped: a signal stopped it; it has saved a checkpoint.
    """
    with ExitStack() as stack:
        stop = PreemptionListener()
        stack.enter_context(stop.listening())
        profile = Profile(_folder(workdir), config.watch.profile)
        stack.callback(profile.close)
        checkpoints = Checkpoints(workdir, config.checkpoint.keep, task.data_fingerprint)
        stack.callback(checkpoints.close)
        state = checkpoints.restore(task.program.state)
        if is_primary():
            print(plan(task, workdir, None if state is None else int(state.step)), flush=True)
        if state is None:
            state = task.initial()
        first_step = int(state.step)
        log: MetricsLog | NoLog = NoLog()
        if is_primary():
            _write_config(workdir, config)
            log = MetricsLog(workdir, first_step, task.steps, config.watch.wandb)
        stack.callback(log.close)
        watchdog = Watchdog(workdir, config.watch.hang_timeout_s)
        stack.callback(watchdog.close)
        run = _Run(task, config, checkpoints, log, watchdog)
        stream = task.batches_from(first_step)
        for step in range(first_step + 1, task.steps + 1):
            profile.before(step)
            state = run.step(step, state, stream)
            profile.after(step, state)
            asked = stop.requested()
            run.log_and_checkpoint(step, state, last=step == task.steps or asked)
            if asked:
                raise Stopped(f"at step {step} of {task.steps} by a signal; it was saved")
    return state


def plan(task: TrainingTask, workdir: AnyPath, resumed: int | None) -> str:
    """What a run will do, for people: stages, steps, trained parameters (of each part of the model,
    if it has several), devices, time left.

    Args:
        resumed: the step of its checkpoint; None without one.
    """
    counts = _counts(task.program)
    trained, all_of_them = (sum(each) for each in zip(*counts.values(), strict=True))
    devices = jax.devices()
    standing = "" if resumed is None else f", resumed at step {resumed}"
    line = (
        f"plan: {task.name}: {task.steps} steps{standing}; {trained:,} of {all_of_them:,} "
        f"parameters trained; {len(devices)} {devices[0].platform} device"
        f"{'s' * (len(devices) > 1)}"
    )
    if resumed is not None and (seconds := seconds_per_step(workdir / "metrics.jsonl")):
        line += f"; about {duration(seconds * (task.steps - resumed))} left"
    before = task.stages if resumed is None else ()
    lines = [*(f"plan: first {stage}" for stage in before), line]
    if len(counts) > 1:
        parts = (f"{part} {own:,} of {whole:,}" for part, (own, whole) in counts.items())
        lines.append(f"plan: trained: {'; '.join(parts)}")
    return "\n".join(lines)


def _counts(program: Program) -> dict[str, tuple[int, int]]:
    """Trained and all parameters of each part of the model."""
    counts: dict[str, tuple[int, int]] = {}
    for path, leaf in sorted(program.params.items()):
        part, size = program.part_of(path), prod(leaf.shape)
        own, whole = counts.get(part, (0, 0))
        counts[part] = (own + size * (path in program.state.trained), whole + size)
    return counts


def _folder(workdir: AnyPath) -> AnyPath:
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        probe = workdir / f".probe-{uuid.uuid4()}"
        write_file(probe, b"")
        probe.unlink()
        return workdir
    except OSError as error:
        found = error.strerror or type(error).__name__
        hint = "name another workdir"
        raise InputError(workdir, "workdir", found, "a folder to write in", hint) from error


def _write_config(workdir: AnyPath, config: ConfigDict) -> None:
    content = config.to_json_best_effort(indent=1) + "\n"
    write_file(workdir / "config.json", content.encode())


class _Run:
    """The state of a run between its steps, on the host."""

    def __init__(
        self,
        task: TrainingTask,
        config: ConfigDict,
        checkpoints: Checkpoints,
        log: MetricsLog | NoLog,
        watchdog: Watchdog,
    ):
        self._task, self._config = task, config
        self._checkpoints, self._log, self._watchdog = checkpoints, log, watchdog
        self._work = Work(task.volumes, task.program.flops)
        self._throughput: Throughput | None = None  # the first step compiles: it is not measured
        self._started = self._saved = time.monotonic()
        self._pending: list[Metrics] = []  # of the steps not yet read, on the devices
        self._scores: list[float] = []  # of the steps since the last checkpoint

    def step(self, step: int, state: TrainState, stream: Iterator[Any]) -> TrainState:
        self._watchdog.doing(step, "data")
        throughput = self._throughput or Throughput(self._work)
        with throughput.waiting():
            batch = next(stream)
        self._watchdog.doing(step, "step")
        with jax.transfer_guard("disallow"):
            state, metrics = self._task.program.step(state, batch)
        throughput.step()
        self._log.advance()
        self._pending.append(metrics)
        return state

    def log_and_checkpoint(self, step: int, state: TrainState, last: bool) -> None:
        """Log and save, each when it is due."""
        log = step % self._config.log_every == 0 or last
        save = step % self._config.checkpoint.every == 0 or last
        if not (log or save or self._throughput is None):
            return
        values = self._read_metrics(step)
        if log:
            values |= {
                "learning_rate": float(self._task.program.schedule(step - 1)),
                "seconds": round(time.monotonic() - self._started, 2),
            }
            self._log.write(step, values)
            save = save or self._checkpoint_due()
        if save:
            self._watchdog.doing(step, "checkpoint")
            self._log.flush()
            score = sum(self._scores) / len(self._scores)
            self._checkpoints.save(step, state, score)
            self._saved, self._scores = time.monotonic(), []

    def _read_metrics(self, step: int) -> Values:
        """The metrics of this step, and the rates of all steps since the last reading.

        Raises:
            FloatingPointError: a metric is not finite.
        """
        read = jax.device_get(self._pending)
        first = step - len(read) + 1
        for number, metrics in enumerate(read, first):
            for name, value in metrics.items():
                if not math.isfinite(value):
                    names = "; ".join(self._task.describe_batch(number))
                    batch = f"; its batch: {names}" if names else ""
                    raise FloatingPointError(f"step {number}: {name} {value}{batch}")
        self._pending = []
        best = self._task.best
        if best not in read[-1]:
            expected = f"one of {', '.join(sorted(read[-1]))}"
            raise InputError("config", "checkpoint.best", best, expected, "choose one")
        sign = 1 if best.endswith("loss") else -1
        self._scores += [sign * float(metrics[best]) for metrics in read]
        values: Values = {name: float(value) for name, value in read[-1].items()}
        if self._throughput is None:
            self._throughput = Throughput(self._work)
            return values
        return values | self._throughput.read(sum(float(m.get("tokens", 0)) for m in read))

    def _checkpoint_due(self) -> bool:
        """Whether a checkpoint is due by the clock of the primary process, so that all agree."""
        minutes = self._config.checkpoint.minutes
        due = bool(minutes) and time.monotonic() - self._saved > 60 * minutes
        if minutes and jax.process_count() > 1:
            due = bool(multihost_utils.broadcast_one_to_all(due))
        return due
