"""The I3D-style 3D ResNet-152 of Merlin (StanfordMIMI/Merlin, merlin/models/i3res.py) and Astra.

torchvision's ResNet with every 2D kernel inflated along the slices: 7x7 to 3x7x7, 3x3 to 3x3x3,
1x1 to 1x1x1. The stem's stride is (1, 2, 2), that of its pooling 2 along every axis; a stage's
stride is that of its first block's second convolution, along every axis. So one cell of the output
is 16 slices x 32 x 32 voxels: 160 x 224 x 224 becomes 10 x 7 x 7.

What is unusual here: Merlin's axes are (superior, right, anterior), ours (superior, posterior,
left): H and W are swapped and reversed on the way in, and cells put back on the way out. Strided
convolutions pad an even size on one side, so reversed kernels would not be the same. The scan is
copied to three channels, which is one channel under the sum of the kernel's three. Batch
normalization uses its running statistics always, in training too: they lie among the parameters,
and `training/optimizer.split_trainable` never trains them.

Shape letters: B batch, D H W voxels (inferior-superior, anterior-posterior, right-left), N cells
(raster order d, h, w), C channels in, K channels out.
"""

from dataclasses import dataclass
from math import prod

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.layers.linear import Linear, LoRA
from tumorchain_jax.models.layers.logical_axes import constrain, logical
from tumorchain_jax.models.layers.remat import Remat, rematerialized
from tumorchain_jax.models.unet3d.convolution import convolve

BATCH_NORM_EPSILON = 1e-5
EXPANSION = 4
"""Channels of a block's output for each one inside."""
CHANNELS = 3
"""Copies of the scan that the stem's kernel was made for."""
CELL = (16, 32, 32)
"""Voxels of a cell."""
KERNEL_INIT = nn.initializers.variance_scaling(2.0, "fan_out", "normal")


@dataclass(frozen=True)
class ResNet3DConfig:
    """Sizes of the encoder; the defaults are Merlin's.

    Attributes:
        blocks: of each of the four stages.
        width: channels of the stem, and inside the first stage's blocks.

    Raises:
        InputError: the image is no whole number of cells.
    """

    image: tuple[int, int, int] = (160, 224, 224)
    blocks: tuple[int, int, int, int] = (3, 8, 36, 3)
    width: int = 64

    def __post_init__(self) -> None:
        if any(size % cell for size, cell in zip(self.image, CELL, strict=True)):
            found, expected = str(self.image), f"multiples of {CELL}"
            raise InputError("config", "encoder.image", found, expected, "change it")

    @property
    def cells(self) -> tuple[int, int, int]:
        """The grid of features: cells along D, H, W."""
        d, h, w = (size // cell for size, cell in zip(self.image, CELL, strict=True))
        return d, h, w

    @property
    def features(self) -> int:
        """Size of a cell's feature vector."""
        return self.width * 2 ** (len(self.blocks) - 1) * EXPANSION


class BatchNorm(nn.Module):
    """Batch normalization by its running statistics, which no gradient reaches."""

    scale_init: nn.initializers.Initializer = nn.initializers.ones
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, x: Float[Array, "B D H W C"]) -> Float[Array, "B D H W C"]:
        """Normalize each channel."""
        zeros, ones = nn.initializers.zeros, nn.initializers.ones

        def param(name: str, init: nn.initializers.Initializer) -> Float[Array, " C"]:
            return self.param(name, logical(init, "norm"), (x.shape[-1],)).astype(jnp.float32)

        scale, bias = param("scale", self.scale_init), param("bias", zeros)
        mean = jax.lax.stop_gradient(param("running_mean", zeros))
        variance = jax.lax.stop_gradient(param("running_var", ones))
        factor = scale * jax.lax.rsqrt(variance + BATCH_NORM_EPSILON)
        return x * factor.astype(self.dtype) + (bias - mean * factor).astype(self.dtype)


class Convolution(nn.Module):
    """A convolution without bias, zero-padded by half its (odd) kernel on every side.

    Attributes:
        copies: of each channel of the input, that the kernel is for.
    """

    features: int
    kernel: tuple[int, int, int]
    strides: tuple[int, int, int]
    copies: int = 1
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, x: Float[Array, "B D H W C"]) -> Float[Array, "B E F G K"]:
        """Apply it."""
        init = logical(KERNEL_INIT, None, None, None, "channels", "embed")
        shape = (*self.kernel, self.copies * x.shape[-1], self.features)
        kernel = self.param("kernel", init, shape)
        kernel = kernel.reshape(*self.kernel, self.copies, x.shape[-1], self.features).sum(axis=3)
        return convolve(x.astype(self.dtype), kernel.astype(self.dtype), self.strides)


