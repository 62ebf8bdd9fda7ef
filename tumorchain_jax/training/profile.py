"""Trace some steps, for TensorBoard's profiler or Perfetto."""

from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import jax

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import AnyPath, is_remote
from tumorchain_jax.core.remote import upload

FOLDER = "profile"


class Profile:
    """Traces the steps of a range, each process its own devices.

    Args:
        steps: `FIRST:LAST`, counted from 1; empty for none.

    Raises:
        InputError: `steps` is not such a range.
    """

    def __init__(self, workdir: AnyPath, steps: str):
        # Its files are named after the host, which may have several processes.
        self._folder = workdir / FOLDER / str(jax.process_index())
        # The profiler writes to local folders alone.
        self._local = Path(mkdtemp()) if steps and is_remote(workdir) else self._folder
        self._first, self._last = _range(steps) if steps else (0, 0)
        self._tracing = False

    def before(self, step: int) -> None:
        """Start the trace before its first step."""
        if step == self._first:
            jax.profiler.start_trace(str(self._local))
            self._tracing = True

    def after(self, step: int, result: Any) -> None:
        """End the trace after its last step, when `result` has been computed."""
        if step == self._last:
            jax.block_until_ready(result)
            self.close()

    def close(self) -> None:
        """End the trace if it runs."""
        if self._tracing:
            jax.profiler.stop_trace()
            if is_remote(self._folder):
                upload(self._local, self._folder)
            self._tracing = False


def _range(steps: str) -> tuple[int, int]:
    first, colon, last = steps.partition(":")
    if not (colon and first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last)):
        raise InputError("--profile", "steps", steps, "FIRST:LAST, counted from 1", "as in 10:12")
    return int(first), int(last)
