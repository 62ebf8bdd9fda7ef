"""The projector P: visual features -> the decoder's embedding space (paper, section 10.1)."""

from dataclasses import dataclass
from typing import Literal

import flax.linen as nn
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from tumorchain_jax.models.layers.linear import Linear, LoRA
from tumorchain_jax.models.layers.logical_axes import constrain


@dataclass(frozen=True)
class ProjectorConfig:
    """Linear-ReLU-Linear as in the paper; `gelu` (erf) loads M3D's projector."""

    activation: Literal["relu", "gelu"] = "relu"


class Projector(nn.Module):
    """Two linear layers with one activation between, applied to each token alone."""

    config: ProjectorConfig
    features: int
    lora: LoRA | None = None
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, x: Float[Array, "B N C"]) -> Float[Array, "B N K"]:
        """Project tokens."""
        rest = (True, self.lora, self.dtype)
        x = Linear(self.features, ("embed", "mlp"), *rest, name="linear1")(x)
        x = nn.relu(x) if self.config.activation == "relu" else nn.gelu(x, approximate=False)
        x = constrain(x, "batch", "cells", "mlp")
        return Linear(self.features, ("mlp", "embed"), *rest, name="linear2")(x)


def pool_cells(
    cells: Float[Array, "B N C"], grid: tuple[int, int, int], size: int
) -> Float[Array, "B G C"]:
    """Mean over blocks of size^3 cells, raster order kept (M3D's spatial pooling)."""
    B, _, C = cells.shape
    d, h, w = (n // size for n in grid)
    blocks = cells.reshape(B, d, size, h, size, w, size, C)
    return blocks.mean(axis=(2, 4, 6)).reshape(B, d * h * w, C)
