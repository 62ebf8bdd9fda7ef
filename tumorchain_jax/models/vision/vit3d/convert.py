"""M3D-CLIP's image encoder, as MONAI's blocks name it <-> `ViT3D`; M3D's projector.

See `models/families.py`.

The keys are those of the bare encoder, `pretrained_ViT.bin` of BAAI-DCAI/M3D: 138 tensors. In the
whole CLIP and in M3D-LaMed they have a prefix.
"""

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import flax.linen as nn
from jax.typing import DTypeLike

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.config_check import require
from tumorchain_jax.models.layers.linear import LoRA
from tumorchain_jax.models.layers.remat import Remat
from tumorchain_jax.models.vision.vit3d.model import ViT3D, ViT3DConfig
from tumorchain_jax.models.weight_map import KEEP, TRANSPOSE, Renames, Table

CONFIG: type[ViT3DConfig] = ViT3DConfig
SIGNATURE = "patch_embedding.position_embeddings"
TABLE: Table = (
    (r"cls_token", r"cls_token", KEEP),
    (r"position_embed", r"patch_embedding.position_embeddings", KEEP),
    (r"patch_embed/kernel", r"patch_embedding.patch_embeddings.1.weight", TRANSPOSE),
    (r"patch_embed/bias", r"patch_embedding.patch_embeddings.1.bias", KEEP),
    (r"blocks/(norm\d)/scale", r"blocks.{layer}.\1.weight", KEEP),
    (r"blocks/(norm\d)/bias", r"blocks.{layer}.\1.bias", KEEP),
    (r"blocks/(qkv|out_proj)/kernel", r"blocks.{layer}.attn.\1.weight", TRANSPOSE),
    (r"blocks/(out_proj)/bias", r"blocks.{layer}.attn.\1.bias", KEEP),
    (r"blocks/(linear\d)/kernel", r"blocks.{layer}.mlp.\1.weight", TRANSPOSE),
    (r"blocks/(linear\d)/bias", r"blocks.{layer}.mlp.\1.bias", KEEP),
    (r"norm/scale", r"norm.weight", KEEP),
    (r"norm/bias", r"norm.bias", KEEP),
)
# MONAI from 1.4 on gives every block a cross-attention, used or not.
IGNORE: tuple[str, ...] = (r"blocks\.\d+\.(norm_cross_attn|cross_attn)\..*",)
# What else the whole CLIP and M3D-LaMed hold: text encoder, language model, segmentation.
CARRIED: tuple[str, ...] = (r"(?!blocks\.|norm\.|patch_embedding\.|cls_token|projector\.).*",)

PROJECTOR_TABLE: Table = (
    (r"linear1/kernel", r"projector.0.weight", TRANSPOSE),
    (r"linear1/bias", r"projector.0.bias", KEEP),
    (r"linear2/kernel", r"projector.2.weight", TRANSPOSE),
    (r"linear2/bias", r"projector.2.bias", KEEP),
)
RENAMES: Renames = (
    (r"vision_encoder\.(.*)", r"\1"),  # the whole CLIP
    (r"model\.vision_tower\.vision_tower\.(.*)", r"\1"),  # M3D-LaMed
    (r"model\.mm_projector\.(projector\..*)", r"\1"),
)
LARGEST = 10**5
"""No size of an encoder reaches it."""
CLIP_FIELDS = {
    "img_size": "image",
    "patch_size": "patch",
    "hidden_size": "hidden_size",
    "mlp_dim": "mlp_size",
    "num_layers": "num_layers",
    "num_heads": "num_heads",
}
"""Fields of M3D-CLIP's `config.json`, and what they are called here."""


def build(
    config: ViT3DConfig,
    lora: LoRA | None = None,
    dtype: DTypeLike = "float32",
    remat: Remat = "none",
    scan_unroll: int = 1,
) -> nn.Module:
    """The module."""
    return ViT3D(config, lora, dtype, remat, scan_unroll)


def read_config(
    path: Path, fields: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]
) -> ViT3DConfig:
    """Our configuration from the `config.json` of M3D-CLIP.

    The bare encoder and M3D-LaMed do not say: there is one size of it.

    Raises:
        InputError: a field is missing, or no number (three of them for a size in voxels).
    """
    if not set(CLIP_FIELDS) & set(fields) - {"hidden_size"}:
        return ViT3DConfig()
    values: dict[str, Any] = {}
    for theirs, ours in CLIP_FIELDS.items():
        value, sizes = fields.get(theirs), ours in ("image", "patch")
        numbers = value if sizes and isinstance(value, list) else [value]
        if len(numbers) != (3 if sizes else 1) or not all(
            type(n) is int and 0 < n < LARGEST for n in numbers
        ):
            found = repr(value)[:80] if theirs in fields else "no such field"
            expected = "three numbers over 0" if sizes else "a number over 0"
            raise InputError(path, theirs, found, expected, "complete it from the model's own page")
        values[ours] = tuple(numbers) if sizes else value
    config = ViT3DConfig(**values)
    if any(size % patch for size, patch in zip(config.image, config.patch, strict=True)):
        found, expected = str(config.patch), f"divisors of img_size {config.image}"
        raise InputError(path, "patch_size", found, expected, "complete it from the model's page")
    if config.hidden_size % config.num_heads:
        found, expected = str(config.num_heads), f"a divisor of {config.hidden_size}"
        raise InputError(path, "num_heads", found, expected, "complete it from the model's page")
    return config


def check(config: ViT3DConfig) -> None:
    """Check that the patches divide the image, and the heads the features.

    Raises:
        ValueError: they do not.
    """
    image, size = config.image, config.hidden_size
    divides = all(n % patch == 0 for patch, n in zip(config.patch, image, strict=True))
    require("encoder.patch", config.patch, divides, f"a divisor of {image}")
    heads = config.num_heads
    require("encoder.num_heads", heads, size % heads == 0, f"a divisor of {size}")


def num_heads(config: ViT3DConfig) -> int | None:
    """Heads of its attention."""
    return config.num_heads


def attention_flops(config: ViT3DConfig) -> int:
    """Of scores and weighted sums, forward, for one volume."""
    cells = prod(config.cells) + 1
    return config.num_layers * 4 * cells**2 * config.hidden_size


def kernel_flops(config: ViT3DConfig, path: str, shape: tuple[int, ...]) -> int:
    """Of a kernel, forward, for one volume: every cell goes through each."""
    return 2 * prod(shape) * prod(config.cells)
