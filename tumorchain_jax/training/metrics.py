"""Where a run's numbers go: JSON lines, TensorBoard, and a bar at a terminal."""

import json
from collections.abc import Mapping
from pathlib import Path

from tensorboardX import SummaryWriter
from tqdm import tqdm


class MetricsLog:
    """Writes `metrics.jsonl` and `tensorboard/` in the run's folder.

    Resuming at a step drops the lines from there on, which a stopped run may have written ahead of
    its last checkpoint.
    """

    def __init__(self, workdir: Path, first_step: int, last_step: int):
        path = workdir / "metrics.jsonl"
        kept = _lines_before(path, first_step)
        part = path.with_name(".metrics.jsonl.part")
        part.write_text("".join(kept))
        part.replace(path)
        self._file = path.open("a", buffering=1)
        self._board = SummaryWriter(str(workdir / "tensorboard"), purge_step=first_step + 1)
        self._bar = tqdm(initial=first_step, total=last_step, unit=" steps", disable=None)

    def advance(self) -> None:
        """Count a step."""
        self._bar.update()

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Log one step's numbers."""
        self._file.write(json.dumps({"step": step, **values}) + "\n")
        for name, value in values.items():
            self._board.add_scalar(name, value, step)
        self._bar.set_postfix(loss=f"{values['loss']:.3f}")

    def close(self) -> None:
        """Flush everything."""
        self._file.close()
        self._board.close()
        self._bar.close()


class NoLog:
    """Of a process whose numbers another one writes."""

    def advance(self) -> None:
        """Count nothing."""

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Write nothing."""

    def close(self) -> None:
        """Nothing was opened."""


def _lines_before(path: Path, step: int) -> list[str]:
    """Whole lines of steps up to and with `step`; a torn last line is dropped."""
    if not path.is_file():
        return []
    lines = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return [line for line in lines if json.loads(line)["step"] <= step]
