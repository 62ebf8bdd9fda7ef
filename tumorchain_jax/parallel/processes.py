"""Run one program in several processes, each with its own devices."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding

from tumorchain_jax.parallel.rendezvous import connect, resolve_process

TIMEOUT = 300
"""Seconds to wait for the other processes at the start."""


def join(address: str, count: int | None = None, index: int | None = None) -> None:
    """Join the other processes; must be called before any other use of JAX.

    Args:
        address: `HOST:PORT` of the first process; `auto` to take all three from a TPU pod, Slurm or
            Kubernetes.
        count, index: how many processes there are, and which this is.

    Raises:
        InputError: not all joined in time; JAX itself would abort the process.
    """
    place = resolve_process(address, count, index, TIMEOUT)
    with connect(place, TIMEOUT):
        pass
    jax.distributed.initialize(
        place.address, place.count, place.index, initialization_timeout=TIMEOUT
    )


def is_primary() -> bool:
    """Whether this is the primary process, the one that writes files and messages."""
    return jax.process_index() == 0


def barrier(name: str) -> None:
    """Wait until every process has reached this point."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(name)


def local_rows(sharding: NamedSharding, count: int) -> list[int]:
    """The numbers of a batch's `count` rows that lie on this process's devices."""
    places: Any = sharding.addressable_devices_indices_map((count,)).values()
    return sorted({row for (rows,) in places for row in range(count)[rows]})


def global_batch(
    local: Mapping[str, np.ndarray], rows: Sequence[int], count: int, sharding: NamedSharding
) -> dict[str, jax.Array]:
    """Build one global batch from the rows that each process has read.

    Args:
        local: this process's rows of each array.
        rows: their numbers, as `local_rows` says.
        count: of the rows of all processes.
    """
    place = {row: i for i, row in enumerate(rows)}

    def whole(array: np.ndarray) -> jax.Array:
        def shard(index: Any) -> np.ndarray:
            return array[[place[row] for row in range(count)[index[0]]]]

        return jax.make_array_from_callback((count, *array.shape[1:]), sharding, shard)

    return {name: whole(array) for name, array in local.items()}


def gather_to_host(array: jax.Array) -> np.ndarray:
    """Gather a whole array into the host memory of every process."""
    if not array.is_fully_addressable:
        whole: Any = multihost_utils.process_allgather(array, tiled=True)
        return np.asarray(whole)
    return np.asarray(array)
