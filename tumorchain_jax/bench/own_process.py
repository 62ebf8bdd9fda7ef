"""An object in a process of its own.

So the sides of a comparison share neither threads nor memory, and each has its own peak.
"""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import TracebackType
from typing import Any


class OwnProcess:
    """Proxy of what `make(*args)` returns, made in a new process that ends with the `with` block.

    Args:
        make: a function or class of a module; its arguments and what methods return are pickled.
    """

    def __init__(self, make: Callable[..., Any], *args: Any):
        self._process = ProcessPoolExecutor(1, get_context("spawn"))
        self._make = make, args

    def __enter__(self) -> "OwnProcess":
        self._process.submit(_create, *self._make).result()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.shutdown()

    def __call__(self, method: str, *args: Any) -> Any:
        """Call a method of the object; what it raises is raised here."""
        return self._process.submit(_call, method, args).result()

    def peak_gb(self) -> float:
        """Peak memory of the process so far, in GB."""
        return self._process.submit(_peak_gb).result()


_objects: list[Any] = []
"""In the new process: the one object."""


def _create(make: Callable[..., Any], args: tuple[Any, ...]) -> None:
    _objects.append(make(*args))


def _call(method: str, args: tuple[Any, ...]) -> Any:
    return getattr(_objects[0], method)(*args)


def _peak_gb() -> float:
    # Not getrusage: its count of a child begins with the memory of the parent.
    lines = Path("/proc/self/status").read_text().splitlines()
    kib = next(line.split()[1] for line in lines if line.startswith("VmHWM"))
    return float(kib) * 1024 / 1e9
