"""timm's BEiT, and USFM's encoder, <-> `Beit`. See `models/families.py`.

USFM's file is a bare pickle without `config.json` and without a head, with one table of positions
for all blocks; its buffers of indices follow from the size and are carried.
"""

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import flax.linen as nn
from jax.typing import DTypeLike

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.image.beit.model import Beit, BeitConfig
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
from tumorchain_jax.models.layers.linear import LoRA
from tumorchain_jax.models.layers.remat import Remat
from tumorchain_jax.models.weight_map import KEEP, Renames, Table

CONFIG: type[BeitConfig] = BeitConfig
ARCHITECTURES = r"beit_(base|large)_patch(\d+)_\d+"
SIGNATURE = "blocks.0.gamma_1"
POSITIONS = "relative_position_bias_table"
_BLOCK = "blocks.{layer}"
TABLE: Table = (
    ("cls_token", "cls_token", KEEP),
    *patch_embedding(),
    ("positions", f"rel_pos_bias.{POSITIONS}", KEEP),
    ("blocks/positions", f"{_BLOCK}.attn.{POSITIONS}", KEEP),
    *linear("blocks/qkv", f"{_BLOCK}.attn.qkv", bias=False),
    ("blocks/([qv]_bias)", rf"{_BLOCK}.attn.\1", KEEP),
    ("blocks/(gamma_[12])", rf"{_BLOCK}.\1", KEEP),
    *linear("blocks/proj", f"{_BLOCK}.attn.proj"),
    *(row for name in ("fc1", "fc2") for row in linear(f"blocks/{name}", f"{_BLOCK}.mlp.{name}")),
    *(row for name in ("norm1", "norm2") for row in norm(f"blocks/{name}", f"{_BLOCK}.{name}")),
    *norm("norm", "fc_norm"),
    *linear("head", "head"),
)
HEAD = r"head\.(weight|bias)"
CARRIED: tuple[str, ...] = (r".*relative_position_index", r"mask_token")


def renames(keys: Iterable[str]) -> Renames:
    """The last norm's name in USFM's encoder."""
    return ((r"norm\.(weight|bias)", r"fc_norm.\1"),)


def read_config(path: Path, fields: Mapping[str, Any], shapes: Shapes) -> BeitConfig:
    """Our configuration from timm's `config.json`, where there is one, and the tensors.

    Raises:
        InputError: the architecture has options that are not offered, or a tensor is missing.
    """
    known = ("embed_dim", "depth", "num_heads", "patch_size", "mlp_ratio", "init_values")
    flags = {
        "use_abs_pos_emb": (False,),
        "use_rel_pos_bias": (True, False),  # False where the table is shared
        "use_shared_rel_pos_bias": (True, False),
        "global_pool": ("avg",),
    }
    args = check_arguments(path, fields, (*known, *flags))
    for name, offered in flags.items():
        if args.get(name, offered[0]) not in offered:
            found, expected = repr(args[name])[:80], " or ".join(map(str, offered))
            raise InputError(path, f"model_args.{name}", found, expected, "not offered")
    hidden, channels, patch, _ = shape_of(path, shapes, "patch_embed.proj.weight", 4)
    shared = f"rel_pos_bias.{POSITIONS}" in shapes
    key = f"rel_pos_bias.{POSITIONS}" if shared else f"blocks.0.attn.{POSITIONS}"
    distances, heads = shape_of(path, shapes, key, 2)
    return BeitConfig(
        image=_image(path, fields, patch, distances),
        patch=patch,
        hidden_size=hidden,
        mlp_size=shape_of(path, shapes, "blocks.0.mlp.fc1.weight", 2)[0],
        num_layers=count(shapes, r"blocks\.(\d+)\."),
        num_heads=heads,
        shared_positions=shared,
        channels=channels,
        classes=shape_of(path, shapes, "head.weight", 2)[0] if "head.weight" in shapes else 0,
    )


def _image(path: Path, fields: Mapping[str, Any], patch: int, distances: int) -> tuple[int, int]:
    """The size of the images whose relative positions are in the folder."""
    side = (math.isqrt(distances - 3) + 1) // 2
    rows, columns = (size // patch for size in image_size(path, fields, (side * patch,) * 2))
    if (2 * rows - 1) * (2 * columns - 1) != distances - 3:
        rows = columns = side
    if (2 * rows - 1) * (2 * columns - 1) != distances - 3:
        found, expected = f"{distances} rows", "(2 rows - 1) x (2 columns - 1) + 3 of img_size"
        raise InputError(path.parent, POSITIONS, found, expected, "complete config.json")
    return rows * patch, columns * patch


def build(
    config: BeitConfig,
    lora: LoRA | None = None,
    dtype: DTypeLike = "float32",
    remat: Remat = "none",
    drop_path: float = 0.0,
) -> nn.Module:
    """The module."""
    return Beit(config, lora, dtype, remat, drop_path=drop_path)


def is_usfm(shapes: Shapes) -> bool:
    """Whether tensors without a `config.json` are those of USFM's encoder."""
    return f"rel_pos_bias.{POSITIONS}" in shapes and any(re.match(SIGNATURE, key) for key in shapes)
