"""Several processes that run one program, each with its own devices."""

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
    """Become one of several processes; before anything else is asked of JAX.

    Args:
        address: `HOST:PORT` of the first process; `auto` where a TPU pod, Slurm or Kubernetes tells
            all three.
        count, index: how many processes there are, and which this is.

    Raises:
        InputError: not all were there in time; JAX itself would end the process.
    """
    place = resolve_process(address, count, index, TIMEOUT)
    with connect(place, TIMEOUT):
        pass
    jax.distributed.initialize(
        place.address, place.count, place.index, initialization_timeout=TIMEOUT
    )


def is_primary() -> bool:
    """Whether this is the process that writes what is to be written once."""
    return jax.process_index() == 0


def barrier(name: str) -> None:
    """Go on when every process has come here."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(name)


def local_rows(sharding: NamedSharding, count: int) -> list[int]:
    """Which of a batch's `count` rows lie on this process's devices."""
    places: Any = sharding.addressable_devices_indices_map((count,)).values()
    return sorted({row for (rows,) in places for row in range(count)[rows]})


def global_batch(
    local: Mapping[str, np.ndarray], rows: Sequence[int], count: int, sharding: NamedSharding
) -> dict[str, jax.Array]:
    """The rows that each process has read -> one batch of all of them.

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
    """All of an array, in every process."""
    if not array.is_fully_addressable:
        whole: Any = multihost_utils.process_allgather(array, tiled=True)
        return np.asarray(whole)
    return np.asarray(array)
