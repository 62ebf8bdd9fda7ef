"""BEiT (Bao et al. 2021) with relative positions and layer scale, as timm and USFM have it.

No position is added to the tokens: each block has a table of biases by relative position, with
three more rows (class token to cell, cell to class token, class token to itself). Queries and
values have biases, keys have none. Pooling is the mean of the cells, normed after it.

Shape letters: B images, H W pixels, N tokens (class token, then cells in raster order), C channels.
"""

from dataclasses import dataclass

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from tumorchain_jax.models.image.layers import StochasticDepth, head, mlp, tokens
from tumorchain_jax.models.layers.attention import biased_attention
from tumorchain_jax.models.layers.linear import Linear, LoRA
from tumorchain_jax.models.layers.logical_axes import constrain, logical
from tumorchain_jax.models.layers.norm import layer_norm
from tumorchain_jax.models.layers.remat import Remat, rematerialized

LAYER_NORM_EPSILON = 1e-6


@dataclass(frozen=True)
class BeitConfig:
    """Sizes; the defaults are those of USFM's encoder (ViT-B/16).

    Attributes:
        image: rows and columns of pixels, multiples of the patch.
        layer_scale: initial factor of every residual branch.
        shared_positions: one table for all blocks.
        channels: of the images.
        classes: 0 for no head.
    """

    image: tuple[int, int] = (224, 224)
    patch: int = 16
    hidden_size: int = 768
    mlp_size: int = 3072
    num_layers: int = 12
    num_heads: int = 12
    layer_scale: float = 0.1
    shared_positions: bool = False
    channels: int = 3
    classes: int = 1000

    @property
    def features(self) -> int:
        """Size of the pooled feature vector."""
        return self.hidden_size

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of cells."""
        return self.image[0] // self.patch, self.image[1] // self.patch

    @property
    def distances(self) -> int:
        """Rows of a table of relative positions."""
        return (2 * self.grid[0] - 1) * (2 * self.grid[1] - 1) + 3


def relative_positions(grid: tuple[int, int]) -> Int[np.ndarray, "N N"]:
    """Row of the table for each query (row) and key (column), the class token first."""
    rows, columns = grid
    y, x = (each.ravel() for each in np.mgrid[:rows, :columns])
    dy, dx = y[:, None] - y + rows - 1, x[:, None] - x + columns - 1
    cells = (2 * rows - 1) * (2 * columns - 1)
    index = np.empty((len(y) + 1, len(y) + 1), np.int32)
    index[1:, 1:] = dy * (2 * columns - 1) + dx
    index[0, 1:], index[1:, 0], index[0, 0] = cells, cells + 1, cells + 2
    return index


def _positions(module: nn.Module, config: BeitConfig) -> Float[Array, "D H"]:
    """The table of biases as a parameter of a module."""
    init = logical(nn.initializers.zeros, None, None)
    return module.param("positions", init, (config.distances, config.num_heads))


class Block(nn.Module):
    """Pre-norm transformer block whose branches are scaled."""

    config: BeitConfig
    train: bool
    lora: LoRA | None = None
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B N C"],
        drop_rate: Float[Array, ""],
        shared: Float[Array, "D H"] | None,
    ) -> tuple[Float[Array, "B N C"], None]:
        """Run the block; the None is what `nn.scan` collects."""
        config = self.config
        B, N, C = x.shape
        heads = config.num_heads

        def linear(name: str, features: int, axes: tuple[str, str], bias: bool = True) -> Linear:
            return Linear(features, axes, bias, self.lora, self.dtype, name=name)

        def vector(name: str, value: float) -> Float[Array, " C"]:
            init = logical(nn.initializers.constant(value), "norm")
            return self.param(name, init, (C,)).astype(self.dtype)

        y = layer_norm(LAYER_NORM_EPSILON, self.dtype, "norm1")(x)
        qkv = linear("qkv", 3 * C, ("embed", "qkv"), bias=False)(y)
        q, k, v = jnp.split(qkv, 3, axis=-1)
        q, v = q + vector("q_bias", 0.0), v + vector("v_bias", 0.0)
        table = _positions(self, config) if shared is None else shared
        bias = table[relative_positions(config.grid)].transpose(2, 0, 1)[None]
        q, k, v = (part.reshape(B, N, heads, -1) for part in (q, k, v))
        y = biased_attention(q, k, v, bias.astype(jnp.float32)).reshape(B, N, C)
        y = vector("gamma_1", config.layer_scale) * linear("proj", C, ("heads", "embed"))(y)
        x = x + StochasticDepth(name="drop1")(y, drop_rate, self.train)
        y = mlp(x, config.mlp_size, LAYER_NORM_EPSILON, self.lora, self.dtype)
        y = vector("gamma_2", config.layer_scale) * y
        x = x + StochasticDepth(name="drop2")(y, drop_rate, self.train)
        return constrain(x, "batch", None, None), None


class Beit(nn.Module):
    """Images in; logits and pooled features out.

    Attributes:
        drop_path: rate of stochastic depth of the last block.
    """

    config: BeitConfig
    lora: LoRA | None = None
    dtype: DTypeLike = jnp.float32
    remat: Remat = "none"
    scan_unroll: int = 1
    drop_path: float = 0.0

    @nn.compact
    def __call__(
        self, images: Float[Array, "B H W C"], train: bool = False
    ) -> tuple[Float[Array, "B K"], Float[Array, "B F"]]:
        """Return logits and pooled features; without a head the logits are the features.

        Args:
            images: normalized by the model's mean and deviation, of the config's size.
            train: drop branches by `drop_path`.
        """
        config = self.config
        x = tokens(self, images, config.hidden_size, config.patch, self.dtype)
        blocks = nn.scan(
            rematerialized(Block, self.remat),
            variable_axes={"params": 0},
            split_rngs={"params": True, "drop_path": True},
            in_axes=(0, nn.broadcast),
            length=config.num_layers,
            unroll=self.scan_unroll,
            metadata_params={nn.PARTITION_NAME: "layers"},
        )
        shared = _positions(self, config) if config.shared_positions else None
        rates = jnp.linspace(0.0, self.drop_path, config.num_layers)
        x, _ = blocks(config, train, self.lora, self.dtype, name="blocks")(x, rates, shared)
        features = layer_norm(LAYER_NORM_EPSILON, self.dtype, "norm")(x[:, 1:].mean(axis=1))
        return head(config.classes, self.dtype, features), features
