"""Timing of a piece of work, and a table of values."""

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import jax

REPEATS = 5


def seconds(work: Callable[[], Any], repeats: int = REPEATS) -> float:
    """Measure the median wall time of `work` after one warm-up call, waiting for its arrays."""
    jax.block_until_ready(work())
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        jax.block_until_ready(work())
        times.append(time.perf_counter() - started)
    return median(times)


def table(values: Mapping[str, float]) -> str:
    """Format values, one per line."""
    width = max(map(len, values))
    return "\n".join(f"{name:<{width}}  {value:.4g}" for name, value in values.items())
