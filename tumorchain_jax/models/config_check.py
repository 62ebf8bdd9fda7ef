"""Checks of a model configuration that was read from a file.

Dataclasses take what they are given: a size of 0, text where a truth value belongs or a NaN would
be found late, or never.
"""

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from tumorchain_jax.core.errors import InputError

FIRST = {
    "ViT3DConfig": ("image", "patch", "hidden_size", "mlp_size", "num_layers", "num_heads"),
    "Qwen2Config": ("rope_theta", "rms_norm_eps"),
    "ProjectorConfig": ("activation",),
    "TumorChainConfig": ("projector", "global_pool", "roi_source", "roi_slots", "lora", "dtype"),
    "LoRA": ("rank", "alpha"),
}
"""Fields with a default that every file has; those that came later may be missing."""
LARGEST = 10**9


def check_fields(
    kind: Any, values: Any, where: str = "", kinds: Mapping[str, type] | None = None
) -> None:
    """Check that JSON values are the fields of a dataclass, each of its own type.

    Args:
        kind: the dataclass; those in it are checked too.
        where: prefix of the names in messages: `decoder.`.
        kinds: dataclasses of fields whose declared type is a protocol.

    Raises:
        ValueError: a field is unknown, missing or of another type; numbers must be finite.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"{where or 'model'}: found {_shown(values)}, expected an object")
    hints = get_type_hints(kind) | dict(kinds or {})
    if unknown := sorted(values.keys() - hints.keys()):
        raise ValueError(f"{where}{unknown[0][:80]}: found an unknown field, expected none")
    for field in fields(kind):
        hint = hints[field.name]
        if field.name not in values:
            if field.default is MISSING or field.name in FIRST.get(kind.__name__, ()):
                raise ValueError(
                    f"{where}{field.name}: found no such field, expected {_name(hint)}"
                )
            continue
        value = values[field.name]
        inner = [each for each in (hint, *get_args(hint)) if is_dataclass(each)]
        if inner and not (value is None and NoneType in get_args(hint)):
            check_fields(inner[0], value, f"{where}{field.name}.")
        elif not inner and not _fits(value, hint):
            expected = _name(hint)
            raise ValueError(f"{where}{field.name}: found {_shown(value)}, expected {expected}")


def _fits(value: Any, hint: Any) -> bool:
    """Whether a JSON value is of a type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return any(type(value) is type(each) and value == each for each in arguments)
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in arguments)
    if hint is float:
        return type(value) in (int, float) and isfinite(value)
    if hint is int:
        return type(value) is int and abs(value) < LARGEST
    if hint in (bool, str, NoneType):
        return type(value) is hint
    if origin is tuple and arguments[-1] is Ellipsis:
        return isinstance(value, list | tuple) and all(_fits(v, arguments[0]) for v in value)
    if origin is dict:
        return isinstance(value, dict)
    # A tuple of some types, or a named one.
    kinds = arguments or tuple(get_type_hints(hint).values())
    return (
        isinstance(value, list | tuple)
        and len(value) == len(kinds)
        and all(_fits(v, kind) for v, kind in zip(value, kinds, strict=True))
    )


def _name(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " or ".join(map(repr, get_args(hint)))
    return getattr(hint, "__name__", str(hint)) if not get_args(hint) else str(hint)


def _shown(value: Any) -> str:
    return repr(value)[:80]


def require(name: str, found: Any, is_sound: bool, expected: str) -> None:
    """Raise ValueError about a value unless it is sound."""
    if not is_sound:
        raise ValueError(f"{name}: found {_shown(found)}, expected {expected}")


def refuse_options(what: str, **options: object) -> None:
    """Refuse options that a kind of model does not have.

    Args:
        what: the kind, "a ResNet".
        options: by the name of their field; those that are empty or 0 are not asked for.

    Raises:
        InputError: one is asked for.
    """
    for field, value in options.items():
        if value:
            raise InputError("config", field, str(value)[:80], f"none for {what}", "leave it out")
