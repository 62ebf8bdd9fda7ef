"""Both sides of a benchmark in this process, where what they import has been imported already."""

from collections.abc import Callable
from typing import Any

import pytest

from tumorchain_jax.bench import classify, segment, train
from tumorchain_jax.bench.own_process import OwnProcess


class ThisProcess(OwnProcess):
    """The same object and calls, without the process."""

    def __init__(self, make: Callable[..., Any], *args: Any):
        self._make = make, args

    def __enter__(self) -> "ThisProcess":
        make, args = self._make
        self._object = make(*args)
        return self

    def __exit__(self, *_: object) -> None:
        del self._object

    def __call__(self, method: str, *args: Any) -> Any:
        return getattr(self._object, method)(*args)

    def peak_gb(self) -> float:
        return 1.0


@pytest.fixture
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of what is compared; that each side has a process: test_own_process.py."""
    for module in (classify, segment, train):
        monkeypatch.setattr(module, "OwnProcess", ThisProcess)
