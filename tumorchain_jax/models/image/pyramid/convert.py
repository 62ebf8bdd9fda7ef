"""The family of `Pyramid`. See `models/families.py`. Nobody publishes its weights: only ours."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import flax.linen as nn
from jax.typing import DTypeLike

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.config_check import refuse_options
from tumorchain_jax.models.image.pyramid.model import Pyramid, PyramidConfig
from tumorchain_jax.models.image.timm_names import Shapes
from tumorchain_jax.models.layers.linear import LoRA
from tumorchain_jax.models.layers.remat import Remat
from tumorchain_jax.models.weight_map import Renames, Table

CONFIG: type[PyramidConfig] = PyramidConfig
ARCHITECTURES = r"(?!)"
"""None: matches nothing."""
TABLE: Table = ()
HEAD = r"(?!)"
CARRIED: tuple[str, ...] = ()


def renames(keys: Iterable[str]) -> Renames:
    """There is one spelling."""
    return ()


def read_config(path: Path, fields: Mapping[str, Any], shapes: Shapes) -> PyramidConfig:
    """Refuse: there is no published form.

    Raises:
        InputError: always.
    """
    found = str(fields.get("architecture"))[:80]
    hint = "train one with `tumorchain bus crossval --config bus_nano`"
    raise InputError(path, "architecture", found, "one that is published", hint)


def build(
    config: PyramidConfig,
    lora: LoRA | None = None,
    dtype: DTypeLike = "float32",
    remat: Remat = "none",
    drop_path: float = 0.0,
) -> nn.Module:
    """The module.

    Raises:
        InputError: LoRA or stochastic depth is asked for.
    """
    refuse_options("a pyramid", lora=lora, drop_path=drop_path)
    return Pyramid(config, dtype, remat)
