"""What the tables of all image classifiers share: rows of layers by timm's names, and its folders.

timm writes `config.json` (`architecture`, `num_classes`, `global_pool`, `model_args`,
`pretrained_cfg`) beside `model.safetensors` or `pytorch_model.bin`.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.weight_map import CONVOLUTION_2D, KEEP, TRANSPOSE, Table

Shapes = Mapping[str, tuple[int, ...]]


def linear(path: str, key: str, bias: bool = True) -> Table:
    """Rows of a linear layer."""
    kernel = ((f"{path}/kernel", f"{key}.weight", TRANSPOSE),)
    return (*kernel, (f"{path}/bias", f"{key}.bias", KEEP)) if bias else kernel


def norm(path: str, key: str) -> Table:
    """Rows of a normalization's scale and bias."""
    return (f"{path}/scale", f"{key}.weight", KEEP), (f"{path}/bias", f"{key}.bias", KEEP)


def patch_embedding() -> Table:
    """Rows of the patches' embedding."""
    return (
        ("patch_embed/kernel", "patch_embed.proj.weight", CONVOLUTION_2D),
        ("patch_embed/bias", "patch_embed.proj.bias", KEEP),
    )


def count(shapes: Shapes, pattern: str) -> int:
    """How many different values the first group of a regex has over all keys."""
    return len({match[1] for key in shapes if (match := re.match(pattern, key))})


def shape_of(path: Path, shapes: Shapes, key: str, axes: int) -> tuple[int, ...]:
    """The shape of a tensor that tells sizes.

    Raises:
        InputError: it is missing, or has another number of axes.
    """
    shape = shapes.get(key)
    if shape is None or len(shape) != axes or not all(shape):
        found = "none" if shape is None else f"shape {shape}"
        raise InputError(path.parent, key, found, f"a tensor of {axes} axes", "complete the folder")
    return shape


def image_size(path: Path, fields: Mapping[str, Any], default: tuple[int, int]) -> tuple[int, int]:
    """The size of the images that a timm model is made for, in pixels.

    `model_args.img_size` counts before `pretrained_cfg.input_size`, before the default.

    Raises:
        InputError: it is no size.
    """
    args = fields.get("model_args") or {}
    cfg = fields.get("pretrained_cfg") or {}
    size = args.get("img_size", (cfg.get("input_size") or (3, *default))[1:])
    size = [size, size] if isinstance(size, int) else size
    good = isinstance(size, list | tuple) and len(size) == 2
    if not good or not all(isinstance(each, int) and each > 0 for each in size):
        raise InputError(path, "img_size", repr(size)[:80], "rows and columns", "complete it")
    return size[0], size[1]


def check_arguments(path: Path, fields: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """The `model_args` of a timm model, which change its architecture.

    Raises:
        InputError: one of them is not offered here.
    """
    args = fields.get("model_args") or {}
    known = {*known, "num_classes", "in_chans", "img_size", "drop_rate", "drop_path_rate"}
    if not isinstance(args, Mapping) or (unknown := sorted({*args} - known)):
        found = unknown[0] if isinstance(args, Mapping) else repr(args)[:80]
        expected = f"only {', '.join(sorted(known))}"
        raise InputError(path, "model_args", found, expected, "this variant is not offered")
    return dict(args)
