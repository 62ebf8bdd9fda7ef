"""Qwen2.5-VL's vision tower and merger <-> `Tower`, and their adapters; the decoder's tables are in
`qwen2/convert.py`.

The keys are those of the released files, `visual.*`; `qwen2.convert.RENAMES` renames the newer
`model.visual.*` to them.
"""

from collections.abc import Mapping
from dataclasses import asdict
from math import isqrt
from pathlib import Path
from typing import Any

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.language.qwen2.convert import SILU, Values, named_fields
from tumorchain_jax.models.language.qwen2.model import Qwen2Config
from tumorchain_jax.models.qwen_vl.plan import MERGE
from tumorchain_jax.models.qwen_vl.tower import CHANNELS, FRAMES, ROPE_THETA, TowerConfig
from tumorchain_jax.models.weight_map import KEEP, POINTWISE, TRANSPOSE, Table, Transform

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
_PEFT = "base_model.model."
# PEFT's of a Conv3d: A is a convolution like its base, B one of a single voxel.
LORA_TABLE: Table = (
    (r"patch_embed/lora_a", _PEFT + r"visual.patch_embed.proj.lora_A.weight", PATCHES),
    (r"patch_embed/lora_b", _PEFT + r"visual.patch_embed.proj.lora_B.weight", POINTWISE),
    (r"blocks/(attn|mlp)/(\w+)/lora_a", _PEFT + _BLOCK + r".\1.\2.lora_A.weight", TRANSPOSE),
    (r"blocks/(attn|mlp)/(\w+)/lora_b", _PEFT + _BLOCK + r".\1.\2.lora_B.weight", TRANSPOSE),
    (r"merger/mlp_([02])/lora_a", _PEFT + r"visual.merger.mlp.\1.lora_A.weight", TRANSPOSE),
    (r"merger/mlp_([02])/lora_b", _PEFT + r"visual.merger.mlp.\1.lora_B.weight", TRANSPOSE),
)
CONVOLUTION = "visual.patch_embed.proj"
"""The one layer here that PyTorch has as a convolution."""
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


def transformers_config(decoder: Qwen2Config, tower: TowerConfig) -> dict[str, Any]:
    """A `config.json` that transformers opens as Qwen2.5-VL, but for the ids of special tokens."""
    window = {"use_sliding_window": False}
    fields = named_fields(decoder, MODEL_TYPE, "Qwen2_5_VL", window)
    section = list(decoder.mrope_section or ())
    text = {name: value for name, value in fields.items() if name != "architectures"}
    text |= {
        "model_type": f"{MODEL_TYPE}_text",
        "rope_parameters": {**fields["rope_parameters"], "mrope_section": section},
    }
    return {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "model_type": MODEL_TYPE,
        "tie_word_embeddings": decoder.tie_word_embeddings,
        "text_config": text,
        "vision_config": {
            "model_type": MODEL_TYPE,
            **asdict(tower),
            "fullatt_block_indexes": list(tower.fullatt_block_indexes),
            "hidden_act": "silu",
            "in_channels": CHANNELS,
            "spatial_merge_size": MERGE,
            "temporal_patch_size": FRAMES,
            "tokens_per_second": 2,
        },
        "dtype": "float32",
    }
