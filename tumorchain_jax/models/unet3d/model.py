"""nnU-Net's two networks (dynamic_network_architectures, architectures/unet.py).

PlainConvUNet: every encoder stage is a row of convolution, instance norm, leaky ReLU; the first
convolution of a stage has its stride. ResidualEncoderUNet: a stem, and stages of residual blocks
(ResNet-D: the shortcut is pooled by averaging). Both have the same decoder: transposed convolution,
the encoder's features of that size beside it, and a row of convolutions.

Shape letters: B tiles, D H W voxels in the order of the network's own axes (z, y, x as a rule),
C channels, V classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from tumorchain_jax.models.layers.logical_axes import constrain, logical
from tumorchain_jax.models.unet3d.convolution import convolve, instance_norm, upsample

Size = tuple[int, int, int]
LEAK = 0.01
# Kaiming's, for a leaky ReLU.
KERNEL_INIT = nn.initializers.variance_scaling(2 / (1 + LEAK**2), "fan_in", "normal")


@dataclass(frozen=True)
class UNet3DConfig:
    """Sizes of the network, as a plan has them.

    Attributes:
        in_channels: of a scan: 1 for CT.
        classes: of the logits, the background among them.
        features: channels of each stage.
        strides: of each stage's first convolution.
        kernels: of each stage; odd.
        encoder_blocks: convolutions of a plain stage, blocks of a residual one.
        decoder_convs: of each decoder stage, the deepest first.
        residual: ResidualEncoderUNet, not PlainConvUNet.
    """

    in_channels: int
    classes: int
    features: tuple[int, ...]
    strides: tuple[Size, ...]
    kernels: tuple[Size, ...]
    encoder_blocks: tuple[int, ...]
    decoder_convs: tuple[int, ...]
    residual: bool = False

    @property
    def multiple(self) -> Size:
        """A tile's size along each axis is a multiple of it."""
        d, h, w = (prod(axis) for axis in zip(*self.strides, strict=True))
        return d, h, w


class ConvNorm(nn.Module):
    """Convolution, instance norm, and (if `active`) leaky ReLU.

    Attributes:
        scale_init: of the norm.
    """

    features: int
    kernel: Size
    strides: Size = (1, 1, 1)
    use_bias: bool = True
    active: bool = True
    scale_init: nn.initializers.Initializer = nn.initializers.ones
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, x: Float[Array, "B D H W C"]) -> Float[Array, "B E F G K"]:
        """Apply it."""
        K = self.features
        init = logical(KERNEL_INIT, None, None, None, None, "channels")
        kernel = self.param("kernel", init, (*self.kernel, x.shape[-1], K)).astype(self.dtype)
        zeros = logical(nn.initializers.zeros, "channels")
        if self.use_bias:
            # nnU-Net has one. It changes nothing: the norm takes each channel's mean off again.
            self.param("bias", zeros, (K,))
        scale = self.param("norm_scale", logical(self.scale_init, "channels"), (K,))
        bias = self.param("norm_bias", zeros, (K,))
        x = instance_norm(convolve(x, kernel, self.strides), scale, bias)
        return jax.nn.leaky_relu(x, LEAK) if self.active else x


class ResidualBlock(nn.Module):
    """Two convolutions beside a shortcut (BasicBlockD of dynamic_network_architectures)."""

    features: int
    kernel: Size
    strides: Size = (1, 1, 1)
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, x: Float[Array, "B D H W C"]) -> Float[Array, "B E F G K"]:
        """Apply it."""
        K, kernel, dtype = self.features, self.kernel, self.dtype
        y = ConvNorm(K, kernel, self.strides, dtype=dtype, name="conv1")(x)
        # A block starts as its shortcut.
        zeros = nn.initializers.zeros
        y = ConvNorm(K, kernel, active=False, scale_init=zeros, dtype=dtype, name="conv2")(y)
        x = average(x, self.strides)
        if x.shape[-1] != K:
            one = ConvNorm(K, (1, 1, 1), use_bias=False, active=False, dtype=dtype, name="skip")
            x = one(x)
        return jax.nn.leaky_relu(x + y, LEAK)


