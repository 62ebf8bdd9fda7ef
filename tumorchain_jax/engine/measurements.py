"""Facts of masks on disk: one JSON object a line, as `tumorchain engine masks` writes them."""

import hashlib
from collections.abc import Iterable
from dataclasses import fields as fields_of
from dataclasses import replace
from pathlib import Path
from typing import Any

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import write_file
from tumorchain_jax.data.json_lines import parse_line
from tumorchain_jax.engine.facts import ATTRIBUTES, Fact, Source

_HINT = "make it again with `tumorchain engine masks`"
_FIXED = {"polarity": "present", "certainty": "definite", "time": "current"}


def write_measurements(path: Path, facts: Iterable[Fact]) -> None:
    """Write facts of masks; the file appears whole or not at all."""
    write_file(path, "".join(f"{fact.to_json()}\n" for fact in facts).encode())


def read_measurements(path: Path, case: str) -> tuple[tuple[Fact, ...], str]:
    """Read facts of masks as those of a case.

    Returns:
        The facts, and the SHA-256 of the file.

    Raises:
        InputError: it cannot be read, or a line is no fact of a mask.
    """
    try:
        content = path.read_bytes()
        lines = content.decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        found = getattr(error, "strerror", None) or "bytes that are not UTF-8"
        raise InputError(path, "masks", found, "facts of masks", _HINT) from error
    facts = tuple(_fact(line, f"{path}:{n}", case) for n, line in enumerate(lines, 1))
    return facts, hashlib.sha256(content).hexdigest()


def _fact(line: str, where: str, case: str) -> Fact:
    values: dict[str, Any] = dict(parse_line(line, where, unique=True, hint=_HINT))
    source = values.get("source")
    names = {field.name for field in fields_of(Fact)}
    parts = {field.name for field in fields_of(Source)}
    if values.keys() != names or not isinstance(source, dict) or source.keys() != parts:
        raise InputError(where, "fields", ", ".join(values), ", ".join(sorted(names)), _HINT)
    numbers = [values["lesion"], source["start"], source["end"]]
    texts = [v for k, v in (*values.items(), *source.items()) if k not in _NO_TEXT]
    sound = all(type(n) is int and n >= 0 for n in numbers) and all(
        isinstance(text, str) for text in texts
    )
    fixed = all(values[name] == value for name, value in _FIXED.items())
    if not sound or not fixed or source["kind"] != "mask" or values["attribute"] not in ATTRIBUTES:
        raise InputError(where, "fact", line[:80], "a fact of a mask", _HINT)
    return replace(Fact(**{**values, "source": Source(**source)}), case=case)


_NO_TEXT = frozenset({"lesion", "source", "start", "end"})
