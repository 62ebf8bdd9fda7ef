"""The 3D vision transformer of M3D-CLIP (BAAI-DCAI/M3D, LaMed/src/model/multimodal_encoder/vit.py).

What is unusual here: no bias in qkv; LayerNorm epsilon 1e-5 and exact (erf) GELU, where Flax's
defaults are neither; the class token has no position and is dropped at the end. Volumes are cut
into patches by a reshape and one matrix product: as a strided Conv3d the same gradient takes 32
times the memory on a TPU.

Shape letters: B batch, D H W voxels (inferior-superior, anterior-posterior, right-left), N patches
("cells" of the token grid, raster order d, h, w), C channels.
"""

from dataclasses import dataclass
from math import prod

import flax.linen as nn
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float

from tumorchain_jax.models.layers.attention import masked_attention
from tumorchain_jax.models.layers.linear import Linear, LoRA
from tumorchain_jax.models.layers.logical_axes import constrain, logical
from tumorchain_jax.models.layers.norm import layer_norm
from tumorchain_jax.models.layers.remat import Remat, rematerialized

LAYER_NORM_EPSILON = 1e-5
TOKEN_MULTIPLE = 8
"""Class token and cells are padded to one, for otherwise no sequence axis would divide them."""


@dataclass(frozen=True)
class ViT3DConfig:
    """Sizes of the encoder; the defaults are M3D-CLIP's (87,389,184 parameters)."""

    image: tuple[int, int, int] = (32, 256, 256)
    patch: tuple[int, int, int] = (4, 16, 16)
    hidden_size: int = 768
    mlp_size: int = 3072
    num_layers: int = 12
    num_heads: int = 12

    @property
    def features(self) -> int:
        """Size of a cell's feature vector."""
        return self.hidden_size

    @property
    def cells(self) -> tuple[int, int, int]:
        """The token grid: cells along D, H, W."""
        d, h, w = (size // patch for size, patch in zip(self.image, self.patch, strict=True))
        return d, h, w


def patchify(volume: Float[Array, "B D H W"], patch: tuple[int, int, int]) -> Float[Array, "B N P"]:
    """Cut a volume into patches: token order (d, h, w), voxel order within a patch (d, h, w)."""
    B, *size = volume.shape
    (d, p), (h, q), (w, r) = ((s // p, p) for s, p in zip(size, patch, strict=True))
    x = volume.reshape(B, d, p, h, q, w, r).transpose(0, 1, 3, 5, 2, 4, 6)
    return x.reshape(B, d * h * w, p * q * r)


class Block(nn.Module):
    """Pre-norm transformer block: x + attention(norm1 x), then x + mlp(norm2 x)."""

    config: ViT3DConfig
    lora: LoRA | None = None
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(
        self, x: Float[Array, "B N C"], mask: Bool[Array, "1 1 1 N"]
    ) -> tuple[Float[Array, "B N C"], None]:
        """Run the layer on tokens of which `mask` are seen; the None is what `nn.scan` collects."""
        config = self.config
        B, N, C = x.shape

        def linear(name: str, features: int, axes: tuple[str, str], use_bias: bool) -> Linear:
            return Linear(features, axes, use_bias, self.lora, self.dtype, name=name)

        y = layer_norm(LAYER_NORM_EPSILON, self.dtype, "norm1")(x)
        qkv = linear("qkv", 3 * C, ("embed", "qkv"), use_bias=False)(y)
        heads = (part.reshape(B, N, config.num_heads, -1) for part in jnp.split(qkv, 3, axis=-1))
        heads = (constrain(y, "batch", "cells", "projected_heads", None) for y in heads)
        q, k, v = (constrain(y, "batch", None, "attention_heads", None) for y in heads)
        y = masked_attention(q, k, v, mask)
        y = constrain(y, "batch", None, "attention_heads", None).reshape(B, N, C)
        x = x + linear("out_proj", C, ("heads", "embed"), use_bias=True)(y)

        y = layer_norm(LAYER_NORM_EPSILON, self.dtype, "norm2")(x)
        y = linear("linear1", config.mlp_size, ("embed", "mlp"), use_bias=True)(y)
        y = constrain(nn.gelu(y, approximate=False), "batch", "cells", "mlp")
        x = x + linear("linear2", C, ("mlp", "embed"), use_bias=True)(y)
        return constrain(x, "batch", "cells", None), None


class ViT3D(nn.Module):
    """CT volume in, one feature vector per cell of the token grid out."""

    config: ViT3DConfig
    lora: LoRA | None = None
    dtype: DTypeLike = jnp.float32
    remat: Remat = "none"
    scan_unroll: int = 1

    @nn.compact
    def __call__(self, volume: Float[Array, "B D H W"]) -> Float[Array, "B N C"]:
        """Features after the final norm, class token dropped.

        Args:
            volume: intensities in [0, 1], of the config's `image` size.

        Raises:
            ValueError: the volume is of another size.
        """
        config = self.config
        # 256 x 256 x 32 voxels make 2048 patches too: nothing else would notice swapped axes.
        if volume.shape[1:] != config.image:
            raise ValueError(f"a volume of {volume.shape[1:]} voxels, expected {config.image}")
        C, N = config.hidden_size, prod(config.cells)
        x = patchify(volume.astype(self.dtype), config.patch)
        x = Linear(C, ("patch", "embed"), use_bias=True, dtype=self.dtype, name="patch_embed")(x)
        positions = logical(nn.initializers.normal(0.02), None, "cells", "embed")
        x = x + self.param("position_embed", positions, (1, N, C)).astype(self.dtype)
        zeros = logical(nn.initializers.zeros, None, None, "embed")
        cls = self.param("cls_token", zeros, (1, 1, C)).astype(self.dtype)
        cls, pads = jnp.broadcast_to(cls, (len(x), 1, C)), -(N + 1) % TOKEN_MULTIPLE
        x = jnp.concatenate([cls, x, jnp.zeros((len(x), pads, C), x.dtype)], axis=1)
        mask = (jnp.arange(x.shape[1]) <= N)[None, None, None]

        blocks = nn.scan(
            rematerialized(Block, self.remat),
            variable_axes={"params": 0},
            split_rngs={"params": True},
            in_axes=nn.broadcast,
            length=config.num_layers,
            unroll=self.scan_unroll,
            metadata_params={nn.PARTITION_NAME: "layers"},
        )
        x = constrain(x, "batch", "cells", None)
        x, _ = blocks(config, self.lora, self.dtype, name="blocks")(x, mask)
        return layer_norm(LAYER_NORM_EPSILON, self.dtype, "norm")(x)[:, 1 : N + 1]
