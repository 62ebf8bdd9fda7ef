"""The Swin transformer (Liu et al. 2021), as timm has it.

Where the grid is no multiple of the window, it is rolled first and padded after, behind and below;
the padded cells take part in attention as keys. A stage whose grid fits a single window does not
shift. Cells that a shift brings together from apart are masked by -100, not by minus infinity.
LayerNorm epsilon is 1e-5, GELU is exact.

Shape letters: B images, H W pixels or cells, C channels, N cells of a window, M windows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from tumorchain_jax.models.image.layers import (
    PatchEmbedding,
    StochasticDepth,
    drop_rates,
    head,
    mlp,
)
from tumorchain_jax.models.layers.attention import biased_attention
from tumorchain_jax.models.layers.linear import Linear, LoRA
from tumorchain_jax.models.layers.logical_axes import constrain, logical
from tumorchain_jax.models.layers.norm import layer_norm
from tumorchain_jax.models.layers.remat import Remat, rematerialized

LAYER_NORM_EPSILON = 1e-5
APART = -100.0
"""Added to the scores of cells that a shift has brought together."""
Pair = tuple[int, int]


@dataclass(frozen=True)
class SwinConfig:
    """Sizes; the defaults are Swin-B's.

    Attributes:
        image: rows and columns of pixels, multiples of the patch.
        hidden_size: channels of the first stage; each further one has twice as many.
        depths: blocks of each stage.
        num_heads: of each stage.
        window: cells along a side of a window.
        channels: of the images.
        classes: 0 for no head.
    """

    image: Pair = (224, 224)
    patch: int = 4
    hidden_size: int = 128
    depths: tuple[int, ...] = (2, 2, 18, 2)
    num_heads: tuple[int, ...] = (4, 8, 16, 32)
    window: int = 7
    channels: int = 3
    classes: int = 1000

    @property
    def features(self) -> int:
        """Size of the pooled feature vector."""
        return self.hidden_size * 2 ** (len(self.depths) - 1)

    def grid(self, stage: int) -> Pair:
        """Rows and columns of a stage's cells."""
        rows, columns = (size // self.patch for size in self.image)
        return -(-rows // 2**stage), -(-columns // 2**stage)

    def window_of(self, stage: int) -> Pair:
        """Rows and columns of a stage's windows: no larger than its grid."""
        rows, columns = self.grid(stage)
        return min(rows, self.window), min(columns, self.window)


def relative_positions(window: Pair) -> Int[np.ndarray, "N N"]:
    """Row of the table of biases for each query (row) and key (column)."""
    rows, columns = window
    y, x = (each.ravel() for each in np.mgrid[:rows, :columns])
    dy, dx = y[:, None] - y + rows - 1, x[:, None] - x + columns - 1
    return dy * (2 * columns - 1) + dx


def shift_mask(grid: Pair, window: Pair, shift: Pair) -> Float[np.ndarray, "M N N"]:
    """What is added to the scores of a shifted grid's windows: 0, or `APART`.

    Args:
        grid: after it was padded.
    """
    region = np.zeros(grid, int)
    for axis, (size, cells, step) in enumerate(zip(grid, window, shift, strict=True)):
        # A shift of 0 makes one region of the whole axis.
        parts = (
            np.digitize(np.arange(size), [size - cells, size - step]) if step else np.zeros(size)
        )
        region = 3 * region + np.expand_dims(parts.astype(np.int32), 1 - axis)
    windows = region.reshape(grid[0] // window[0], window[0], grid[1] // window[1], window[1])
    flat = windows.transpose(0, 2, 1, 3).reshape(-1, window[0] * window[1])
    return np.where(flat[:, :, None] == flat[:, None, :], 0.0, APART).astype(np.float32)


class Block(nn.Module):
    """Attention within windows of a (shifted) grid, then an MLP; each beside a shortcut."""

    heads: int
    window: Pair
    shift: Pair
    train: bool
    drop_rate: float = 0.0
    lora: LoRA | None = None
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, x: Float[Array, "B H W C"]) -> Float[Array, "B H W C"]:
        """Run the block."""
        C = x.shape[-1]

        def drop(name: str, y: Array) -> Array:
            return StochasticDepth(name=name)(y, self.drop_rate, self.train)

        x = x + drop(
            "drop1", self._attention(layer_norm(LAYER_NORM_EPSILON, self.dtype, "norm1")(x))
        )
        y = mlp(x, 4 * C, LAYER_NORM_EPSILON, self.lora, self.dtype)
        return constrain(x + drop("drop2", y), "batch", None, None, None)

    def _linear(self, name: str, features: int, axes: tuple[str, str]) -> Linear:
        return Linear(features, axes, True, self.lora, self.dtype, name=name)

    def _attention(self, x: Float[Array, "B H W C"]) -> Float[Array, "B H W C"]:
        B, H, W, C = x.shape
        (h, w), (dy, dx), N = self.window, self.shift, self.window[0] * self.window[1]
        x = jnp.roll(x, (-dy, -dx), axis=(1, 2))
        x = jnp.pad(x, ((0, 0), (0, -H % h), (0, -W % w), (0, 0)))
        rows, columns = x.shape[1] // h, x.shape[2] // w
        windows = x.reshape(B, rows, h, columns, w, C).transpose(0, 1, 3, 2, 4, 5)
        qkv = self._linear("qkv", 3 * C, ("embed", "qkv"))(windows.reshape(-1, N, C))
        q, k, v = (
            part.reshape(-1, N, self.heads, C // self.heads) for part in jnp.split(qkv, 3, -1)
        )
        init = logical(nn.initializers.truncated_normal(0.02), None, None)
        table = self.param("positions", init, ((2 * h - 1) * (2 * w - 1), self.heads))
        bias = table[relative_positions(self.window)].transpose(2, 0, 1)[None]
        if any(self.shift):
            mask = shift_mask((rows * h, columns * w), self.window, self.shift)
            bias = jnp.tile(bias + mask[:, None], (B, 1, 1, 1))
        y = biased_attention(q, k, v, bias.astype(jnp.float32)).reshape(-1, N, C)
        y = self._linear("proj", C, ("heads", "embed"))(y)
        y = y.reshape(B, rows, columns, h, w, C).transpose(0, 1, 3, 2, 4, 5)
        y = y.reshape(B, rows * h, columns * w, C)[:, :H, :W]
        return jnp.roll(y, (dy, dx), axis=(1, 2))


class PatchMerging(nn.Module):
    """Four neighbouring cells to one of twice the channels; an odd grid is padded."""

    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, x: Float[Array, "B H W C"]) -> Float[Array, "B h w K"]:
        """Merge the cells: (0, 0), (1, 0), (0, 1), (1, 1) by row and column."""
        x = jnp.pad(x, ((0, 0), (0, x.shape[1] % 2), (0, x.shape[2] % 2), (0, 0)))
        B, H, W, C = x.shape
        x = x.reshape(B, H // 2, 2, W // 2, 2, C).transpose(0, 1, 3, 4, 2, 5)
        x = layer_norm(LAYER_NORM_EPSILON, self.dtype, "norm")(x.reshape(B, H // 2, W // 2, 4 * C))
        return Linear(2 * C, ("patch", "embed"), dtype=self.dtype, name="reduction")(x)


class Swin(nn.Module):
    """Images in; logits and pooled features out.

    Attributes:
        drop_path: rate of stochastic depth of the last block.
    """

    config: SwinConfig
    lora: LoRA | None = None
    dtype: DTypeLike = jnp.float32
    remat: Remat = "none"
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
        x = PatchEmbedding(config.hidden_size, config.patch, self.dtype, name="patch_embed")(images)
        x = layer_norm(LAYER_NORM_EPSILON, self.dtype, "patch_norm")(x)
        rates = drop_rates(self.drop_path, sum(config.depths))
        for stage in range(len(config.depths)):
            if stage:
                x = PatchMerging(self.dtype, name=f"layers_{stage}_downsample")(x)
            first = sum(config.depths[:stage])
            x = self._stage(stage, x, rates[first : first + config.depths[stage]], train)
        x = layer_norm(LAYER_NORM_EPSILON, self.dtype, "norm")(x)
        features = x.mean(axis=(1, 2))
        return head(config.classes, self.dtype, features), features

    def _stage(
        self, stage: int, x: Float[Array, "B H W C"], rates: Sequence[float], train: bool
    ) -> Float[Array, "B H W C"]:
        """Run a stage's blocks, of which every second one shifts."""
        config, window = self.config, self.config.window_of(stage)
        half = config.window // 2
        # An axis that fits a single window is not shifted.
        shift = tuple(
            0 if size <= cells else half
            for size, cells in zip(config.grid(stage), window, strict=True)
        )
        block = rematerialized(Block, self.remat, in_scan=False)
        for number, rate in enumerate(rates):
            own = (shift[0], shift[1]) if number % 2 else (0, 0)
            options = (config.num_heads[stage], window, own, train, rate, self.lora, self.dtype)
            x = block(*options, name=f"layers_{stage}_blocks_{number}")(x)
        return x
