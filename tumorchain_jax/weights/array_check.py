"""Check found arrays against the expected names and shapes."""

from collections.abc import Mapping
from typing import Any

from tumorchain_jax.core.errors import InputError

Shapes = Mapping[str, Any]
"""By name: a shape, or what else an array must be."""


def check_shapes(source: object, found: Shapes, expected: Shapes, hint: str) -> None:
    """Refuse other arrays, or arrays of other shapes.

    Raises:
        InputError: it names the first of them.
    """
    if found == expected:
        return
    paths = sorted(found.keys() | expected.keys())
    path = next(path for path in paths if expected.get(path) != found.get(path))
    missing = "no such array"
    raise InputError(
        source, path[:100], str(found.get(path, missing)), str(expected.get(path, missing)), hint
    )
