"""ResNet-50, -101 and -152 (He et al. 2015; stride in the 3x3 convolution), as timm has them.

Shape letters: B images, H W pixels or cells, C channels.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import flax.linen as nn
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from tumorchain_jax.models.image.layers import (
    KERNEL_INIT,
    STATISTICS,
    BatchNorm,
    Convolution,
    head,
)
from tumorchain_jax.models.layers.linear import Linear
from tumorchain_jax.models.layers.logical_axes import constrain
from tumorchain_jax.models.layers.remat import Remat, rematerialized

EXPANSION = 4
"""Channels of a block's output for each one inside."""


@dataclass(frozen=True)
class ResNetConfig:
    """Sizes; the defaults are ResNet-50's.

    Attributes:
        blocks: of each stage.
        width: channels of the stem, and inside the first stage's blocks.
        channels: of the images.
        classes: 0 for no head.
    """

    blocks: tuple[int, ...] = (3, 4, 6, 3)
    width: int = 64
    channels: int = 3
    classes: int = 1000

    @property
    def features(self) -> int:
        """Size of the pooled feature vector."""
        return self.width * 2 ** (len(self.blocks) - 1) * EXPANSION


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions beside a shortcut.

    Attributes:
        width: channels inside.
        stride: of the second convolution, and of the shortcut.
        downsample: the shortcut has a convolution of its own.
    """

    width: int
    train: bool
    stride: int = 1
    downsample: bool = False
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, x: Float[Array, "B H W C"]) -> tuple[Float[Array, "B h w K"], None]:
        """Run the block; the None is what `nn.scan` collects."""
        features = EXPANSION * self.width

        def pointwise(name: str, channels: int, x: Array) -> Array:
            axes = ("channels", "embed")
            return Linear(channels, axes, False, None, self.dtype, KERNEL_INIT, name=name)(x)

        def norm(name: str, x: Array) -> Array:
            # A block starts as its shortcut.
            init = nn.initializers.zeros if name == "bn3" else nn.initializers.ones
            return BatchNorm(init, self.dtype, name=name)(x, self.train)

        y = nn.relu(norm("bn1", pointwise("conv1", self.width, x)))
        y = Convolution(self.width, 3, self.stride, self.dtype, name="conv2")(y)
        y = norm("bn3", pointwise("conv3", features, nn.relu(norm("bn2", y))))
        if self.downsample:
            x = pointwise("downsample", features, x[:, :: self.stride, :: self.stride])
            x = norm("downsample_bn", x)
        return constrain(nn.relu(x + y), "batch", None, None, None), None


class Stage(nn.Module):
    """Blocks of one width: the first, which may halve the grid, and the rest, stacked."""

    blocks: int
    width: int
    stride: int
    train: bool
    dtype: DTypeLike = jnp.float32
    remat: Remat = "none"
    scan_unroll: int = 1

    @nn.compact
    def __call__(self, x: Float[Array, "B H W C"]) -> Float[Array, "B h w K"]:
        """Run the blocks."""
        first = rematerialized(Bottleneck, self.remat, in_scan=False)
        x, _ = first(self.width, self.train, self.stride, True, self.dtype, name="first")(x)
        if self.blocks > 1:
            rest = nn.scan(
                rematerialized(Bottleneck, self.remat),
                variable_axes={"params": 0, STATISTICS: 0},
                split_rngs={"params": True},
                length=self.blocks - 1,
                unroll=self.scan_unroll,
                metadata_params={nn.PARTITION_NAME: "layers"},
            )
            x, _ = rest(self.width, self.train, dtype=self.dtype, name="rest")(x)
        return x


class ResNet(nn.Module):
    """Images in; logits and pooled features out."""

    config: ResNetConfig
    dtype: DTypeLike = jnp.float32
    remat: Remat = "none"
    scan_unroll: int = 1

    @nn.compact
    def __call__(
        self, images: Float[Array, "B H W C"], train: bool = False
    ) -> tuple[Float[Array, "B K"], Float[Array, "B F"]]:
        """Return logits and pooled features; without a head the logits are the features.

        Args:
            images: normalized by the model's mean and deviation.
            train: normalize by the batch, and update the running statistics.
        """
        config = self.config
        options = (train, self.dtype, self.remat, self.scan_unroll)
        features = trunk(config.blocks, config.width, images, *options)[-1].mean(axis=(1, 2))
        return head(config.classes, self.dtype, features), features


def trunk(
    blocks: Sequence[int],
    width: int,
    images: Float[Array, "B H W C"],
    train: bool,
    dtype: DTypeLike = jnp.float32,
    remat: Remat = "none",
    scan_unroll: int = 1,
) -> list[Float[Array, "B h w K"]]:
    """Features of every stage, finest first.

    To be called within a compact module, whose parameters `conv1`, `bn1`, `layer1`, ... it makes.

    Args:
        blocks: of each stage.
        width: channels of the stem.
    """
    x = Convolution(width, 7, 2, dtype, name="conv1")(images)
    x = nn.relu(BatchNorm(dtype=dtype, name="bn1")(x, train))
    x = nn.max_pool(x, (3, 3), (2, 2), ((1, 1), (1, 1)))
    stages = []
    for number, count in enumerate(blocks):
        stride = 1 if number == 0 else 2
        options = (train, dtype, remat, scan_unroll)
        x = Stage(count, width * 2**number, stride, *options, name=f"layer{number + 1}")(x)
        stages.append(x)
    return stages
