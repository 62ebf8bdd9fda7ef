"""timm's vision transformer <-> `ViT`. See `models/families.py`."""

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import flax.linen as nn
from jax.typing import DTypeLike

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.image.timm_names import (
    Shapes,
    check_arguments,
    count,
    image_size,
    linear,
    norm,
    patch_embedding,
    shape_of,
)
from tumorchain_jax.models.image.vit.model import ViT, ViTConfig
from tumorchain_jax.models.layers.linear import LoRA
from tumorchain_jax.models.layers.remat import Remat
from tumorchain_jax.models.weight_map import KEEP, Renames, Table

CONFIG: type[ViTConfig] = ViTConfig
ARCHITECTURES = r"vit_(tiny|small|base|large)_patch(\d+)_\d+"
SIGNATURE = "pos_embed"
HEADS = {"tiny": 3, "small": 6, "base": 12, "large": 16}
_BLOCK = "blocks.{layer}"
TABLE: Table = (
    ("(cls_token|pos_embed)", r"\1", KEEP),
    *patch_embedding(),
    *(
        row
        for ours, theirs in (("qkv", "attn.qkv"), ("proj", "attn.proj"))
        for row in linear(f"blocks/{ours}", f"{_BLOCK}.{theirs}")
    ),
    *(row for name in ("fc1", "fc2") for row in linear(f"blocks/{name}", f"{_BLOCK}.mlp.{name}")),
    *(row for name in ("norm1", "norm2") for row in norm(f"blocks/{name}", f"{_BLOCK}.{name}")),
    *norm("norm", "norm"),
    *linear("head", "head"),
)
HEAD = r"head\.(weight|bias)"
CARRIED: tuple[str, ...] = ()


def renames(keys: Iterable[str]) -> Renames:
    """The last norm's other name, which it has where the mean of the cells is pooled."""
    return ((r"fc_norm\.(weight|bias)", r"norm.\1"),)


def read_config(path: Path, fields: Mapping[str, Any], shapes: Shapes) -> ViTConfig:
    """Our configuration from timm's `config.json` and the tensors.

    Raises:
        InputError: the architecture has options that are not offered, or a tensor is missing.
    """
    known = ("embed_dim", "depth", "num_heads", "patch_size", "mlp_ratio", "global_pool", "fc_norm")
    args = check_arguments(path, fields, known)
    hidden, channels, patch, _ = shape_of(path, shapes, "patch_embed.proj.weight", 4)
    image = _image(path, fields, shapes, patch)
    size = re.match(ARCHITECTURES, str(fields.get("architecture", "")))
    heads = args.get("num_heads", HEADS[size[1]] if size else None)
    if not isinstance(heads, int) or heads < 1 or hidden % heads:
        found, expected = repr(heads)[:80], f"a divisor of {hidden}"
        raise InputError(path, "model_args.num_heads", found, expected, "complete it")
    return ViTConfig(
        image=image,
        patch=patch,
        hidden_size=hidden,
        mlp_size=shape_of(path, shapes, "blocks.0.mlp.fc1.weight", 2)[0],
        num_layers=count(shapes, r"blocks\.(\d+)\."),
        num_heads=heads,
        channels=channels,
        classes=shape_of(path, shapes, "head.weight", 2)[0] if "head.weight" in shapes else 0,
        pool=_pool(path, fields, args),
    )


def _pool(path: Path, fields: Mapping[str, Any], args: Mapping[str, Any]) -> Any:
    pool = args.get("global_pool", fields.get("global_pool") or "token")
    if pool not in ("token", "avg"):
        raise InputError(path, "global_pool", repr(pool)[:80], "token or avg", "not offered")
    return pool


def _image(path: Path, fields: Mapping[str, Any], shapes: Shapes, patch: int) -> tuple[int, int]:
    """The size of the images whose positions are in the folder."""
    tokens = shape_of(path, shapes, "pos_embed", 3)[1] - 1
    side = math.isqrt(tokens)
    rows, columns = (size // patch for size in image_size(path, fields, (side * patch,) * 2))
    if rows * columns != tokens:
        rows = columns = side
    if rows * columns != tokens:
        found, expected = f"{tokens} cells", "rows x columns of img_size"
        raise InputError(path.parent, "pos_embed", found, expected, "complete config.json")
    return rows * patch, columns * patch


def build(
    config: ViTConfig,
    lora: LoRA | None = None,
    dtype: DTypeLike = "float32",
    remat: Remat = "none",
    drop_path: float = 0.0,
) -> nn.Module:
    """The module."""
    return ViT(config, lora, dtype, remat, drop_path=drop_path)
