"""Merlin's image encoder <-> `ResNet3D`. See `models/families.py`.

The keys are those of `I3ResNet` in StanfordMIMI/Merlin, which its five-year checkpoint has bare and
the others under a prefix. The classifier, the contrastive head and the text model are not ours, nor
are the counts of batches: they are carried.
"""

import re
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import flax.linen as nn
from jax.typing import DTypeLike

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.layers.linear import LoRA
from tumorchain_jax.models.layers.remat import Remat
from tumorchain_jax.models.vision.resnet3d.model import CHANNELS, ResNet3D, ResNet3DConfig
from tumorchain_jax.models.weight_map import CONVOLUTION, KEEP, POINTWISE, Renames, Table

CONFIG: type[ResNet3DConfig] = ResNet3DConfig
SIGNATURE = "layer4.0.downsample.0.weight"
_BLOCKS = ((r"layer(\d)/first", r"layer\1.0"), (r"layer(\d)/rest", r"layer\1.{layer+1}"))


def _norm(path: str, key: str, groups: int) -> Table:
    """The rows of a batch normalization.

    Args:
        groups: of the regex in `path`.
    """
    rows = (("scale", "weight"), ("bias", "bias"), (r"(running_\w+)", rf"\{groups + 1}"))
    return tuple((f"{path}/{ours}", f"{key}.{theirs}", KEEP) for ours, theirs in rows)


TABLE: Table = (
    (r"conv1/kernel", r"conv1.weight", CONVOLUTION),
    *_norm(r"bn1", r"bn1", 0),
    *(
        row
        for path, key in _BLOCKS
        for row in (
            (rf"{path}/(conv[13])/kernel", rf"{key}.\2.weight", POINTWISE),
            (rf"{path}/conv2/kernel", rf"{key}.conv2.weight", CONVOLUTION),
            *_norm(rf"{path}/(bn\d)", rf"{key}.\2", 2),
        )
    ),
    (r"layer(\d)/first/downsample/kernel", r"layer\1.0.downsample.0.weight", POINTWISE),
    *_norm(r"layer(\d)/first/downsample_bn", r"layer\1.0.downsample.1", 1),
)
_REPORT = r"encode_image\.vision_model\.features\."  # of the report generator: a plain sequence
RENAMES: Renames = (
    (r"(?:encode_image\.)?i3_resnet\.(.*)", r"\1"),
    (_REPORT + r"0\.(.*)", r"conv1.\1"),
    (_REPORT + r"1\.(.*)", r"bn1.\1"),
    *((_REPORT + rf"{place}\.(.*)", rf"layer{place - 3}.\1") for place in (4, 5, 6, 7)),
)
IGNORE: tuple[str, ...] = ()
CARRIED: tuple[str, ...] = (r"(?!conv1\.|bn1\.|layer\d\.).*", r".*\.num_batches_tracked")


def build(
    config: ResNet3DConfig,
    lora: LoRA | None = None,
    dtype: DTypeLike = "float32",
    remat: Remat = "none",
    scan_unroll: int = 1,
) -> nn.Module:
    """The module."""
    return ResNet3D(config, lora, dtype, remat, scan_unroll)


def read_config(
    path: Path, fields: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]
) -> ResNet3DConfig:
    """Our configuration from the tensors: Merlin has no `config.json`, and one size of image.

    Raises:
        InputError: a tensor that tells it is missing.
    """
    stem = shapes.get("conv1.weight", ())
    numbers: dict[int, set[int]] = {1: set(), 2: set(), 3: set(), 4: set()}
    for key in shapes:
        if match := re.match(r"layer([1-4])\.(\d+)\.", key):
            numbers[int(match[1])].add(int(match[2]))
    a, b, c, d = map(len, numbers.values())
    if len(stem) != 5 or not stem[0] or not all((a, b, c, d)):
        found = f"a stem of {stem}, stages of {a}, {b}, {c} and {d} blocks"
        expected = "an inflated ResNet of four stages"
        raise InputError(path.parent, "tensors", found, expected, "complete the folder")
    return ResNet3DConfig(blocks=(a, b, c, d), width=stem[0])


def check(config: ResNet3DConfig) -> None:
    """Accept any positive sizes: odd ones are padded."""


def num_heads(config: ResNet3DConfig) -> int | None:
    """There is no attention."""
    return None


def attention_flops(config: ResNet3DConfig) -> int:
    """There is no attention."""
    return 0


def kernel_flops(config: ResNet3DConfig, path: str, shape: tuple[int, ...]) -> int:
    """Of a kernel at `path`, forward, for one volume: 2 x its size x the voxels it is put to."""
    stem, *stage = path.split("/")
    d, h, w = config.image
    if stem == "conv1":
        return 2 * prod(shape) // CHANNELS * d * (h // 2) * (w // 2)
    number = int(stem.removeprefix("layer"))
    first = stage[0] == "first" and stage[1] == "conv1" and number > 1  # before the stride
    parts = 2 ** (number - 1 - first)
    voxels = prod(size // parts for size in (d // 2, h // 4, w // 4))
    return 2 * prod(shape) * voxels