class Bottleneck(nn.Module):
    """1x1x1, 3x3x3 and 1x1x1 convolutions beside a shortcut.

    Attributes:
        width: channels inside.
        stride: of the second convolution, and of the shortcut.
        downsample: the shortcut has a convolution of its own.
    """

    width: int
    stride: int = 1
    downsample: bool = False
    lora: LoRA | None = None
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, x: Float[Array, "B D H W C"]) -> tuple[Float[Array, "B E F G K"], None]:
        """Run the block; the None is what `nn.scan` collects."""
        features, strides = EXPANSION * self.width, (self.stride,) * 3

        def pointwise(name: str, channels: int, x: Array) -> Array:
            axes, rest = ("channels", "embed"), (False, self.lora, self.dtype, KERNEL_INIT)
            return Linear(channels, axes, *rest, name=name)(x)

        def norm(name: str, x: Array) -> Array:
            # A block starts as its shortcut.
            init = nn.initializers.zeros if name == "bn3" else nn.initializers.ones
            return BatchNorm(init, self.dtype, name=name)(x)

        y = nn.relu(norm("bn1", pointwise("conv1", self.width, x)))
        y = Convolution(self.width, (3, 3, 3), strides, dtype=self.dtype, name="conv2")(y)
        y = norm("bn3", pointwise("conv3", features, nn.relu(norm("bn2", y))))
        if self.downsample:
            x = x[:, :: self.stride, :: self.stride, :: self.stride]
            x = norm("downsample_bn", pointwise("downsample", features, x))
        return constrain(nn.relu(x + y), "batch", None, None, None, None), None


class Stage(nn.Module):
    """Blocks of one width: the first, which may halve the grid, and the rest, stacked."""

    blocks: int
    width: int
    stride: int
    lora: LoRA | None = None
    dtype: DTypeLike = jnp.float32
    remat: Remat = "none"
    scan_unroll: int = 1

    @nn.compact
    def __call__(self, x: Float[Array, "B D H W C"]) -> Float[Array, "B E F G K"]:
        """Run the blocks."""
        first = rematerialized(Bottleneck, self.remat, in_scan=False)
        x, _ = first(self.width, self.stride, True, self.lora, self.dtype, name="first")(x)
        if self.blocks > 1:
            rest = nn.scan(
                rematerialized(Bottleneck, self.remat),
                variable_axes={"params": 0},
                split_rngs={"params": True},
                length=self.blocks - 1,
                unroll=self.scan_unroll,
                metadata_params={nn.PARTITION_NAME: "layers"},
            )
            x, _ = rest(self.width, lora=self.lora, dtype=self.dtype, name="rest")(x)
        return x


class ResNet3D(nn.Module):
    """CT volume in, one feature vector per cell out: Merlin's fourth stage, before its pooling."""

    config: ResNet3DConfig
    lora: LoRA | None = None
    dtype: DTypeLike = jnp.float32
    remat: Remat = "none"
    scan_unroll: int = 1

    @nn.compact
    def __call__(self, volume: Float[Array, "B D H W"]) -> Float[Array, "B N C"]:
        """Features after the last stage.

        Args:
            volume: intensities in [0, 1], of the config's `image` size; D to superior, H to
                posterior, W to the left. Merlin's are HU from -1000 to 1000: level 0, width 2000.

        Raises:
            ValueError: the volume is of another size.
        """
        config = self.config
        if volume.shape[1:] != config.image:
            raise ValueError(f"a volume of {volume.shape[1:]} voxels, expected {config.image}")
        x = volume[:, :, ::-1, ::-1].swapaxes(2, 3)[..., None]  # to superior, right, anterior
        stem = (config.width, (3, 7, 7), (1, 2, 2), CHANNELS, self.dtype)
        x = Convolution(*stem, name="conv1")(x)
        x = nn.relu(BatchNorm(dtype=self.dtype, name="bn1")(x))
        x = nn.max_pool(x, (3, 3, 3), (2, 2, 2), ((1, 1),) * 3)
        for number, blocks in enumerate(config.blocks):
            options = (self.lora, self.dtype, self.remat, self.scan_unroll)
            width, stride = config.width * 2**number, 1 if number == 0 else 2
            x = Stage(blocks, width, stride, *options, name=f"layer{number + 1}")(x)
        x = x.swapaxes(2, 3)[:, :, ::-1, ::-1]
        return x.reshape(len(x), prod(config.cells), config.features)
