"""Throughput of a run: seconds per step, rates, and model FLOPs utilisation."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import jax

from tumorchain_jax.parallel.chips import peak_tflops

UNKNOWN = "unknown"
"""The utilisation of a device whose peak is not in the table."""
Values = dict[str, float | str]


@dataclass(frozen=True)
class Work:
    """The work of a step, on all devices.

    Attributes:
        volumes: scans read; 0 where it reads something else.
        flops: floating-point operations of the model; 0 where they are not counted.
    """

    volumes: int = 0
    flops: int = 0


class Throughput:
    """Rates between two readings, each taken when the devices have finished all steps."""

    def __init__(self, work: Work):
        self._work = work
        self._steps, self._waited, self._since = 0, 0.0, time.monotonic()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Measure the time in this block as waiting for data."""
        started = time.monotonic()
        yield
        self._waited += time.monotonic() - started

    def step(self) -> None:
        """Count a step."""
        self._steps += 1

    def read(self, tokens: float) -> Values:
        """The rates since the last reading.

        Args:
            tokens: that the steps since then read, text and visual, without padding.
        """
        now = time.monotonic()
        seconds, steps = now - self._since, self._steps
        values: Values = {
            "seconds_a_step": round(seconds / steps, 4),
            "waiting_for_data": round(self._waited / seconds, 4),
        }
        if self._work.volumes:
            values["volumes_per_second"] = round(self._work.volumes * steps / seconds, 3)
        if tokens:
            values["tokens_per_second"] = round(tokens / seconds, 1)
        if self._work.flops:
            values["mfu"] = _mfu(self._work.flops * steps / seconds)
        self._steps, self._waited, self._since = 0, 0.0, now
        return values


def _mfu(flops_per_second: float) -> float | str:
    """Model FLOPs utilisation: the model's FLOPs as a share of the peak of all devices."""
    peak = peak_tflops(jax.devices()[0].device_kind)
    if peak is None:
        return UNKNOWN
    return round(flops_per_second / (jax.device_count() * peak * 1e12), 4)
