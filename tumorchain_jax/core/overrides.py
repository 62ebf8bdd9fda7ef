"""Set fields of a configuration from `--config.a.b=value`, each by its declared type.

A configuration is a tree of `ConfigDict`s whose leaves are plain values or frozen dataclasses. A
dataclass is replaced by a copy with the new fields. The type of a dataclass field is its
annotation, that of another field the type of its value.
"""

import ast
import dataclasses
from collections.abc import Sequence
from difflib import get_close_matches
from types import GenericAlias, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ml_collections import ConfigDict

from tumorchain_jax.core.errors import InputError

PREFIX = "--config."
Tree = dict[str, Any]
"""Field -> the text of its new value, or the tree of its own fields."""


def apply_overrides(config: ConfigDict, words: Sequence[str], subject: object) -> None:
    """Set fields of `config` in place.

    Args:
        words: `--config.a.b=value` each; of two for one field the last one counts.
        subject: what to call the configuration in errors.

    Raises:
        InputError: a word is something else, or names no field, or its value is of another type.
    """
    tree: Tree = {}
    for word in words:
        name, equals, text = word.removeprefix(PREFIX).partition("=")
        if not (word.startswith(PREFIX) and name and equals):
            expected = f"{PREFIX}FIELD=VALUE"
            raise InputError("command line", word, "an unknown argument", expected, "remove it")
        *parents, field = name.split(".")
        node = tree
        for parent in parents:
            child = node.get(parent)
            node[parent] = child if isinstance(child, dict) else {}
            node = node[parent]
        node[field] = text
    for name, given in tree.items():
        _set_in(config, name, given, subject, name)


def _set_in(config: ConfigDict, name: str, given: Any, subject: object, where: str) -> None:
    _check_name(name, list(config.keys()), subject, where)
    value = config[name]
    if isinstance(value, ConfigDict) and isinstance(given, dict):
        for child, text in given.items():
            _set_in(value, child, text, subject, f"{where}.{child}")
    else:
        config[name] = _new_value(value, _type_of(value), given, subject, where)


def _new_value(value: Any, kind: Any, given: Any, subject: object, where: str) -> Any:
    part = type(value) if dataclasses.is_dataclass(value) else _dataclass_of(kind)
    field = PREFIX + where
    if isinstance(given, dict):
        if part is None:
            child = next(iter(given))
            expected = f"{field}={_describe(kind)}"
            raise InputError(subject, f"{field}.{child}", "no such field", expected, "change it")
        kinds = get_type_hints(part)
        changes = {}
        for name, text in given.items():
            child = f"{where}.{name}"
            _check_name(name, list(kinds), subject, child)
            old = None if value is None else getattr(value, name)
            changes[name] = _new_value(old, kinds[name], text, subject, child)
        return _build(value, part, changes, subject, where)
    try:
        return _parse(given, kind)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        has_fields = part is not None or kind is ConfigDict
        hint = f"set {field}.FIELD=VALUE" if has_fields else "change it"
        raise InputError(subject, field, given or "nothing", _describe(kind), hint) from None


def _build(value: Any, part: type, changes: Tree, subject: object, where: str) -> Any:
    """A copy of a dataclass with changed fields, or a new one where there was none."""
    if value is None:
        required = [
            item.name
            for item in dataclasses.fields(part)
            if item.default is item.default_factory is dataclasses.MISSING
        ]
        if missing := [name for name in required if name not in changes]:
            hint = f"set {', '.join(f'{PREFIX}{where}.{name}' for name in missing)} too"
            expected = f"a {part.__name__}, which needs {', '.join(missing)}"
            raise InputError(subject, PREFIX + where, "none", expected, hint)
    try:
        return part(**changes) if value is None else dataclasses.replace(value, **changes)
    except ValueError as error:
        found = ", ".join(f"{name} {new}" for name, new in changes.items())
        raise InputError(subject, PREFIX + where, found, str(error), "change it") from error


def _check_name(name: str, known: Sequence[str], subject: object, where: str) -> None:
    if name not in known:
        close = get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}?" if close else "see configs/README.md"
        expected = f"one of {', '.join(sorted(known))}"
        raise InputError(subject, PREFIX + where, "no such field", expected, hint)


def _parse(text: str, kind: Any) -> Any:
    """The value that a text stands for; ValueError if it is of another type."""
    options = _options(kind)
    if type(None) in options and text.lower() == "none":
        return None
    for option in options:
        if option is str:
            return text
        if option is bool and text.lower() in ("true", "false"):
            return text.lower() == "true"
        if option in (int, float):
            return option(text)
        if get_origin(option) is Literal and text in get_args(option):
            return text
        if option is tuple or get_origin(option) is tuple:
            return _convert(ast.literal_eval(text), option)
    raise ValueError(text)


def _convert(value: Any, kind: Any) -> Any:
    """A literal as a value of this type; ValueError if it is none."""
    if get_origin(kind) is tuple and isinstance(value, tuple | list):
        kinds = get_args(kind)
        kinds = (kinds[0],) * len(value) if kinds[-1] is Ellipsis else kinds
        return tuple(_convert(item, own) for item, own in zip(value, kinds, strict=True))
    if kind is tuple and isinstance(value, tuple | list):
        return tuple(value)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is kind:
        return value
    raise ValueError(value)


def _options(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _dataclass_of(kind: Any) -> Any:
    """The dataclass among the types that a field may have; None without one."""
    return next((option for option in _options(kind) if dataclasses.is_dataclass(option)), None)


def _type_of(value: Any) -> Any:
    """The type of a value, of a tuple with that of its items: all of one type, or each its own."""
    if not isinstance(value, tuple) or not value:
        return type(value)
    kinds = tuple(_type_of(item) for item in value)
    same = all(kind == kinds[0] for kind in kinds)
    return GenericAlias(tuple, (kinds[0], ...) if same else kinds)


def _describe(kind: Any) -> str:
    """What values a field takes, for people."""
    names = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "text",
        type(None): "none",
        tuple: "a tuple",
    }

    def describe(option: Any) -> str:
        if get_origin(option) is Literal:
            return " or ".join(map(str, get_args(option)))
        if get_origin(option) is tuple:
            inner = get_args(option)
            if inner[-1] is Ellipsis:
                return f"a tuple, each item {describe(inner[0])}"
            return f"({', '.join(map(describe, inner))})"
        if dataclasses.is_dataclass(option) or option is ConfigDict:
            return "no value of its own"
        return names.get(option, str(option))

    return " or ".join(map(describe, _options(kind)))
