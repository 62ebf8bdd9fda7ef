"""Validated access to the fields of a JSON object; a wrong one is refused by its name."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tumorchain_jax.core.errors import InputError

LARGEST = 1_000_000


def read_json(path: Path, hint: str = "complete the folder") -> dict[str, Any]:
    """Read a JSON object.

    Args:
        hint: of an error.

    Raises:
        InputError: it cannot be read, or is something else.
    """
    try:
        values = json.loads(path.read_bytes())
        if not isinstance(values, dict):
            raise ValueError(f"a {type(values).__name__}")
    except OSError as error:
        found = error.strerror or str(error)
        raise InputError(path, "path", found, "a file of JSON", hint) from error
    except (ValueError, RecursionError) as error:
        raise InputError(path, "JSON", str(error)[:200], "an object", hint) from error
    return values


@dataclass(frozen=True)
class Fields:
    """A JSON object in a file.

    Attributes:
        path: of the file, for errors.
        where: path of the object in the file, `configurations.3d_fullres.`; empty for the whole.
        values: the object.
    """

    path: Path
    where: str
    values: Mapping[str, Any]

    def refuse(self, name: str, expected: str, hint: str = "it cannot be run here") -> NoReturn:
        """Raise an InputError about a field."""
        found = repr(self.values[name])[:200] if name in self.values else "no such field"
        raise InputError(self.path, self.where + name, found, expected, hint)

    def anything(self, name: str) -> Any:
        """Return a field's value, of any kind."""
        if name not in self.values:
            self.refuse(name, "one", "take the file from the model's own folder")
        return self.values[name]

    def mapping(self, name: str) -> "Fields":
        """Return a field that is an object."""
        value = self.anything(name)
        if not isinstance(value, dict):
            self.refuse(name, "an object")
        return Fields(self.path, f"{self.where}{name}.", value)

    def text(self, name: str) -> str:
        """Return a field that is a string."""
        value = self.anything(name)
        if not isinstance(value, str):
            self.refuse(name, "a string")
        return value

    def only(self, name: str, known: Collection[Any]) -> None:
        """Refuse a field with any other than the known values."""
        if self.anything(name) not in known:
            self.refuse(name, " or ".join(map(repr, known)))

    def sequence(self, name: str) -> list[Any]:
        """Return a field that is a list."""
        value = self.anything(name)
        if not isinstance(value, list):
            self.refuse(name, "a list")
        return value

    def integer(self, name: str, least: int = 0) -> int:
        """Return a field that is a whole number from `least` to a million."""
        value = self.anything(name)
        if not _is_integer(value, least):
            self.refuse(name, f"a whole number from {least} on")
        return value

    def integers(self, name: str, count: int, least: int = 0) -> tuple[int, ...]:
        """Return `count` whole numbers; a single one stands for all."""
        value = self.anything(name)
        numbers = [value] * count if type(value) is int else value
        if not _are_integers(numbers, count, least):
            self.refuse(name, f"{count} whole numbers from {least} on")
        return tuple(numbers)

    def size(self, name: str) -> tuple[int, int, int]:
        """Return three positive whole numbers, of a volume's axes."""
        d, h, w = self.integers(name, 3, least=1)
        return d, h, w

    def sizes(self, name: str, count: int) -> tuple[tuple[int, int, int], ...]:
        """Return `count` sizes; one number stands for three, or for all."""
        value = self.anything(name)
        rows: Any = [value] * count if type(value) is int else value
        if not isinstance(rows, list) or len(rows) != count:
            self.refuse(name, f"{count} sizes")
        rows = [[row] * 3 if type(row) is int else row for row in rows]
        if not all(_are_integers(row, 3, 1) for row in rows):
            self.refuse(name, f"{count} times three positive numbers")
        return tuple((d, h, w) for d, h, w in rows)

    def number(self, name: str) -> float:
        """Return a field that is a number."""
        value = self.anything(name)
        if not _is_number(value):
            self.refuse(name, "a number")
        return float(value)

    def numbers(self, name: str, count: int) -> tuple[float, ...]:
        """Return `count` numbers."""
        values = self.sequence(name)
        if len(values) != count or not all(map(_is_number, values)):
            self.refuse(name, f"{count} numbers")
        return tuple(map(float, values))


def _is_integer(value: Any, least: int) -> bool:
    return type(value) is int and least <= value <= LARGEST


def _are_integers(values: Any, count: int, least: int) -> bool:
    return (
        isinstance(values, list)
        and len(values) == count
        and all(_is_integer(value, least) for value in values)
    )


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and -LARGEST <= value <= LARGEST
