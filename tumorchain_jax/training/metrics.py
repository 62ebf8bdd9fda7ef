"""Where a run's numbers go: JSON lines, TensorBoard, a bar at a terminal; Weights & Biases."""

import hashlib
import json
import os
import shutil
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


class MetricsLog:
    """Writes `metrics.jsonl` and `tensorboard/` in the run's folder.

    Resuming at a step drops the lines from there on, which a stopped run may have written ahead of
    its last checkpoint.

    Args:
        wandb: the project of Weights & Biases to send them to as well; empty for none.

    Raises:
        InputError: its package is not here.
    """

    def __init__(self, workdir: AnyPath, first_step: int, last_step: int, wandb: str = ""):
        self._wandb = _wandb_run(wandb, workdir) if wandb else None
        self._workdir, self._flushed = workdir, time.monotonic()
        # A store cannot append: there the files are made in a local folder, and copied.
        self._folder = Path(mkdtemp()) if is_remote(workdir) else Path(workdir)
        path = self._folder / "metrics.jsonl"
        lines = _lines_before(workdir / "metrics.jsonl", first_step)
        write_file(path, "".join(lines).encode())
        self._file = path.open("a", buffering=1)
        self._board = SummaryWriter(str(self._folder / "tensorboard"), purge_step=first_step + 1)
        self._bar = tqdm(initial=first_step, total=last_step, unit=" steps", disable=None)

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
        self._bar.set_postfix(loss=f"{values['loss']:.3f}")
        if time.monotonic() - self._flushed > FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Copy the files to the run's folder, where that is in a store."""
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
    """Of a process whose numbers another one writes."""

    def advance(self) -> None:
        """Count nothing."""

    def write(self, step: int, values: Mapping[str, float | str]) -> None:
        """Write nothing."""

    def flush(self) -> None:
        """Copy nothing."""

    def close(self) -> None:
        """Nothing was opened."""


def _lines_before(path: AnyPath, step: int) -> list[str]:
    """Whole lines of steps up to and with `step`; a torn last line is dropped."""
    if not path.exists():
        return []
    lines = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return [line for line in lines if json.loads(line)["step"] <= step]


def _wandb_run(project: str, workdir: AnyPath) -> Any:
    """A run named after its folder, which goes on when training does."""
    if find_spec("wandb") is None:
        hint = "pip install wandb, or leave config.watch.wandb empty"
        raise InputError("config", "watch.wandb", "no such package here", "wandb", hint)
    import wandb

    folder = os.fspath(absolute(workdir))
    run = hashlib.sha256(folder.encode()).hexdigest()[:16]
    config = json.loads((workdir / "config.json").read_text())
    return wandb.init(project=project, name=folder, id=run, resume="allow", config=config)
