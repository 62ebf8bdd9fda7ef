"""Seconds of a piece of work, and a table of them."""

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import jax

REPEATS = 5


def seconds(work: Callable[[], Any], repeats: int = REPEATS) -> float:
    """Median wall time of `work`, whose arrays are waited for; one call before warms it up."""
    jax.block_until_ready(work())
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        jax.block_until_ready(work())
        times.append(time.perf_counter() - started)
    return median(times)


def table(values: Mapping[str, float]) -> str:
    """One line a value."""
    width = max(map(len, values))
    return "\n".join(f"{name:<{width}}  {value:.4g}" for name, value in values.items())
