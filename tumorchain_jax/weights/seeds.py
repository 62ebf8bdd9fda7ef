"""Ranges of seeds of digital patients, so that no patient serves two purposes."""

from typing import TypeAlias

from tumorchain_jax.core.json_fields import Fields

Seeds: TypeAlias = tuple[int, int]
"""First seed and number of consecutive seeds."""


def overlap(a: Seeds | None, b: Seeds | None) -> bool:
    """Whether two ranges of seeds share one; None shares none."""
    return a is not None and b is not None and a[0] < b[0] + b[1] and b[0] < a[0] + a[1]


def shown(seeds: Seeds) -> str:
    """Format a range of seeds as `first to last`."""
    return f"{seeds[0]} to {seeds[0] + seeds[1] - 1}"


def read_seeds(fields: Fields, name: str) -> Seeds | None:
    """Read a range of seeds, or null.

    Raises:
        InputError: it is neither.
    """
    values = fields.anything(name)
    if values is None:
        return None
    whole = isinstance(values, list) and len(values) == 2 and {*map(type, values)} == {int}
    if not whole or values[0] < 0 or values[1] < 1:
        fields.refuse(name, "the first seed and their number")
    return values[0], values[1]
