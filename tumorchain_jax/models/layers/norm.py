"""Layer normalization with the epsilon and the logical axes of its parameters."""

import flax.linen as nn
from jax.typing import DTypeLike

from tumorchain_jax.models.layers.logical_axes import logical


def layer_norm(epsilon: float, dtype: DTypeLike, name: str) -> nn.LayerNorm:
    """A LayerNorm; Flax's default epsilon is none of those of published models."""
    return nn.LayerNorm(
        epsilon=epsilon,
        dtype=dtype,
        scale_init=logical(nn.initializers.ones, "norm"),
        bias_init=logical(nn.initializers.zeros, "norm"),
        name=name,
    )
