"""timm's ResNet <-> `ResNet`. See `models/families.py`."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import flax.linen as nn
from jax.typing import DTypeLike

from tumorchain_jax.models.config_check import refuse_options
from tumorchain_jax.models.image.resnet.model import ResNet, ResNetConfig
from tumorchain_jax.models.image.timm_names import (
    Shapes,
    check_arguments,
    count,
    linear,
    norm,
    shape_of,
)
from tumorchain_jax.models.layers.linear import LoRA
from tumorchain_jax.models.layers.remat import Remat
from tumorchain_jax.models.weight_map import CONVOLUTION_2D, KEEP, POINTWISE_2D, Renames, Table

CONFIG: type[ResNetConfig] = ResNetConfig
ARCHITECTURES = r"resnet(50|101|152)"
SIGNATURE = "layer1.0.conv3.weight"
_BLOCKS = ((r"layer(\d)/first", r"layer\1.0"), (r"layer(\d)/rest", r"layer\1.{layer+1}"))


def _norm(path: str, key: str, groups: int) -> Table:
    """Rows of a batch normalization.

    Args:
        groups: of the regex in `path`.
    """
    statistics = (rf"{path}/(running_\w+)", rf"{key}.\{groups + 1}", KEEP)
    return *norm(path, key), statistics


TABLE: Table = (
    ("conv1/kernel", "conv1.weight", CONVOLUTION_2D),
    *_norm("bn1", "bn1", 0),
    *(
        row
        for path, key in _BLOCKS
        for row in (
            (rf"{path}/(conv[13])/kernel", rf"{key}.\2.weight", POINTWISE_2D),
            (rf"{path}/conv2/kernel", rf"{key}.conv2.weight", CONVOLUTION_2D),
            *_norm(rf"{path}/(bn\d)", rf"{key}.\2", 2),
        )
    ),
    (r"layer(\d)/first/downsample/kernel", r"layer\1.0.downsample.0.weight", POINTWISE_2D),
    *_norm(r"layer(\d)/first/downsample_bn", r"layer\1.0.downsample.1", 1),
    *linear("head", "fc"),
)
HEAD = r"fc\.(weight|bias)"
CARRIED: tuple[str, ...] = (r".*\.num_batches_tracked",)


def renames(keys: Iterable[str]) -> Renames:
    """There is one spelling."""
    return ()


def read_config(path: Path, fields: Mapping[str, Any], shapes: Shapes) -> ResNetConfig:
    """Our configuration from timm's `config.json` and the tensors.

    Raises:
        InputError: the architecture has options that are not offered, or a tensor is missing.
    """
    check_arguments(path, fields, ("layers",))
    width, channels, *_ = shape_of(path, shapes, "conv1.weight", 4)
    blocks = tuple(count(shapes, rf"layer{stage}\.(\d+)\.") for stage in range(1, 5))
    classes = shape_of(path, shapes, "fc.weight", 2)[0] if "fc.weight" in shapes else 0
    return ResNetConfig(blocks, width, channels, classes)


def build(
    config: ResNetConfig,
    lora: LoRA | None = None,
    dtype: DTypeLike = "float32",
    remat: Remat = "none",
    drop_path: float = 0.0,
) -> nn.Module:
    """The module.

    Raises:
        InputError: LoRA or stochastic depth is asked for.
    """
    refuse_options("a ResNet", lora=lora, drop_path=drop_path)
    return ResNet(config, dtype, remat)
