"""Qwen2.5, Qwen2.5-VL's language model, Llama and Mistral <-> `Decoder`. See `models/families.py`.

The keys are those of the released files. What newer transformers call them in memory, and so
write at times, is renamed to that first. A tied head has no key of its own there. An adapter lies
in a file of its own: to read both at once, join the two tables and the two state dicts.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.language.chat_template import CHATML
from tumorchain_jax.models.language.qwen2.model import Qwen2Config
from tumorchain_jax.models.language.qwen2.rotary import RopeScaling
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
TOWER = "visual."
"""Prefix of the vision tower of Qwen2.5-VL (see `models/qwen_vl`). Where only the decoder is of
use, as beside a 3D encoder, it is stored unchanged."""
TOWER_KEYS = r"visual\..*"
IGNORE: tuple[str, ...] = (
    TOWER_KEYS,
    r"model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",
)
"""Keys that ours has no use for: beside the tower, frequencies that older transformers wrote."""

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
    (r"base_model\.model\.model\.(visual\..*)", r"base_model.model.\1"),
)

CONFIG: type[Qwen2Config] = Qwen2Config
BIASED = {"qwen2": True, "qwen2_5_vl": True, "llama": False, "mistral": False}
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
SILU = ("silu", "swish")
_COMPLETE = "complete it from the model's own page"
_UNKNOWN = "no model of this kind can be read"


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
    at the top and is now in `rope_parameters`. Older configurations of Llama leave out what its
    first version did not have; then it is as transformers reads it.

    Args:
        path: named in errors.
        fields: what it holds.
        absent: fields beside those that none can have, which must not be set.

    Raises:
        InputError: a field is missing or asks for what ours cannot do.
    """
    if not isinstance(fields.get("text_config", {}), Mapping):
        found = repr(fields["text_config"])[:80]
        raise InputError(path, "text_config", found, "an object", _COMPLETE)
    kind = fields["model_type"]
    text = {"hidden_act": "silu", "tie_word_embeddings": False, **fields}
    text |= fields.get("text_config", {})
    if kind == "llama" and text.get("num_key_value_heads") is None:
        text["num_key_value_heads"] = text.get("num_attention_heads")
    values = Values(path, text)
    rope = _read_rope(values, 1e4 if kind in ("llama", "mistral") else None)
    if text["hidden_act"] not in SILU:
        values.refuse("hidden_act", "'silu'", _UNKNOWN)
    for field in ("mlp_bias", *absent):
        if text.get(field):
            values.refuse(field, "false", _UNKNOWN)
    sizes: dict[str, Any] = {field: values.size(field) for field in SIZES}
    _check_window(values, kind, sizes["num_hidden_layers"])
    heads = sizes["num_attention_heads"]
    if heads % sizes["num_key_value_heads"]:
        values.refuse("num_key_value_heads", f"a divisor of {heads}", _COMPLETE)
    if sizes["hidden_size"] % heads and (kind == "llama" or text.get("head_dim") is None):
        values.refuse("num_attention_heads", f"a divisor of {sizes['hidden_size']}", _COMPLETE)
    head_dim = sizes["hidden_size"] // heads
    if text.get("head_dim") is not None:
        head_dim = values.size("head_dim")
    if head_dim % 2:
        values.refuse("head_dim", "an even number", _COMPLETE)
    section = rope.pop("mrope_section")
    if section is not None:
        numbers = isinstance(section, list) and all(type(n) is int and n > 0 for n in section)
        if not numbers or len(section) != 3 or sum(section) != head_dim // 2:
            expected = f"three numbers, {head_dim // 2} together"
            raise InputError(path, "mrope_section", repr(section)[:80], expected, _COMPLETE)
        sizes["mrope_section"] = tuple(section)
    return {
        **sizes,
        **rope,
        "head_dim": head_dim,
        "tie_word_embeddings": values.boolean("tie_word_embeddings"),
        "rms_norm_eps": values.positive("rms_norm_eps"),
    }


