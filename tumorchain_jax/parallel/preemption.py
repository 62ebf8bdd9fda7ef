"""The word of a scheduler that takes a machine back, SIGTERM to any of the processes; or Ctrl-C."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import jax
from jax.experimental import multihost_utils

_calls = count(1)
"""All processes ask equally often, and JAX wants a number that rises."""


class PreemptionListener:
    """Whether the run has been asked to end; all processes hear of it after the same step."""

    def __init__(self) -> None:
        self._heard = False

    def _hear(self, number: int, _: object) -> None:
        self._heard = True
        if number == signal.SIGINT:
            print("tumorchain: stopping once this step is saved; again: at once", file=sys.stderr)
            signal.signal(signal.SIGINT, signal.default_int_handler)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen instead of dying. Among several processes JAX's coordinator listens already."""
        if jax.process_count() > 1:
            yield
            return
        signals = (signal.SIGTERM, signal.SIGINT)
        before = [signal.signal(number, self._hear) for number in signals]
        try:
            yield
        finally:
            for number, handler in zip(signals, before, strict=True):
                signal.signal(number, handler)

    def requested(self) -> bool:
        """To be asked by every process after every step."""
        if jax.process_count() > 1:
            return multihost_utils.reached_preemption_sync_point(next(_calls))
        return self._heard
