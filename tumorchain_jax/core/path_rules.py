"""One notation for everything that is chosen by parameter path: an ordered list of (regex, value).

A path is the parameter's keys joined by slashes, `decoder/layers/self_attn/q_proj/kernel`; a rule
applies when its regex matches the whole path, and the first that applies wins. The idea is
big_vision's. A parameter that no rule speaks of is an error, so a misspelt rule cannot pass.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from flax import traverse_util

from tumorchain_jax.core.errors import InputError

Value = TypeVar("Value")
Rules = Sequence[tuple[str, Value]]
Tree = Mapping[str, Any]


def first_match(rules: Rules[Value], path: str) -> Value:
    """The value of the first rule whose regex matches all of `path`.

    Raises:
        InputError: no rule matches.
    """
    for pattern, value in rules:
        if re.fullmatch(pattern, path):
            return value
    raise InputError(
        "config",
        "rules by parameter path",
        f"none for {path} among {[pattern for pattern, _ in rules]}",
        "one for every parameter",
        "add one",
    )


def flatten(tree: Tree) -> dict[str, Any]:
    """Nested dict -> {"a/b/c": leaf}."""
    return traverse_util.flatten_dict(tree, sep="/")


def unflatten(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `flatten`."""
    return traverse_util.unflatten_dict(dict(flat), sep="/")
