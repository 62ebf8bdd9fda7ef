"""Qwen2.5-VL's vision tower and merger <-> `Tower`; the decoder's table is `qwen2/convert.py`.

The keys are those of the released files, `visual.*`; `qwen2.convert.RENAMES` renames the newer
`model.visual.*` to them.
"""

from collections.abc import Mapping
from math import isqrt
from pathlib import Path
from typing import Any

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.language.qwen2.convert import SILU, Values
from tumorchain_jax.models.qwen_vl.plan import MERGE
from tumorchain_jax.models.qwen_vl.tower import CHANNELS, FRAMES, ROPE_THETA, TowerConfig
from tumorchain_jax.models.weight_map import KEEP, TRANSPOSE, Table, Transform

MODEL_TYPE = "qwen2_5_vl"
# A Conv3d whose stride is its kernel: (outputs, channels, frames, h, w) there, (values of a patch,
# outputs) here. Channels and frames are always as many, so the side of a patch can be told.
PATCHES = Transform(
    lambda x: x.reshape(len(x), -1).T,
    lambda x: x.T.reshape(-1, CHANNELS, FRAMES, *(isqrt(len(x) // CHANNELS // FRAMES),) * 2),
    -1,
)
_BLOCK = r"visual.blocks.{layer}"
TABLE: Table = (
    (r"patch_embed/kernel", r"visual.patch_embed.proj.weight", PATCHES),
    (r"blocks/(norm[12])/weight", _BLOCK + r".\1.weight", KEEP),
    (r"blocks/(attn|mlp)/(\w+)/kernel", _BLOCK + r".\1.\2.weight", TRANSPOSE),
    (r"blocks/(attn|mlp)/(\w+)/bias", _BLOCK + r".\1.\2.bias", KEEP),
    (r"merger/ln_q/weight", r"visual.merger.ln_q.weight", KEEP),
    (r"merger/mlp_([02])/kernel", r"visual.merger.mlp.\1.weight", TRANSPOSE),
    (r"merger/mlp_([02])/bias", r"visual.merger.mlp.\1.bias", KEEP),
)
SIZES = (
    "depth",
    "hidden_size",
    "intermediate_size",
    "num_heads",
    "out_hidden_size",
    "patch_size",
    "window_size",
)
_COMPLETE = "complete it from the model's own page"
_UNKNOWN = "no tower of this kind can be read"


def read_config(path: Path, fields: Mapping[str, Any], hidden_size: int) -> TowerConfig:
    """The tower's configuration from a `config.json` of Qwen2.5-VL.

    Args:
        path: named in errors.
        fields: what it holds.
        hidden_size: of the decoder.

    Raises:
        InputError: a field is missing (none has a default here) or asks for what ours cannot do.
    """
    vision = fields.get("vision_config")
    if not isinstance(vision, Mapping):
        found = repr(vision)[:80] if "vision_config" in fields else "no such field"
        raise InputError(path, "vision_config", found, "an object", _COMPLETE)
    vision = {"hidden_act": "silu", **vision}
    values = Values(path, vision)
    sizes: dict[str, Any] = {field: values.size(field) for field in SIZES}
    fixed = {"spatial_merge_size": MERGE, "temporal_patch_size": FRAMES}
    for field, only in fixed.items():
        if values.size(field) != only:
            values.refuse(field, str(only), _UNKNOWN)
    for field in ("in_channels", "in_chans"):
        if vision.get(field, CHANNELS) != CHANNELS:
            values.refuse(field, str(CHANNELS), _UNKNOWN)
    if vision["hidden_act"] not in SILU:
        values.refuse("hidden_act", "'silu'", _UNKNOWN)
    rope = vision.get("rope_parameters") or {}
    if not isinstance(rope, Mapping) or rope.get("rope_theta", ROPE_THETA) != ROPE_THETA:
        values.refuse("rope_parameters", f"a rope_theta of {ROPE_THETA:g}", _UNKNOWN)
    if sizes["hidden_size"] % (4 * sizes["num_heads"]):
        expected = f"a divisor of {sizes['hidden_size']}, the quotient a multiple of 4"
        values.refuse("num_heads", expected)
    if sizes["window_size"] < MERGE * sizes["patch_size"]:
        values.refuse("window_size", f"{MERGE * sizes['patch_size']} or more")
    if sizes["out_hidden_size"] != hidden_size:
        values.refuse("out_hidden_size", f"{hidden_size}, as the decoder has")
    layers = vision.get("fullatt_block_indexes")
    if not isinstance(layers, list) or any(
        type(layer) is not int or not 0 <= layer < sizes["depth"] for layer in layers
    ):
        values.refuse("fullatt_block_indexes", f"a list of numbers below {sizes['depth']}")
    return TowerConfig(**sizes, fullatt_block_indexes=tuple(layers))


def from_dict(values: Mapping[str, Any]) -> TowerConfig:
    """The inverse of `dataclasses.asdict`; lists from JSON become tuples.

    Raises:
        TypeError: a field is unknown or missing.
    """
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
    return TowerConfig(**fields)
