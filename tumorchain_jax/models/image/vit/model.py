"""The vision transformer (Dosovitskiy et al. 2020), as timm has it.

The class token comes first, and positions are added to it too. LayerNorm epsilon is 1e-6, GELU is
exact. Pooling is the class token after the last norm, or the mean of the others, normed after it.

Shape letters: B images, H W pixels, N tokens (class token, then cells in raster order), C channels.
"""

from dataclasses import dataclass
from typing import Literal

import flax.linen as nn
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from tumorchain_jax.models.image.layers import StochasticDepth, head, mlp, tokens
from tumorchain_jax.models.layers.attention import biased_attention
from tumorchain_jax.models.layers.linear import Linear, LoRA
from tumorchain_jax.models.layers.logical_axes import constrain, logical
from tumorchain_jax.models.layers.norm import layer_norm
from tumorchain_jax.models.layers.remat import Remat, rematerialized

LAYER_NORM_EPSILON = 1e-6
Pool = Literal["token", "avg"]


@dataclass(frozen=True)
class ViTConfig:
    """Sizes; the defaults are ViT-B/16's.

    Attributes:
        image: rows and columns of pixels, multiples of the patch.
        channels: of the images.
        classes: 0 for no head.
        pool: the class token, or the mean of the others.
    """

    image: tuple[int, int] = (224, 224)
    patch: int = 16
    hidden_size: int = 768
    mlp_size: int = 3072
    num_layers: int = 12
    num_heads: int = 12
    channels: int = 3
    classes: int = 1000
    pool: Pool = "token"

    @property
    def features(self) -> int:
        """Size of the pooled feature vector."""
        return self.hidden_size

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of cells."""
        return self.image[0] // self.patch, self.image[1] // self.patch


class Block(nn.Module):
    """Pre-norm transformer block: x + attention(norm1 x), then x + mlp(norm2 x)."""

    config: ViTConfig
    train: bool
    lora: LoRA | None = None
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(
        self, x: Float[Array, "B N C"], drop_rate: Float[Array, ""]
    ) -> tuple[Float[Array, "B N C"], None]:
        """Run the block; the None is what `nn.scan` collects."""
        config = self.config
        B, N, C = x.shape
        no_bias = jnp.zeros((1, 1, 1, 1), jnp.float32)

        def linear(name: str, features: int, axes: tuple[str, str]) -> Linear:
            return Linear(features, axes, True, self.lora, self.dtype, name=name)

        y = layer_norm(LAYER_NORM_EPSILON, self.dtype, "norm1")(x)
        qkv = linear("qkv", 3 * C, ("embed", "qkv"))(y)
        q, k, v = (part.reshape(B, N, config.num_heads, -1) for part in jnp.split(qkv, 3, axis=-1))
        y = biased_attention(q, k, v, no_bias).reshape(B, N, C)
        y = linear("proj", C, ("heads", "embed"))(y)
        x = x + StochasticDepth(name="drop1")(y, drop_rate, self.train)
        y = mlp(x, config.mlp_size, LAYER_NORM_EPSILON, self.lora, self.dtype)
        x = x + StochasticDepth(name="drop2")(y, drop_rate, self.train)
        return constrain(x, "batch", None, None), None


class ViT(nn.Module):
    """Images in; logits and pooled features out.

    Attributes:
        drop_path: rate of stochastic depth of the last block.
    """

    config: ViTConfig
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
        init = logical(nn.initializers.normal(0.02), None, None, "embed")
        x = x + self.param("pos_embed", init, (1, *x.shape[1:])).astype(self.dtype)
        blocks = nn.scan(
            rematerialized(Block, self.remat),
            variable_axes={"params": 0},
            split_rngs={"params": True, "drop_path": True},
            length=config.num_layers,
            unroll=self.scan_unroll,
            metadata_params={nn.PARTITION_NAME: "layers"},
        )
        rates = jnp.linspace(0.0, self.drop_path, config.num_layers)
        x, _ = blocks(config, train, self.lora, self.dtype, name="blocks")(x, rates)
        if config.pool == "token":
            features = layer_norm(LAYER_NORM_EPSILON, self.dtype, "norm")(x)[:, 0]
        else:
            features = layer_norm(LAYER_NORM_EPSILON, self.dtype, "norm")(x[:, 1:].mean(axis=1))
        return head(config.classes, self.dtype, features), features
