"""An object in a process of its own: neither side of a comparison meets the other's threads and
memory, and each has a peak of its own."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import TracebackType
from typing import Any


class OwnProcess:
    """What `make(*args)` returns, made and kept in a new process until the `with` block ends.

    Args:
        make: a function or class of a module; its arguments and what methods return are pickled.
    """

    def __init__(self, make: Callable[..., Any], *args: Any):
        self._process = ProcessPoolExecutor(1, get_context("spawn"))
        self._make = make, args

    def __enter__(self) -> "OwnProcess":
        self._process.submit(_keep, *self._make).result()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.shutdown()

    def __call__(self, method: str, *args: Any) -> Any:
        """What this method of the object returns; what it raises is raised here."""
        return self._process.submit(_call, method, args).result()

    def peak_gb(self) -> float:
        """The most memory that the process has held so far."""
        return self._process.submit(_peak_gb).result()


_kept: list[Any] = []
"""In the new process: the object."""


def _keep(make: Callable[..., Any], args: tuple[Any, ...]) -> None:
    _kept.append(make(*args))


def _call(method: str, args: tuple[Any, ...]) -> Any:
    return getattr(_kept[0], method)(*args)


def _peak_gb() -> float:
    # Not getrusage: its count of a child begins with the memory of the parent.
    lines = Path("/proc/self/status").read_text().splitlines()
    kib = next(line.split()[1] for line in lines if line.startswith("VmHWM"))
    return float(kib) * 1024 / 1e9
