"""The word of a scheduler that takes a machine back: SIGTERM, to any of the processes."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import jax
from jax.experimental import multihost_utils

_calls = count(1)
"""All processes ask equally often, and JAX wants a number that rises."""


class StopRequest:
    """Whether the run has been asked to end; all processes hear of it after the same step."""

    def __init__(self) -> None:
        self._heard = False

    def _hear(self, *_: object) -> None:
        self._heard = True

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen instead of dying. Among several processes JAX's coordinator listens already."""
        if jax.process_count() > 1:
            yield
            return
        before = signal.signal(signal.SIGTERM, self._hear)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)

    def heard(self) -> bool:
        """To be asked by every process after every step."""
        if jax.process_count() > 1:
            return multihost_utils.reached_preemption_sync_point(next(_calls))
        return self._heard
