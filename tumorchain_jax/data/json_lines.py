"""JSON lines files: one object on each line, each field checked, or refused by name."""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tumorchain_jax.anatomy.organs import ORGANS
from tumorchain_jax.core.errors import InputError

HINT = "fix the line; data/README.md shows one of each kind"
SHOWN = 80
"""Characters of a wrong value that an error shows."""


def read_lines(path: Path, hint: str = HINT) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yield `FILE:LINE`, the byte at which the line begins, and its object; skip empty lines.

    Args:
        hint: of an error about a line.

    Raises:
        InputError: the file cannot be read, or a line is no JSON object.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        found, expected = f"{error.strerror}", "a file of JSON lines"
        raise InputError(path, "path", found, expected, "check the path") from error
    offset = 0
    with file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield f"{path}:{number}", offset, parse_line(line, f"{path}:{number}", hint=hint)
            offset += len(line)


def parse_line(
    line: str | bytes, source: object, unique: bool = False, hint: str = HINT
) -> dict[str, Any]:
    """Parse a line that must be a JSON object.

    Args:
        source: what an error names.
        unique: refuse an object with a field twice, of which the last would count.
        hint: of an error.

    Raises:
        InputError: it is something else.
    """
    try:
        values = parse_json(line, unique)
    except (ValueError, RecursionError) as error:
        found = "too many nested brackets" if isinstance(error, RecursionError) else str(error)
        raise InputError(source, "JSON", found, "a JSON object on one line", hint) from error
    if not isinstance(values, dict):
        raise InputError(source, "JSON", _shown(values), "a JSON object on one line", hint)
    return values


def parse_json(text: str | bytes, unique: bool = True, finite: bool = True) -> Any:
    """Parse JSON.

    Args:
        unique: refuse an object with a field twice, of which the last would count.
        finite: refuse NaN and infinities, which JSON has not.

    Raises:
        ValueError: it is something else; too deep: RecursionError.
    """
    pairs = _without_twins if unique else None
    return json.loads(text, object_pairs_hook=pairs, parse_constant=_no_number if finite else None)


@dataclass(frozen=True)
class LineFields:
    """A JSON object of a line.

    Every reading method raises `InputError` for a value of another kind.

    Attributes:
        source: what errors name: a file and a line.
        values: the object.
        where: the object within the line, `rounds[0].`; empty for the line's own.
        hint: of errors that have none of their own.
    """

    source: object
    values: Mapping[str, Any]
    where: str = ""
    hint: str = HINT

    def refuse(self, name: str, expected: str, hint: str = "") -> NoReturn:
        """Raise an InputError about a field."""
        found = _shown(self.values[name]) if name in self.values else "no such field"
        raise InputError(self.source, self.where + name, found, expected, hint or self.hint)

    def check_known(self, names: Collection[str]) -> None:
        """Refuse fields other than `names`."""
        for name in sorted(set(self.values) - set(names)):
            found, expected = "an unknown field", f"only {', '.join(sorted(names))}"
            raise InputError(self.source, self.where + name, found, expected, self.hint)

    def text(self, name: str, default: str | None = None, filled: bool = False) -> str:
        """Read a string that UTF-8 can hold; `filled`: of more than white space."""
        value = self.values.get(name, default)
        if not _is_text(value) or (filled and not value.strip()):
            self.refuse(name, "some text" if filled else "text")
        return value

    def path(self, name: str) -> str:
        """Read a string that may be a path."""
        value = self.text(name, filled=True)
        if "\0" in value:
            self.refuse(name, "a path, which has no NUL byte")
        return value

    def one_of(self, name: str, known: Collection[str]) -> str:
        """Read one of a few strings."""
        value = self.text(name)
        if value not in known:
            self.refuse(name, f"one of {', '.join(known)}")
        return value

    def boolean(self, name: str) -> bool:
        """Read `true` or `false`; false where it is left out."""
        value = self.values.get(name, False)
        if type(value) is not bool:
            self.refuse(name, "true or false, without quotes")
        return value

    def integer(self, name: str) -> int:
        """Read a whole number from 0 on."""
        value = self.values.get(name)
        if type(value) is not int or value < 0:
            self.refuse(name, "a whole number from 0 on")
        return value

    def organ(self, name: str) -> int:
        """Read a merged label, given by number or name; 0 where it is left out."""
        label = _label(self.values.get(name, 0))
        if label is None:
            self.refuse(name, f"a label 0 to {len(ORGANS) - 1}, or its name in `tumorchain info`")
        return label

    def organs(self, name: str) -> tuple[int, ...]:
        """Read a list of different organs, as `organ` reads one; empty where it is left out."""
        value = self.values.get(name, [])
        labels = [_label(item) for item in value] if isinstance(value, list) else [None]
        found = tuple(label for label in labels if label)
        if len(set(found)) < len(labels):
            expected = f"a list of labels 1 to {len(ORGANS) - 1} or their names, each once"
            self.refuse(name, expected)
        return found

    def choices(self, name: str, most: int) -> tuple[str, ...]:
        """Read a list of different texts; empty where it is left out."""
        value = self.values.get(name, [])
        if not isinstance(value, list) or not all(map(_is_text, value)):
            self.refuse(name, "a list of texts")
        readings = {item.strip().casefold() for item in value}
        if "" in readings or len(readings) < len(value) or len(value) > most:
            self.refuse(name, f"at most {most} texts, none empty and none twice")
        return tuple(value)

    def objects(self, name: str, example: str) -> "list[LineFields]":
        """Read a list of one or more objects.

        Args:
            example: what one looks like, for errors.
        """
        value = self.values.get(name)
        if not isinstance(value, list) or not value or {type(item) for item in value} != {dict}:
            self.refuse(name, f"a list of one or more objects {example}")
        return [
            LineFields(self.source, item, f"{self.where}{name}[{number}].", self.hint)
            for number, item in enumerate(value)
        ]


def _no_number(name: str) -> float:
    raise ValueError(f"{name}, which is no number of JSON")


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} twice")
    return values


def _is_text(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(value.encode() or True)
    except UnicodeEncodeError:  # a lone surrogate
        return False


def _label(value: object) -> int | None:
    if isinstance(value, str):
        return ORGANS.index(value) if value in ORGANS else None
    return value if type(value) is int and 0 <= value < len(ORGANS) else None


def _shown(value: object) -> str:
    try:
        text = json.dumps(value)
    except RecursionError:
        text = "too many nested brackets"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
