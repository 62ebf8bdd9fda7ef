"""Misspelt words of a report put right where one known word is one slip away."""

from collections.abc import Iterable


def corrections(text: str) -> dict[str, str]:
    """Return misspelt word -> word."""
    return {}
