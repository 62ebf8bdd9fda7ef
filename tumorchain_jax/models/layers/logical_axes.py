"""Names for the axes of parameters and activations: all that a model knows of being sharded.

What a name means on a mesh is decided in `parallel/partition.py`. Without a mesh they mean nothing.
"""

from typing import cast

import flax.linen as nn
import jax
from flax.linen.spmd import RulesFallback
from jaxtyping import Array


def logical(init: nn.initializers.Initializer, *axes: str | None) -> nn.initializers.Initializer:
    """An initializer whose parameter carries the logical names of its axes."""
    return cast(nn.initializers.Initializer, nn.with_logical_partitioning(init, axes))


def constrain(x: Array, *axes: str | None) -> Array:
    """An activation laid out by the logical names of its axes; None is an axis that stays whole.

    Raises:
        ValueError: no rule speaks of a name.
    """
    return nn.with_logical_constraint(x, axes, fallback=RulesFallback.RAISE_ERROR)


def on_one_device() -> bool:
    """Whether there is no mesh, or one that cuts nothing."""
    mesh = jax.sharding.get_abstract_mesh()
    return mesh.empty or mesh.size == 1
