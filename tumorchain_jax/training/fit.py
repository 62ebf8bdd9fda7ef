"""The loop itself: steps, metrics, checkpoints, resume. Knows nothing of what is trained."""

import math
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import jax
import optax
from jax.experimental import multihost_utils
from ml_collections import ConfigDict

from tumorchain_jax.core.errors import InputError, Stopped
from tumorchain_jax.core.files import AnyPath, write_file
from tumorchain_jax.parallel.preemption import PreemptionListener
from tumorchain_jax.parallel.processes import is_primary
from tumorchain_jax.training.checkpoint import Checkpoints
from tumorchain_jax.training.metrics import MetricsLog, NoLog
from tumorchain_jax.training.profile import Profile
from tumorchain_jax.training.state import Metrics, TrainState
from tumorchain_jax.training.throughput import Throughput, Values, Work
from tumorchain_jax.training.watchdog import Watchdog


def _nameless(step: int) -> Sequence[str]:
    return ()


@dataclass(frozen=True)
class Job:
    """What is trained.

    Attributes:
        abstract: the state's shapes, types and places.
        initial: makes the state where training starts; not called if there is a checkpoint.
        batches_from: the batches after a step, on their devices.
        steps: up to which it is trained.
        work: of one step.
        best: the metric by which a checkpoint is the best: the least of a loss, the most of others.
        describe_batch: what the batch of a step holds, for people.
        order: what the order of the batches depends on; it must be the same when the run goes on.
    """

    abstract: TrainState
    initial: Callable[[], TrainState]
    update: Callable[[TrainState, Any], tuple[TrainState, Metrics]]
    batches_from: Callable[[int], Iterator[Any]]
    schedule: optax.Schedule
    steps: int
    work: Work
    best: str = "loss"
    describe_batch: Callable[[int], Sequence[str]] = _nameless
    order: Mapping[str, int] = field(default_factory=dict)


def fit(workdir: AnyPath, job: Job, config: ConfigDict) -> TrainState:
    """Train up to `job.steps`, from the newest checkpoint in `workdir` if there is one.

    Args:
        config: reads `log_every`, `checkpoint` and `watch`.

    Raises:
        InputError: the checkpoint is of another configuration, or `workdir` cannot be written to.
        FloatingPointError: a number is no longer finite; no checkpoint holds what came of it.
        Stopped: it was asked to end, and has saved where it was.
    """
    with ExitStack() as stack:
        stop = PreemptionListener()
        stack.enter_context(stop.listening())
        profile = Profile(_folder(workdir), config.watch.profile)
        stack.callback(profile.close)
        checkpoints = Checkpoints(workdir, config.checkpoint.keep, job.order)
        stack.callback(checkpoints.close)
        state = checkpoints.restore(job.abstract)
        if state is None:
            state = job.initial()
        first_step = int(state.step)
        log: MetricsLog | NoLog = NoLog()
        if is_primary():
            _write_config(workdir, config)
            log = MetricsLog(workdir, first_step, job.steps, config.watch.wandb)
        stack.callback(log.close)
        watchdog = Watchdog(workdir, config.watch.hang_timeout_s)
        stack.callback(watchdog.close)
        run = _Run(job, config, checkpoints, log, watchdog)
        stream = job.batches_from(first_step)
        for step in range(first_step + 1, job.steps + 1):
            profile.before(step)
            state = run.step(step, state, stream)
            profile.after(step, state)
            asked = stop.requested()
            run.look(step, state, last=step == job.steps or asked)
            if asked:
                raise Stopped(f"at step {step} of {job.steps} by a signal; it was saved")
    return state


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
    """What a run keeps between its steps."""

    def __init__(
        self,
        job: Job,
        config: ConfigDict,
        checkpoints: Checkpoints,
        log: MetricsLog | NoLog,
        watchdog: Watchdog,
    ):
        self._job, self._config = job, config
        self._checkpoints, self._log, self._watchdog = checkpoints, log, watchdog
        self._throughput: Throughput | None = None  # the first step compiles: it is not measured
        self._started = self._saved = time.monotonic()
        # Of the steps since numbers were last looked at, on the devices; and of those since the
        # last checkpoint, what tells the best.
        self._unseen: list[Metrics] = []
        self._scores: list[float] = []

    def step(self, step: int, state: TrainState, stream: Iterator[Any]) -> TrainState:
        self._watchdog.doing(step, "data")
        throughput = self._throughput or Throughput(self._job.work)
        with throughput.waiting():
            batch = next(stream)
        self._watchdog.doing(step, "step")
        with jax.transfer_guard("disallow"):
            state, metrics = self._job.update(state, batch)
        throughput.step()
        self._log.advance()
        self._unseen.append(metrics)
        return state

    def look(self, step: int, state: TrainState, last: bool) -> None:
        """Log and save, if it is time for it."""
        log = step % self._config.log_every == 0 or last
        save = step % self._config.checkpoint.every == 0 or last
        if not (log or save or self._throughput is None):
            return
        values = self._look_at_numbers(step)
        if log:
            values |= {
                "learning_rate": float(self._job.schedule(step - 1)),
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

    def _look_at_numbers(self, step: int) -> Values:
        """The newest step's, and the rates of all since the last look.

        Raises:
            FloatingPointError: a step gave a number that is none.
        """
        seen = jax.device_get(self._unseen)
        first = step - len(seen) + 1
        for number, metrics in enumerate(seen, first):
            for name, value in metrics.items():
                if not math.isfinite(value):
                    of = "; ".join(self._job.describe_batch(number))
                    raise FloatingPointError(f"step {number}: {name} {value}; its batch: {of}")
        self._unseen = []
        best = self._job.best
        if best not in seen[-1]:
            expected = f"one of {', '.join(sorted(seen[-1]))}"
            raise InputError("config", "checkpoint.best", best, expected, "choose one")
        sign = 1 if best.endswith("loss") else -1
        self._scores += [sign * float(metrics[best]) for metrics in seen]
        values: Values = {name: float(value) for name, value in seen[-1].items()}
        if self._throughput is None:
            self._throughput = Throughput(self._job.work)
            return values
        return values | self._throughput.read(sum(float(m.get("tokens", 0)) for m in seen))

    def _checkpoint_due(self) -> bool:
        """Whether a checkpoint is due by the clock: the first process's, so that all agree."""
        minutes = self._config.checkpoint.minutes
        due = bool(minutes) and time.monotonic() - self._saved > 60 * minutes
        if minutes and jax.process_count() > 1:
            due = bool(multihost_utils.broadcast_one_to_all(due))
        return due
