"""timm's Swin transformer <-> `Swin`, in the names of today and of before version 0.9.

In the older names (Microsoft's too) the cells are merged at the end of a stage, the head is
`head.weight`, and the buffers that follow from the sizes are in the file. See `models/families.py`.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import flax.linen as nn
from jax.typing import DTypeLike

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.image.swin.model import Swin, SwinConfig
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

CONFIG: type[SwinConfig] = SwinConfig
ARCHITECTURES = r"swin_(tiny|small|base|large)_patch4_window(\d+)_(\d+)"
SIGNATURE = "layers.0.blocks.0.attn.relative_position_bias_table"
_OURS, _THEIRS = r"layers_(\d)_blocks_(\d+)", r"layers.\1.blocks.\2"
TABLE: Table = (
    *patch_embedding(),
    *norm("patch_norm", "patch_embed.norm"),
    (f"{_OURS}/positions", f"{_THEIRS}.attn.relative_position_bias_table", KEEP),
    *(
        row
        for name in ("qkv", "proj")
        for row in linear(f"{_OURS}/{name}", f"{_THEIRS}.attn.{name}")
    ),
    *(row for name in ("fc1", "fc2") for row in linear(f"{_OURS}/{name}", f"{_THEIRS}.mlp.{name}")),
    *(row for name in ("norm1", "norm2") for row in norm(f"{_OURS}/{name}", f"{_THEIRS}.{name}")),
    *norm(r"layers_(\d)_downsample/norm", r"layers.\1.downsample.norm"),
    *linear(r"layers_(\d)_downsample/reduction", r"layers.\1.downsample.reduction", bias=False),
    *norm("norm", "norm"),
    *linear("head", "head.fc"),
)
HEAD = r"head\.fc\.(weight|bias)"
CARRIED: tuple[str, ...] = (r".*\.attn\.relative_position_index", r".*\.attn_mask")


def renames(keys: Iterable[str]) -> Renames:
    """The older names, which are told by a merging of cells in the first stage."""
    if not any(key.startswith("layers.0.downsample.") for key in keys):
        return ()
    merging = (
        (rf"layers\.{stage}\.downsample\.(.*)", rf"layers.{stage + 1}.downsample.\1")
        for stage in range(9)
    )
    return (*merging, (r"head\.(weight|bias)", r"head.fc.\1"))


def read_config(path: Path, fields: Mapping[str, Any], shapes: Shapes) -> SwinConfig:
    """Our configuration from timm's `config.json` and the tensors.

    Raises:
        InputError: the architecture has options that are not offered, or a tensor is missing.
    """
    known = ("embed_dim", "depths", "num_heads", "patch_size", "window_size", "strict_img_size")
    args = check_arguments(path, fields, known)
    hidden, channels, patch, _ = shape_of(path, shapes, "patch_embed.proj.weight", 4)
    stages = count(shapes, r"layers\.(\d+)\.")
    depths = tuple(count(shapes, rf"layers\.{stage}\.blocks\.(\d+)\.") for stage in range(stages))
    first = r"layers.{}.blocks.0.attn.relative_position_bias_table"
    heads = tuple(shape_of(path, shapes, first.format(stage), 2)[1] for stage in range(stages))
    size = re.fullmatch(ARCHITECTURES, str(fields.get("architecture", "")))
    window = args.get("window_size", int(size[2]) if size else 7)
    if not isinstance(window, int) or window < 1:
        found = repr(window)[:80]
        raise InputError(
            path, "model_args.window_size", found, "one size of windows", "not offered"
        )
    default = (int(size[3]) if size else 224,) * 2
    return SwinConfig(
        image=image_size(path, fields, default),
        patch=patch,
        hidden_size=hidden,
        depths=depths,
        num_heads=heads,
        window=window,
        channels=channels,
        classes=shape_of(path, shapes, "head.fc.weight", 2)[0] if "head.fc.weight" in shapes else 0,
    )


def build(
    config: SwinConfig,
    lora: LoRA | None = None,
    dtype: DTypeLike = "float32",
    remat: Remat = "none",
    drop_path: float = 0.0,
) -> nn.Module:
    """The module."""
    return Swin(config, lora, dtype, remat, drop_path)
