"""The vision tower of Qwen2.5-VL and its merger (transformers, models/qwen2_5_vl).

What is unusual here: patches stay in merge-group order, and windowed attention is a mask. Attention
does not care for order, so it gives the released numbers without a gather in and out. A bucket of P
patches may hold several pictures, and pads; one program serves all that fit (see `plan.py`).

Shape letters: B buckets, P patches, F values of a patch, H heads, E head size, C hidden size,
N visual tokens (P / 4), K embedding of the decoder, L layers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

from tumorchain_jax.models.language.qwen2.model import RMSNorm
from tumorchain_jax.models.language.qwen2.rotary import turn
from tumorchain_jax.models.layers.attention import masked_attention
from tumorchain_jax.models.layers.gated_mlp import GatedMLP
from tumorchain_jax.models.layers.linear import Linear, LoRA
from tumorchain_jax.models.layers.logical_axes import constrain
from tumorchain_jax.models.layers.remat import Remat, rematerialized
from tumorchain_jax.models.qwen_vl.plan import MERGE

RMS_NORM_EPSILON = 1e-6
ROPE_THETA = 1e4
CHANNELS, FRAMES = 3, 2
"""A patch has each of its pixels twice: the tower was made for pairs of video frames."""


@dataclass(frozen=True)
class TowerConfig:
    """Sizes of the tower, named as in the `vision_config` of Qwen2.5-VL.

    Attributes:
        window_size: pixels on each side of an attention window.
        fullatt_block_indexes: layers in which a patch sees its whole picture.
        out_hidden_size: of the visual tokens, the decoder's hidden size.
    """

    depth: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    out_hidden_size: int
    patch_size: int = 14
    window_size: int = 112
    fullatt_block_indexes: tuple[int, ...] = (7, 15, 23, 31)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TowerConfig":
        """The inverse of `dataclasses.asdict`; lists from JSON become tuples.

        Raises:
            TypeError: a field is unknown or missing.
        """
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in values.items()
        }
        return cls(**fields)

    @property
    def patch_values(self) -> int:
        """Values of a patch: channel, frame, row, column."""
        return CHANNELS * FRAMES * self.patch_size**2

    @property
    def window(self) -> int:
        """Merge groups on each side of an attention window."""
        return self.window_size // self.patch_size // MERGE


TOWER_3B = TowerConfig(32, 1280, 3420, 16, 2048)
TOWER_7B = TowerConfig(32, 1280, 3420, 16, 3584)


def rotate_by_place(x: Float[Array, "B P H E"], hw: Int[Array, "B P 2"]) -> Float[Array, "B P H E"]:
    """Rotary embedding by row and column, half-split, in float32.

    Of the E / 2 frequencies the first half turns by the row, the second (equal) one by the column.
    """
    half = x.shape[-1] // 2
    steps = np.arange(0, half, 2, dtype=np.float32) / half
    frequencies = jnp.asarray(1.0 / ROPE_THETA**steps, jnp.float32)
    angles = hw.astype(jnp.float32)[..., None] * frequencies
    angles = angles.reshape(*hw.shape[:2], 1, half)
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    return turn(wide, cos, sin).astype(x.dtype)


class Attention(nn.Module):
    """Attention of patches to those that the mask lets them see."""

    config: TowerConfig
    lora: LoRA | None = None
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B P C"],
        hw: Int[Array, "B P 2"],
        mask: Bool[Array, "B 1 P P"],
    ) -> Float[Array, "B P C"]:
        """Attend."""
        B, P, C = x.shape
        rest = (True, self.lora, self.dtype)
        qkv = Linear(3 * C, ("embed", "qkv"), *rest, name="qkv")(x)
        heads = (
            constrain(part.reshape(B, P, self.config.num_heads, -1), *_HEADS)
            for part in jnp.split(qkv, 3, axis=-1)
        )
        q, k, v = heads
        y = masked_attention(rotate_by_place(q, hw), rotate_by_place(k, hw), v, mask)
        y = constrain(y, *_HEADS).reshape(B, P, C)
        return Linear(C, ("heads", "embed"), *rest, name="proj")(y)


_HEADS = ("batch", None, "attention_heads", None)


class Block(nn.Module):
    """x + attention(norm1 x), then x + mlp(norm2 x)."""

    config: TowerConfig
    lora: LoRA | None = None
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B P C"],
        is_full: Bool[Array, ""],
        hw: Int[Array, "B P 2"],
        window: Int[Array, "B P"],
        picture: Int[Array, "B P"],
    ) -> tuple[Float[Array, "B P C"], Float[Array, "B P C"]]:
        """Run the layer; its output is also what `nn.scan` collects.

        Args:
            is_full: patches see their whole picture, else their window.
        """
        rest = (self.lora, self.dtype)
        # Pads are a group of their own: what they see is of no account, and nothing sees them.
        group = jnp.where(is_full, picture, window)
        mask = (group[:, :, None] == group[:, None, :])[:, None]
        y = RMSNorm(RMS_NORM_EPSILON, self.dtype, name="norm1")(x)
        x = x + Attention(self.config, *rest, name="attn")(y, hw, mask)
        y = RMSNorm(RMS_NORM_EPSILON, self.dtype, name="norm2")(x)
        mlp = GatedMLP(self.config.intermediate_size, True, *rest, tokens=None, name="mlp")
        x = constrain(x + mlp(y), "batch", None, None)
        return x, x


class Merger(nn.Module):
    """Four neighbouring patches -> one visual token in the decoder's embedding space."""

    config: TowerConfig
    lora: LoRA | None = None
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, x: Float[Array, "B P C"]) -> Float[Array, "B N K"]:
        """Merge each group."""
        B, P, C = x.shape
        rest = (True, self.lora, self.dtype)
        y = RMSNorm(RMS_NORM_EPSILON, self.dtype, name="ln_q")(x)
        y = y.reshape(B, P // MERGE**2, MERGE**2 * C)
        y = Linear(y.shape[-1], ("embed", "mlp"), *rest, name="mlp_0")(y)
        y = constrain(nn.gelu(y, approximate=False), "batch", None, "mlp")
        return Linear(self.config.out_hidden_size, ("mlp", "embed"), *rest, name="mlp_2")(y)


class Tower(nn.Module):
    """Buckets of patches in, visual tokens out."""

    config: TowerConfig
    lora: LoRA | None = None
    dtype: DTypeLike = jnp.float32
    remat: Remat = "none"
    scan_unroll: int = 1

    @nn.compact
    def __call__(
        self,
        patches: Float[Array, "B P F"],
        window: Int[Array, "B P"],
        hw: Int[Array, "B P 2"],
        picture: Int[Array, "B P"],
    ) -> tuple[Float[Array, "B N K"], Float[Array, "L B P C"]]:
        """Visual tokens, meaningless at pads, and the output of every layer.

        Args:
            patches: normalized pixels (see `pictures.py`) in merge-group order.
            window, hw, picture: see `plan.py`.
        """
        config, rest = self.config, (self.lora, self.dtype)
        embedding = Linear(config.hidden_size, ("patch", "embed"), False, *rest, name="patch_embed")
        x = constrain(embedding(patches), "batch", None, None)
        blocks = nn.scan(
            rematerialized(Block, self.remat),
            variable_axes={"params": 0},
            split_rngs={"params": True},
            in_axes=(0, nn.broadcast, nn.broadcast, nn.broadcast),
            length=config.depth,
            unroll=self.scan_unroll,
            metadata_params={nn.PARTITION_NAME: "layers"},
        )
        is_full = np.isin(np.arange(config.depth), config.fullatt_block_indexes)
        x, outputs = blocks(config, *rest, name="blocks")(
            x, jnp.asarray(is_full), hw, window, picture
        )
        return Merger(config, *rest, name="merger")(x), outputs
