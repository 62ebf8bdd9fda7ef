"""Preemption: SIGTERM to any of the processes, or Ctrl-C, ends a run after a step."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import jax
from jax.experimental import multihost_utils

_calls = count(1)
"""Step numbers for JAX, which must rise; all processes ask equally often."""


class PreemptionListener:
    """Tells whether preemption was requested: to all processes after the same step."""

    def __init__(self) -> None:
        self._requested = False

    def _handle(self, number: int, _: object) -> None:
        self._requested = True
        if number == signal.SIGINT:
            print("tumorchain: stopping once this step is saved; again: at once", file=sys.stderr)
            signal.signal(signal.SIGINT, signal.default_int_handler)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handle signals in this block. With several processes JAX's coordinator handles them."""
        if jax.process_count() > 1:
            yield
            return
        signals = (signal.SIGTERM, signal.SIGINT)
        before = [signal.signal(number, self._handle) for number in signals]
        try:
            yield
        finally:
            for number, handler in zip(signals, before, strict=True):
                signal.signal(number, handler)

    def requested(self) -> bool:
        """Whether to stop now; every process must call it after every step."""
        if jax.process_count() > 1:
            return multihost_utils.reached_preemption_sync_point(next(_calls))
        return self._requested
