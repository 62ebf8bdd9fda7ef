"""A LoRA adapter as PEFT writes it: `adapter_config.json` and `adapter_model.safetensors`.

Which tensors there must be follows from the configuration and the base model, so an adapter that
is cut short is refused. Layers of a stack that have no adapter hold zeros, which add nothing. Ours
are stacked, so all layers of one projection must have the same rank and scale.
"""

import re
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.families import decoder_to_dict, language_model
from tumorchain_jax.models.language.qwen2.convert import LARGEST
from tumorchain_jax.models.language.qwen2.model import Qwen2Config
from tumorchain_jax.models.layers.linear import LoRA
from tumorchain_jax.models.weight_map import Table, canonical, sources
from tumorchain_jax.weights.matching import Family, Shapes, decoder_shapes, under

STEM = "adapter_model"
CONFIG = "adapter_config.json"
PREFIX = "base_model.model."
EMBEDDINGS = ("embed_tokens/embedding", "lm_head/kernel")
UNSUPPORTED = (
    *("use_dora", "use_qalora", "use_bdlora", "fan_in_fan_out", "lora_bias", "layer_replication"),
    *("target_parameters", "trainable_token_indices", "alora_invocation_tokens", "velora_config"),
    *("monteclora_config", "kasa_config", "arrow_config"),
)
"""What PEFT can do beside plain LoRA."""


def read_adapter(
    path: Path, fields: Mapping[str, Any], base: Qwen2Config, keys: Collection[str]
) -> Family:
    """The family of an adapter.

    Args:
        path: of its configuration, named in errors.
        fields: what that holds.
        base: what it adapts.
        keys: of its tensors, for how they spell a module's name.

    Raises:
        InputError: it is no plain LoRA; or layers of one projection differ in rank or scale.
    """
    _check_fields(path, fields)
    model = language_model(base)
    spelling = "model.language_model." if any(".language_model." in key for key in keys) else ""
    names = _module_names(base, spelling)
    adapted: dict[str, list[int]] = {}
    ranks: dict[str, int] = {}
    alphas: dict[str, float] = {}
    for (module, layer), name in names.items():
        if not _is_target(fields, name, is_head=module == "lm_head"):
            continue
        rank = _by_pattern(fields, "rank_pattern", "r", name)
        alpha = _by_pattern(fields, "alpha_pattern", "lora_alpha", name)
        adapted.setdefault(module, []).append(layer)
        if (ranks.setdefault(module, rank), alphas.setdefault(module, alpha)) != (rank, alpha):
            found = f"{rank} and {alpha} for {name}, others of {module} differ"
            expected = "one rank and one alpha for all layers of a projection"
            raise InputError(path, "rank_pattern", found, expected, "merge it with PEFT first")
    if not adapted:
        found, expected = repr(fields.get("target_modules")), "linear layers of the base"
        raise InputError(path, "target_modules", found, expected, "name the base it was made for")
    lora = LoRA(
        tuple(_anywhere(module) for module in adapted),
        fields["r"],
        float(fields["lora_alpha"]),
        bool(fields.get("use_rslora")),
        tuple((_anywhere(m), rank) for m, rank in ranks.items() if rank != fields["r"]),
        tuple((_anywhere(m), float(a)) for m, a in alphas.items() if a != fields["lora_alpha"]),
    )
    shapes = decoder_shapes(base, lora)
    named = {canonical(model.LORA_RENAMES, key) for key in keys}
    saved = _saved(fields, model.TABLE, shapes, named)
    kept = {
        path: shape
        for path, shape in shapes.items()
        if path.endswith(("/lora_a", "/lora_b")) or path in saved
    }
    saved_table = [(pattern, PREFIX + key, change) for pattern, key, change in model.TABLE]
    config = {"decoder": decoder_to_dict(base), "lora": asdict(lora)}
    return Family(
        "peft",
        config,
        under("decoder", (*model.LORA_TABLE, *saved_table)),
        {f"decoder/{path}": shape for path, shape in kept.items()},
        model.LORA_RENAMES,
        # Of an adapted head PEFT keeps the base's weight too.
        (re.escape(PREFIX) + r"(visual\..*|lm_head\.base_layer\.weight)",),
        absent=_absent(adapted, base),
    )


def _check_fields(path: Path, fields: Mapping[str, Any]) -> None:
    if fields.get("peft_type") != "LORA":
        raise InputError(path, "peft_type", repr(fields.get("peft_type")), "'LORA'", "merge it")
    for name in UNSUPPORTED:
        if fields.get(name):
            hint = "merge it with PEFT first"
            raise InputError(path, name, repr(fields[name]), "plain LoRA, without it", hint)
    if fields.get("bias", "none") != "none":
        raise InputError(path, "bias", repr(fields["bias"]), "'none'", "merge it with PEFT first")
    for name, is_sound in CHECKS.items():
        if fields.get(name) is not None and not is_sound(fields[name]):
            hint = "save it again with PEFT"
            raise InputError(path, name, repr(fields[name]), "what PEFT writes", hint)
    for name, kinds in (("r", (int,)), ("lora_alpha", (int, float))):
        if type(fields.get(name)) not in kinds or not 0 < fields[name] < LARGEST:
            found = repr(fields.get(name, "no such field"))
            raise InputError(path, name, found, "a number", "complete it")


