"""Write a run's metrics: JSON lines, TensorBoard, progress; Weights & Biases."""

import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from tensorboardX import SummaryWriter
from tqdm import tqdm

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import AnyPath, absolute, is_remote, write_file
from tumorchain_jax.core.remote import upload

FLUSH_SECONDS = 60
SPEED = "seconds_a_step"
PROGRESS_SECONDS = 60.0
"""Between two lines of progress where there is no terminal for a bar."""


class MetricsLog:
    """Writes `metrics.jsonl` and `tensorboard/` in the run's folder; shows progress.

    Resuming at a step drops the lines after it, which a stopped run may have written after its
    last checkpoint.

    Args:
        wandb: the project of Weights & Biases to send them to; empty for none.

    Raises:
        InputError: the wandb package is not installed.
    """

    def __init__(self, workdir: AnyPath, first_step: int, last_step: int, wandb: str = ""):
        self._wandb = _wandb_run(wandb, workdir) if wandb else None
        self._workdir, self._flushed = workdir, time.monotonic()
        # A store cannot append: there the files are made in a local folder, and copied.
        self._folder = Path(mkdtemp()) if is_remote(workdir) else Path(workdir)
        path = self._folder / "metrics.jsonl"
        lines = _lines_up_to(workdir / "metrics.jsonl", first_step)
        write_file(path, "".join(lines).encode())
        self._file = path.open("a", buffering=1)
        self._board = SummaryWriter(str(self._folder / "tensorboard"), purge_step=first_step + 1)
        self._bar = tqdm(initial=first_step, total=last_step, unit=" steps", disable=None)
        self._last_step, self._shown = last_step, time.monotonic()
        self._timed = False  # whether the expected time has been printed

    def advance(self) -> None:
        """Count a step."""
        self._bar.update()

    def write(self, step: int, values: Mapping[str, float | str]) -> None:
        """Log one step's numbers."""
        self._file.write(json.dumps({"step": step, **values}) + "\n")
        for name, value in values.items():
            if not isinstance(value, str):
                self._board.add_scalar(name, value, step)
        if self._wandb:
            self._wandb.log(dict(values), step=step)
        seconds = values.get(SPEED)
        if not self._timed and isinstance(seconds, float) and step < self._last_step:
            left = duration(seconds * (self._last_step - step))
            self._bar.write(f"plan: {seconds:.3g} s per step after step {step}; about {left} left")
            self._timed = True
        self._bar.set_postfix(loss=f"{values['loss']:.3f}")
        if self._bar.disable and time.monotonic() - self._shown > PROGRESS_SECONDS:
            print(progress(step, self._last_step, values), file=sys.stderr, flush=True)
            self._shown = time.monotonic()
        if time.monotonic() - self._flushed > FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Copy the files to the run's folder, where that is in an object store."""
        if is_remote(self._workdir):
            self._board.flush()
            upload(self._folder, self._workdir)
        self._flushed = time.monotonic()

    def close(self) -> None:
        """Flush everything."""
        self._file.close()
        self._board.close()
        self._bar.close()
        if is_remote(self._workdir):
            upload(self._folder, self._workdir)
            shutil.rmtree(self._folder)
        if self._wandb:
            self._wandb.finish()


class NoLog:
    """The log of a process that is not the primary one: it writes nothing."""

    def advance(self) -> None:
        """Count nothing."""

    def write(self, step: int, values: Mapping[str, float | str]) -> None:
        """Write nothing."""

    def flush(self) -> None:
        """Copy nothing."""

    def close(self) -> None:
        """Nothing was opened."""


def progress(step: int, last_step: int, values: Mapping[str, float | str]) -> str:
    """One line: how far a run is, its loss, its speed and the time left."""
    line = f"step {step} of {last_step}: loss {values['loss']:.4g}"
    seconds = values.get(SPEED)
    if isinstance(seconds, float):
        left = duration(seconds * (last_step - step))
        line += f", {seconds:.3g} s per step, about {left} left"
    return line


def duration(seconds: float) -> str:
    """A length of time for people: `45 s`, `12 min`, `3 h 05 min`."""
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02} min"


def seconds_per_step(path: AnyPath) -> float | None:
    """The last speed that a run has logged; None if it has not."""
    lines = _lines_up_to(path, sys.maxsize)
    found = [values[SPEED] for values in map(json.loads, lines) if SPEED in values]
    return found[-1] if found else None


def _lines_up_to(path: AnyPath, step: int) -> list[str]:
    """Whole lines of steps up to and with `step`; a torn last line is dropped."""
    if not path.exists():
        return []
    lines = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return [line for line in lines if json.loads(line)["step"] <= step]


def _wandb_run(project: str, workdir: AnyPath) -> Any:
    """A run named after its folder, resumed when training is."""
    if find_spec("wandb") is None:
        hint = "pip install wandb, or leave config.watch.wandb empty"
        raise InputError("config", "watch.wandb", "not installed", "the wandb package", hint)
    import wandb

    folder = os.fspath(absolute(workdir))
    run = hashlib.sha256(folder.encode()).hexdigest()[:16]
    config = json.loads((workdir / "config.json").read_text())
    return wandb.init(project=project, name=folder, id=run, resume="allow", config=config)