class Values(NamedTuple):
    """Fields of a configuration, each of the kind that it must be, or an InputError."""

    path: Path
    fields: Mapping[str, Any]

    def refuse(self, field: str, expected: str, hint: str = _COMPLETE) -> NoReturn:
        """Raise an InputError about a field."""
        found = repr(self.fields[field])[:80] if field in self.fields else "no such field"
        raise InputError(self.path, field, found, expected, hint)

    def size(self, field: str) -> int:
        """A whole number over 0."""
        value = self.fields.get(field)
        if type(value) is not int:
            self.refuse(field, "a whole number")
        if not 0 < value < LARGEST:
            self.refuse(field, f"over 0, below {LARGEST}")
        return value

    def boolean(self, field: str) -> bool:
        """True or false."""
        if type(self.fields.get(field)) is not bool:
            self.refuse(field, "true or false")
        return self.fields[field]

    def positive(self, field: str) -> float:
        """A number over 0."""
        value: Any = self.fields.get(field)
        if type(value) not in (int, float) or not 0 < value < float("inf"):
            self.refuse(field, "a number over 0")
        return float(value)


def _read_rope(values: Values, default_theta: float | None) -> dict[str, Any]:
    """Base, scaling and M-RoPE section of the rotary embedding, in the older or newer layout."""
    text = values.fields
    for field in ("rope_scaling", "rope_parameters"):
        if not isinstance(text.get(field) or {}, Mapping):
            values.refuse(field, "an object")
    given = "rope_parameters" if text.get("rope_parameters") else "rope_scaling"
    rope = {} if default_theta is None else {"rope_theta": default_theta}
    rope |= {"rope_theta": text["rope_theta"]} if "rope_theta" in text else {}
    rope |= {**(text.get("rope_scaling") or {}), **(text.get("rope_parameters") or {})}
    inner = Values(values.path, {**text, **rope})
    scaling = None
    theta = inner.positive("rope_theta")
    if rope.get("partial_rotary_factor") not in (None, 1):
        inner.refuse("partial_rotary_factor", "1", _UNKNOWN)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "llama3":
        low, high = inner.positive("low_freq_factor"), inner.positive("high_freq_factor")
        context = inner.size("original_max_position_embeddings")
        scaling = RopeScaling(inner.positive("factor"), low, high, context)
        if low >= high:
            inner.refuse("high_freq_factor", f"over {low}")
    elif kind not in ("default", "mrope"):
        values.refuse(given, "plain rotary embedding, or llama3's", _UNKNOWN)
    section = rope.get("mrope_section")
    return {"rope_theta": theta, "rope_scaling": scaling, "mrope_section": section}


def _check_window(values: Values, kind: str, layers: int) -> None:
    """Refuse attention that slides in any layer."""
    text = values.fields
    types = text.get("layer_types")
    if types and set(types) != {"full_attention"}:
        values.refuse("layer_types", "full attention alone", _UNKNOWN)
    if kind == "mistral":
        # transformers has 4096 where there is no such field.
        window, context = text.get("sliding_window", 4096), text.get("max_position_embeddings")
        if window is not None and not (type(window) is type(context) is int and window >= context):
            values.refuse("sliding_window", "null, or no less than the context", _UNKNOWN)
        return
    first = text.get("max_window_layers")
    slides = not types and text.get("sliding_window", 0) is not None
    if text.get("use_sliding_window") and slides and (type(first) is not int or first < layers):
        values.refuse("use_sliding_window", "false, or no layer that slides", _UNKNOWN)


def transformers_config(config: Qwen2Config) -> dict[str, Any]:
    """A `config.json` that transformers opens as Qwen2; without biases as Llama, or as Mistral
    where the heads do not divide the hidden size, which its Llama does not allow.
    """
    kind, name = ("qwen2", "Qwen2") if config.attention_bias else ("llama", "Llama")
    window: dict[str, Any] = {"use_sliding_window": False}
    if kind == "llama" and config.hidden_size % config.num_attention_heads:
        kind, name, window = "mistral", "Mistral", {"sliding_window": None}
    return named_fields(config, kind, name, window)


def named_fields(
    config: Qwen2Config, kind: str, name: str, window: Mapping[str, Any]
) -> dict[str, Any]:
    """A `config.json` of a text model of transformers.

    Args:
        kind: its `model_type`.
        name: of its class, before `ForCausalLM`.
        window: the field that says that no attention slides.
    """
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": config.rope_theta}
    if config.rope_scaling is not None:
        rope |= {"rope_type": "llama3", **config.rope_scaling._asdict()}
    return {
        "architectures": [f"{name}ForCausalLM"],
        "model_type": kind,
        **{field: getattr(config, field) for field in SIZES},
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope_theta,
        "rope_parameters": rope,
        "tie_word_embeddings": config.tie_word_embeddings,
        **window,
        "dtype": "float32",
    }
