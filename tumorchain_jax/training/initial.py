"""Where parameters start, on their own devices; no random array is made that is then replaced."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

Places = Mapping[str, jax.ShapeDtypeStruct]
"""Shape, dtype and, where it matters, sharding of every parameter, by path."""


def random_arrays(
    init: Callable[[jax.Array], dict[str, Any]], seed: int, places: Places
) -> dict[str, jax.Array]:
    """Random parameters for `places`; the same on every mesh.

    Args:
        init: all new parameters of the model by path, from a key.
    """

    def some(key: jax.Array) -> dict[str, jax.Array]:
        params = init(key)
        return {path: params[path].astype(leaf.dtype) for path, leaf in places.items()}

    shardings = {path: leaf.sharding for path, leaf in places.items()}
    return jax.jit(some, out_shardings=shardings)(jax.random.key(seed))


def place(array: np.ndarray, where: jax.ShapeDtypeStruct) -> jax.Array:
    """Place an array that every process has: each device gets its shard."""
    array = array.astype(where.dtype, copy=False)
    sharding: Any = where.sharding or jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])
