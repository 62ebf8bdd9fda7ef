"""The mesh: all devices of all processes, along four named axes."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh

from tumorchain_jax.core.errors import InputError

AXES = ("data", "fsdp", "tensor", "sequence")
"""Outermost first: the axes that communicate least may span the slowest links."""
REST = -1
"""The size of an axis that takes the remaining devices."""


def make_mesh(sizes: Mapping[str, int], devices: Sequence[Any] | None = None) -> Mesh:
    """A mesh of all `devices`, by default of all there are, in every process.

    With several TPU slices, the first axis that their number divides spans them, since the network
    between slices is the slowest.

    Args:
        sizes: of each of `AXES`; one may be -1, the rest.

    Raises:
        InputError: an axis is unknown, or the sizes do not multiply to the devices.
    """
    devices = list(jax.devices() if devices is None else devices)
    shape = mesh_shape(sizes, len(devices))
    slices = len({getattr(device, "slice_index", 0) for device in devices})
    if slices == 1:
        # TPU chips lie in a torus; an axis of ours need not be one of its axes.
        grid = mesh_utils.create_device_mesh(shape, devices, allow_split_physical_axes=True)
    else:
        between = _between_slices(shape, slices)
        within = [size // count for size, count in zip(shape, between, strict=True)]
        grid = mesh_utils.create_hybrid_device_mesh(
            within, between, devices, allow_split_physical_axes=True
        )
    # Explicit axes, the default of `jax.make_mesh`, turn Linen's constraints into assertions.
    return Mesh(np.asarray(grid), AXES, axis_types=(AxisType.Auto,) * len(AXES))


def mesh_shape(sizes: Mapping[str, int], devices: int) -> tuple[int, ...]:
    """The sizes of `AXES`, the -1 among them filled in.

    Raises:
        InputError: an axis is unknown, or the sizes do not multiply to `devices`.
    """
    expected = f"sizes of {', '.join(AXES)} that multiply to the {devices} devices, one may be -1"

    def refuse(found: str) -> InputError:
        return InputError("config", "mesh", found, expected, "change the mesh")

    if unknown := sorted(set(sizes) - set(AXES)):
        raise refuse(f"an axis {unknown[0]}")
    shape = [sizes.get(axis, 1) for axis in AXES]
    found = ", ".join(f"{axis} {size}" for axis, size in zip(AXES, shape, strict=True))
    if any(size < 1 and size != REST for size in shape) or shape.count(REST) > 1:
        raise refuse(found)
    if REST in shape:
        rest, over = divmod(devices, prod(size for size in shape if size != REST))
        if over:
            raise refuse(found)
        shape[shape.index(REST)] = rest
    if prod(shape) != devices:
        raise refuse(found)
    return tuple(shape)


def _between_slices(shape: Sequence[int], slices: int) -> list[int]:
    between = [1] * len(shape)
    for axis, size in enumerate(shape):
        if size % slices == 0:
            between[axis] = slices
            return between
    found = ", ".join(f"{axis} {size}" for axis, size in zip(AXES, shape, strict=True))
    expected = f"an axis that the {slices} slices divide"
    raise InputError("config", "mesh", found, expected, "change the mesh")