def average(x: Float[Array, "B D H W C"], size: Size) -> Float[Array, "B E F G C"]:
    """The mean of every block of voxels."""
    if size == (1, 1, 1):
        return x
    B, D, H, W, C = x.shape
    d, h, w = size
    return x.reshape(B, D // d, d, H // h, h, W // w, w, C).mean((2, 4, 6))


class Upsample(nn.Module):
    """Transposed convolution whose kernel is its stride."""

    features: int
    strides: Size
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, x: Float[Array, "B D H W C"]) -> Float[Array, "B E F G K"]:
        """Apply it."""
        init = logical(KERNEL_INIT, None, None, None, None, "channels")
        kernel = self.param("kernel", init, (*self.strides, x.shape[-1], self.features))
        zeros = logical(nn.initializers.zeros, "channels")
        bias = self.param("bias", zeros, (self.features,))
        return upsample(x, kernel.astype(self.dtype)) + bias.astype(self.dtype)


class Head(nn.Module):
    """Features of a voxel -> logits, in float32 whatever the features are."""

    classes: int

    @nn.compact
    def __call__(self, x: Float[Array, "B D H W C"]) -> Float[Array, "B D H W V"]:
        """Apply it."""
        V = self.classes
        kernel = self.param("kernel", logical(KERNEL_INIT, None, "classes"), (x.shape[-1], V))
        bias = self.param("bias", logical(nn.initializers.zeros, "classes"), (V,))
        return jnp.matmul(x, kernel.astype(x.dtype), preferred_element_type=jnp.float32) + bias


class Encoder(nn.Module):
    """A tile in, the features of every stage out, the finest first."""

    config: UNet3DConfig
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, x: Float[Array, "B D H W C"]) -> list[Array]:
        """Apply it."""
        config = self.config
        layer, what = (ResidualBlock, "block") if config.residual else (ConvNorm, "conv")
        if config.residual:
            x = ConvNorm(config.features[0], config.kernels[0], dtype=self.dtype, name="stem")(x)
        skips = []
        stages = zip(
            config.features, config.kernels, config.strides, config.encoder_blocks, strict=True
        )
        for stage, (features, kernel, strides, blocks) in enumerate(stages):
            for i in range(blocks):
                name = f"stage{stage}_{what}{i}"
                own = strides if i == 0 else (1, 1, 1)
                x = layer(features, kernel, own, dtype=self.dtype, name=name)(x)
            skips.append(constrain(x, "batch", None, None, None, "channels"))
        return skips


class Decoder(nn.Module):
    """The features of every stage in, logits of the finest out."""

    config: UNet3DConfig
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, skips: Sequence[Array]) -> Float[Array, "B D H W V"]:
        """Apply it."""
        config, dtype = self.config, self.dtype
        x = skips[-1]
        for stage, convs in enumerate(config.decoder_convs):
            finer = len(skips) - 2 - stage
            features, kernel = config.features[finer], config.kernels[finer]
            up = Upsample(features, config.strides[finer + 1], dtype, name=f"stage{stage}_upsample")
            x = jnp.concatenate([up(x), skips[finer]], axis=-1)
            for i in range(convs):
                x = ConvNorm(features, kernel, dtype=dtype, name=f"stage{stage}_conv{i}")(x)
            x = constrain(x, "batch", None, None, None, "channels")
            # The coarser heads are used in training only; the compiler drops unused outputs.
            logits = Head(config.classes, name=f"stage{stage}_head")(x)
        return logits


class UNet3D(nn.Module):
    """A tile of a preprocessed scan in, logits of its voxels out."""

    config: UNet3DConfig
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, x: Float[Array, "B D H W C"]) -> Float[Array, "B D H W V"]:
        """Logits at full resolution, float32.

        Raises:
            ValueError: the tile's size is no multiple of the strides together.
        """
        if np.any(np.mod(x.shape[1:4], self.config.multiple)):
            found, expected = x.shape[1:4], self.config.multiple
            raise ValueError(f"a tile of {found} voxels, expected multiples of {expected}")
        x = constrain(x.astype(self.dtype), "batch", None, None, None, None)
        skips = Encoder(self.config, self.dtype, name="encoder")(x)
        return Decoder(self.config, self.dtype, name="decoder")(skips)
