"""PEFT's `adapter_config.json`: the fields that are read or refused, and PEFT's own rules."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.language.qwen2.convert import LARGEST

MERGE = "merge with PEFT first"
"""The way out for every adapter that we cannot express."""
EXACT_INITS = ("none", "true", "false", "gaussian", "orthogonal", "eva")
"""Initialisations that leave the base as it is. All others (PiSSA, OLoRA, CorDA, LoftQ, LoRA-GA)
subtract something from the base, which PEFT derives again whenever it loads the adapter."""
IGNORED = (
    *("auto_mapping", "base_model_name_or_path", "inference_mode", "peft_version", "revision"),
    *("task_type", "lora_dropout", "corda_config", "eva_config", "loftq_config", "lora_ga_config"),
    *("megatron_config", "megatron_core", "qalora_group_size", "runtime_config"),
    "ensure_weight_tying",
)
"""Fields that change nothing of what a saved plain LoRA adapter computes."""


def check_fields(path: Path, fields: Mapping[str, Any]) -> None:
    """Refuse everything that is not plain LoRA over an unchanged base.

    Raises:
        InputError: a field asks for another method, is unknown, or has no sound value.
    """
    if fields.get("peft_type") != "LORA":
        raise InputError(path, "peft_type", repr(fields.get("peft_type")), "'LORA'", MERGE)
    init = fields.get("init_lora_weights")
    if str(init).lower() not in EXACT_INITS:
        found = f"{str(init)[:40]!r}, which changes the base"
        hint = f"{MERGE}, or let PEFT convert it (path_initial_model_for_weight_conversion)"
        raise InputError(path, "init_lora_weights", found, "one that does not", hint)
    if fields.get("bias") not in (None, "none"):
        raise InputError(path, "bias", repr(fields["bias"])[:80], "'none'", MERGE)
    known = {"peft_type", "init_lora_weights", "bias", "r", "lora_alpha", "use_rslora"}
    for name in sorted(fields.keys() - known - set(IGNORED) - CHECKS.keys()):
        if fields[name]:
            found = repr(fields[name])[:80]
            raise InputError(path, name[:80], found, "plain LoRA, without it", MERGE)
    for name, is_sound in CHECKS.items():
        if fields.get(name) is not None and not is_sound(fields[name]):
            found, hint = repr(fields[name])[:80], "save it again with PEFT"
            raise InputError(path, name, found, "what PEFT writes", hint)
    for name, kinds in (("r", (int,)), ("lora_alpha", (int, float))):
        if type(fields.get(name)) not in kinds or not 0 < fields[name] < LARGEST:
            found = repr(fields.get(name, "no such field"))[:80]
            raise InputError(path, name, found, "a number", "complete it")
    if type(fields.get("use_rslora", False)) is not bool:
        found = repr(fields["use_rslora"])[:80]
        raise InputError(path, "use_rslora", found, "true or false", "save it again with PEFT")


def _is_regex(value: Any) -> bool:
    try:
        return isinstance(value, str) and re.compile(value) is not None
    except (re.error, RecursionError, OverflowError):
        return False


def _is_list(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(type(each) is kind for each in value)


def _is_pattern(value: Any, *kinds: type) -> bool:
    """Whether a value maps regexes to numbers."""
    return isinstance(value, dict) and all(
        _is_regex(key) and type(number) in kinds and 0 < number < LARGEST
        for key, number in value.items()
    )


CHECKS: dict[str, Callable[[Any], bool]] = {
    "target_modules": lambda value: _is_regex(value) or _is_list(value, str),
    "exclude_modules": lambda value: _is_regex(value) or _is_list(value, str),
    "modules_to_save": lambda value: _is_list(value, str) and all(map(_is_regex, value)),
    "layers_to_transform": lambda value: type(value) is int or _is_list(value, int),
    "layers_pattern": lambda value: value in ("", "layers", [], ["layers"]),
    "rank_pattern": lambda value: _is_pattern(value, int),
    "alpha_pattern": lambda value: _is_pattern(value, int, float),
}
"""Fields that may be there, and whether a value of one is sound."""


def _ends(name: str, module: str) -> bool:
    return name == module or name.endswith(f".{module}")


def is_target(fields: Mapping[str, Any], name: str, is_all_linear: bool = True) -> bool:
    """Whether a layer gets an adapter (PEFT, tuners_utils.check_target_module_exists).

    Args:
        name: of the layer in PyTorch.
        is_all_linear: it is among `all-linear`, as the head and convolutions are not.
    """
    excluded, targets = fields.get("exclude_modules") or [], fields.get("target_modules") or []
    if isinstance(excluded, str) and re.fullmatch(excluded, name):
        return False
    if not isinstance(excluded, str) and any(_ends(name, module) for module in excluded):
        return False
    if any(
        re.match(rf"(^|.*\.){module}($|\..*)", name)
        for module in fields.get("modules_to_save") or []
    ):
        return False
    if targets == "all-linear":
        return is_all_linear
    if isinstance(targets, str):
        return re.fullmatch(targets, name) is not None
    if name in targets:
        return True
    layers = fields.get("layers_to_transform")
    if isinstance(layers, int) or layers:
        stack = "layers" if fields.get("layers_pattern") else r"[^.]*"
        number = re.match(rf".*?\.{stack}\.(\d+)\.", name)
        chosen = [layers] if isinstance(layers, int) else layers
        if number is None or int(number[1]) not in chosen:
            return False
    return any(_ends(name, module) for module in targets)


def is_saved(fields: Mapping[str, Any], name: str) -> bool:
    """Whether `modules_to_save` names a module, or one that it is in."""
    return any(
        re.match(rf".*{re.escape(module)}\.", f"{name}.")
        for module in fields.get("modules_to_save") or []
    )


def rank_and_alpha(fields: Mapping[str, Any], name: str) -> tuple[int, float]:
    """Rank and alpha of one layer."""
    return (
        _by_pattern(fields, "rank_pattern", "r", name),
        float(_by_pattern(fields, "alpha_pattern", "lora_alpha", name)),
    )


def scale(fields: Mapping[str, Any], name: str) -> float:
    """What B A of one layer is multiplied by."""
    rank, alpha = rank_and_alpha(fields, name)
    return alpha / (rank**0.5 if fields.get("use_rslora") else rank)


def _by_pattern(fields: Mapping[str, Any], patterns: str, default: str, name: str) -> Any:
    for pattern, value in (fields.get(patterns) or {}).items():
        if re.match(rf"(.*\.)?({pattern})$", name):
            return value
    return fields[default]
