"""Whether the arrays that were found are the arrays that were expected."""

from collections.abc import Mapping

from tumorchain_jax.core.errors import InputError

Shapes = Mapping[str, tuple[int, ...]]
"""By path."""


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
        source, path, str(found.get(path, missing)), str(expected.get(path, missing)), hint
    )