def _is_regex(value: Any) -> bool:
    try:
        return isinstance(value, str) and re.compile(value) is not None
    except re.error:
        return False


def _is_list(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(type(each) is kind for each in value)


def _is_pattern(value: Any, *kinds: type) -> bool:
    """Numbers by regex."""
    return isinstance(value, dict) and all(
        _is_regex(key) and type(number) in kinds and 0 < number < LARGEST
        for key, number in value.items()
    )


CHECKS: dict[str, Callable[[Any], bool]] = {
    "target_modules": lambda value: _is_regex(value) or _is_list(value, str),
    "exclude_modules": lambda value: _is_regex(value) or _is_list(value, str),
    "modules_to_save": lambda value: _is_list(value, str),
    "layers_to_transform": lambda value: type(value) is int or _is_list(value, int),
    "rank_pattern": lambda value: _is_pattern(value, int),
    "alpha_pattern": lambda value: _is_pattern(value, int, float),
}
"""Fields that may be there, and whether a value of one is sound."""


def _module_names(base: Qwen2Config, spelling: str) -> dict[tuple[str, int], str]:
    """{(our module, layer): its name in PyTorch} of all linear layers."""
    linear = [path.rpartition("/")[0] for path in decoder_shapes(base) if path.endswith("/kernel")]
    names = {}
    for module in linear:
        stack, _, inner = module.partition("/")
        if stack == "layers":
            dotted = inner.replace("/", ".")
            for layer in range(base.num_hidden_layers):
                names[module, layer] = f"{spelling or 'model.'}layers.{layer}.{dotted}"
        else:
            names[module, 0] = module
    return names


def _ends(name: str, module: str) -> bool:
    return name == module or name.endswith(f".{module}")


def _is_target(fields: Mapping[str, Any], name: str, is_head: bool) -> bool:
    """PEFT's rule (tuners_utils.check_target_module_exists)."""
    excluded, targets = fields.get("exclude_modules") or [], fields.get("target_modules") or []
    if isinstance(excluded, str) and re.fullmatch(excluded, name):
        return False
    if not isinstance(excluded, str) and any(_ends(name, module) for module in excluded):
        return False
    if any(
        re.match(rf"(^|.*\.){re.escape(module)}($|\..*)", name)
        for module in fields.get("modules_to_save") or []
    ):
        return False
    if targets == "all-linear":
        return not is_head
    if isinstance(targets, str):
        return re.fullmatch(targets, name) is not None
    layers = fields.get("layers_to_transform")
    if isinstance(layers, int) or layers:
        number = re.match(r".*?\.layers\.(\d+)\.", name)
        chosen = [layers] if isinstance(layers, int) else layers
        if number is None or int(number[1]) not in chosen:
            return False
    return any(_ends(name, module) for module in targets)


def _by_pattern(fields: Mapping[str, Any], patterns: str, default: str, name: str) -> Any:
    for pattern, value in (fields.get(patterns) or {}).items():
        if re.match(rf"(.*\.)?({pattern})$", name):
            return value
    return fields[default]


def _anywhere(module: str) -> str:
    """A regex over our paths: of the decoder alone or in the whole, stacked or unrolled."""
    return f"(.*/)?{module.replace('layers/', r'layers(_[0-9]+)?/', 1)}"


def _saved(fields: Mapping[str, Any], table: Table, shapes: Shapes, keys: Set[str]) -> set[str]:
    """Our parameters that the adapter replaces whole: of modules whose name, or that of one they
    are in, ends like one of `modules_to_save`; and embeddings, which PEFT may add on its own.
    """
    like = {
        path: jax.ShapeDtypeStruct(shape, jnp.float32)
        for path, shape in shapes.items()
        if not path.endswith(("/lora_a", "/lora_b"))
    }
    return {
        path
        for path, source in sources(table, like).items()
        if (path in EMBEDDINGS and PREFIX + source.keys[0] in keys)
        or any(
            re.match(rf".*{re.escape(module)}\.", key)
            for module in fields.get("modules_to_save") or []
            for key in source.keys
        )
    }


def _absent(adapted: Mapping[str, list[int]], base: Qwen2Config) -> tuple[str, ...]:
    """Canonical keys that are not there: those of layers without an adapter."""
    keys = []
    for module, layers in adapted.items():
        _, _, inner = module.partition("/")
        for layer in set(range(base.num_hidden_layers)) - {*layers}:
            dotted = inner.replace("/", ".")
            for part in "AB":
                keys.append(f"{PREFIX}model.layers.{layer}.{dotted}.lora_{part}.weight")
    return tuple(keys)
