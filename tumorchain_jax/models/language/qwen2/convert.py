"""Qwen2.5, Qwen2.5-VL's language model and plain Llama <-> `Decoder`. See `models/families.py`.

The keys are those of the released files. What newer transformers call them in memory, and so
write at times, is renamed to that first. A tied head has no key of its own there. An adapter lies
in a file of its own: to read both at once, join the two tables and the two state dicts.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.language.chat_template import CHATML
from tumorchain_jax.models.language.qwen2.model import Qwen2Config
from tumorchain_jax.models.weight_map import KEEP, TRANSPOSE, Renames, Table

TABLE: Table = (
    (r"embed_tokens/embedding", r"model.embed_tokens.weight", KEEP),
    (r"layers/(\w+_layernorm)/weight", r"model.layers.{layer}.\1.weight", KEEP),
    (r"layers/(self_attn|mlp)/(\w+)/kernel", r"model.layers.{layer}.\1.\2.weight", TRANSPOSE),
    (r"layers/(self_attn)/(\w+)/bias", r"model.layers.{layer}.\1.\2.bias", KEEP),
    (r"norm/weight", r"model.norm.weight", KEEP),
    (r"lm_head/kernel", r"lm_head.weight", TRANSPOSE),
)
RENAMES: Renames = (
    (r"model\.language_model\.(.*)", r"model.\1"),
    (r"model\.(visual\..*)", r"\1"),
)
# The image tower of Qwen2.5-VL: ours is the 3D encoder.
IGNORE: tuple[str, ...] = (r"visual\..*",)

_PEFT = "base_model.model."
_LAYER = _PEFT + r"model.layers.{layer}.\1.\2"
LORA_TABLE: Table = (
    (r"layers/(self_attn|mlp)/(\w+)/lora_a", _LAYER + r".lora_A.weight", TRANSPOSE),
    (r"layers/(self_attn|mlp)/(\w+)/lora_b", _LAYER + r".lora_B.weight", TRANSPOSE),
    (r"lm_head/lora_a", _PEFT + r"lm_head.lora_A.weight", TRANSPOSE),
    (r"lm_head/lora_b", _PEFT + r"lm_head.lora_B.weight", TRANSPOSE),
)
LORA_RENAMES: Renames = (
    (r"base_model\.model\.model\.language_model\.(.*)", r"base_model.model.model.\1"),
)

CONFIG: type[Qwen2Config] = Qwen2Config
BIASED = {"qwen2": True, "qwen2_5_vl": True, "llama": False}
"""Model types whose block ours is, and whether their q, k and v have a bias."""
MODEL_TYPES: tuple[str, ...] = tuple(BIASED)
CHAT = CHATML
SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
)
LARGEST = 10**7
"""No size of a model reaches it."""
_COMPLETE = "complete it from the model's own page"


def read_config(path: Path, fields: Mapping[str, Any]) -> Qwen2Config:
    """Our configuration from a `config.json` of transformers, in its old or new layout.

    Args:
        path: named in errors.
        fields: what it holds; `model_type` is one of `BIASED`.

    Raises:
        InputError: a field is missing (none has a default here) or asks for what ours cannot do.
    """
    biased = BIASED[fields["model_type"]]
    absent = () if biased else ("attention_bias",)
    return Qwen2Config(**decoder_fields(path, fields, absent), attention_bias=biased)


def decoder_fields(
    path: Path, fields: Mapping[str, Any], absent: Sequence[str] = ()
) -> dict[str, Any]:
    """What `Qwen2Config` and its kin take but for the biases, from a `config.json`.

    Qwen2.5-VL's language model was once at the top and is now in `text_config`; `rope_theta` was
    at the top and is now in `rope_parameters`.

    Args:
        path: named in errors.
        fields: what it holds.
        absent: fields beside those that none can have, which must not be set.

    Raises:
        InputError: a field is missing (none has a default here) or asks for what ours cannot do.
    """
    if not isinstance(fields.get("text_config", {}), Mapping):
        found = repr(fields["text_config"])
        raise InputError(path, "text_config", found, "an object", _COMPLETE)
    text: Mapping[str, Any] = {**fields, **fields.get("text_config", {})}

    def refuse(
        field: str, expected: str, hint: str = "no model of this kind can be read"
    ) -> NoReturn:
        found = repr(text[field]) if field in text else "no such field"
        raise InputError(path, field, found, expected, hint)

    def need(field: str, kind: type) -> Any:
        if type(text.get(field)) is not kind:
            refuse(field, f"a {kind.__name__}", _COMPLETE)
        if kind is not bool and not 0 < text[field] < LARGEST:
            refuse(field, f"over 0, below {LARGEST}", _COMPLETE)
        return text[field]

    for field in ("rope_scaling", "rope_parameters"):
        if not isinstance(text.get(field) or {}, Mapping):
            refuse(field, "an object", _COMPLETE)
    rope = {**(text.get("rope_scaling") or {}), **(text.get("rope_parameters") or {})}
    if rope.get("rope_type", rope.get("type", "default")) not in ("default", "mrope"):
        given = "rope_parameters" if text.get("rope_parameters") else "rope_scaling"
        refuse(given, "plain rotary embedding")
    theta: Any = rope.get("rope_theta", text.get("rope_theta"))
    if type(theta) not in (int, float) or not 0 < theta < float("inf"):
        refuse("rope_theta", "a number", _COMPLETE)
    if text.get("hidden_act") != "silu":
        refuse("hidden_act", "'silu'")
    for field in ("use_sliding_window", "mlp_bias", *absent):
        if text.get(field):
            refuse(field, "false")
    sizes: dict[str, Any] = {field: need(field, int) for field in SIZES}
    heads = sizes["num_attention_heads"]
    if heads % sizes["num_key_value_heads"]:
        refuse("num_key_value_heads", f"a divisor of {heads}", _COMPLETE)
    if text.get("head_dim") is not None:
        sizes["head_dim"] = need("head_dim", int)
    elif sizes["hidden_size"] % heads:
        refuse("head_dim", "a number", _COMPLETE)
    sizes = {"head_dim": sizes["hidden_size"] // heads, **sizes}
    section = rope.get("mrope_section")
    if section is not None:
        numbers = isinstance(section, list) and all(type(n) is int and n > 0 for n in section)
        if not numbers or len(section) != 3 or sum(section) != sizes["head_dim"] // 2:
            expected = f"three numbers, {sizes['head_dim'] // 2} together"
            raise InputError(path, "mrope_section", repr(section), expected, _COMPLETE)
        sizes["mrope_section"] = tuple(section)
    return {
        **sizes,
        "tie_word_embeddings": need("tie_word_embeddings", bool),
        "rope_theta": float(theta),
        "rms_norm_eps": need("rms_norm_eps", float),
    }


def transformers_config(config: Qwen2Config) -> dict[str, Any]:
    """A `config.json` that transformers opens as Qwen2 (as Llama, without biases)."""
    kind, name = ("qwen2", "Qwen2") if config.attention_bias else ("llama", "Llama")
    return named_fields(config, kind, name)


def named_fields(config: Qwen2Config, kind: str, name: str) -> dict[str, Any]:
    """A `config.json` of a text model of transformers.

    Args:
        kind: its `model_type`.
        name: of its class, before `ForCausalLM`.
    """
    return {
        "architectures": [f"{name}ForCausalLM"],
        "model_type": kind,
        **{field: getattr(config, field) for field in SIZES},
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "tie_word_embeddings": config.tie_word_embeddings,
        "use_sliding_window": False,
        "dtype": "float32",
    }
