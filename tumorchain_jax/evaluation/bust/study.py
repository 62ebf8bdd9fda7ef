"""A reading study: its cases, readers and lexicon, named by one hash; and the readers' files.

STUDY/study.json           who reads what, in which order; the hash that every file carries
STUDY/reading-NAME.html    a reader's page, see `page.py`
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.json_fields import read_json
from tumorchain_jax.data.json_lines import parse_line
from tumorchain_jax.ultrasound.lexicon import HINT, Lexicon

FORMAT = 1
FILE = "study.json"
Reading = Mapping[str, Any]
MOST_BYTES = 50_000_000
"""Of a reader's file."""


@dataclass(frozen=True)
class Study:
    """Who reads what.

    Attributes:
        cases: names of the cases.
        readers: names of the readers.
        arbiter: name of the one who decides where readers differ.
        seed: of each reader's order of the cases.
        lexicon: hash of the lexicon's file.
    """

    cases: tuple[str, ...]
    readers: tuple[str, ...]
    arbiter: str
    seed: int
    lexicon: str

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits; reader files name the study by it."""
        content = json.dumps([sorted(self.cases), self.seed, self.lexicon])
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def order(self, reader: str) -> list[str]:
        """The cases in the random order of a reader."""

        def rank(case: str) -> bytes:
            return hashlib.sha256(f"{self.seed} {reader} {case}".encode()).digest()

        return sorted(self.cases, key=rank)


def check_names(readers: Sequence[str], arbiter: str) -> None:
    """Refuse names that no file can have, one name for two, or fewer than two readers.

    Raises:
        InputError: they are not usable.
    """
    for name in (*readers, arbiter):
        if not (name.isalnum() and name.isascii() and len(name) <= 40):
            expected = "letters and digits"
            raise InputError("command line", "--readers", repr(name), expected, "change it")
    if len({name.casefold() for name in (*readers, arbiter)}) < len(readers) + 1:
        found = " ".join((*readers, arbiter))
        raise InputError("command line", "--readers", found, "different names", "change one")
    if len(readers) < 2:
        raise InputError("command line", "--readers", str(len(readers)), "two or more", "add one")


def study_json(study: Study) -> bytes:
    """The content of `study.json`."""
    values = {"format": FORMAT, "digest": study.digest, **study.__dict__}
    return (json.dumps(values, indent=1) + "\n").encode()


def read_study(folder: Path) -> Study:
    """Read `study.json`.

    Raises:
        InputError: there is none, or it is not as it was written.
    """
    path = folder / FILE
    values = read_json(path)
    hint = "make the study again with `tumorchain bust pages`"
    try:
        study = Study(
            tuple(map(str, values["cases"])), tuple(map(str, values["readers"])),
            str(values["arbiter"]), int(values["seed"]), str(values["lexicon"]),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(path, "study", str(error)[:80], "a reading study", hint) from error
    if values.get("digest") != study.digest:
        found = str(values.get("digest"))[:40]
        raise InputError(path, "digest", found, f"{study.digest}, as its cases have it", hint)
    return study


def file_json(study: Study, reader: str, readings: Mapping[str, Reading]) -> bytes:
    """A reader's file, as the page writes it."""
    values = {"format": FORMAT, "study": study.digest, "reader": reader, "readings": readings}
    return (json.dumps(values, indent=1) + "\n").encode()


def read_file(path: Path, study: Study) -> tuple[str, dict[str, dict[str, Any]]]:
    """Read the file of a reader or of the arbiter; the readings themselves are not checked yet.

    Returns:
        who read, and case -> reading with `at`, its time.

    Raises:
        InputError: it is no such file, is of another study or of other cases, or has two readings
            of one case.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(path, "path", str(error.strerror), "a reader's file", HINT) from error
    if len(content) > MOST_BYTES:
        expected = f"at most {MOST_BYTES:,}"
        raise InputError(path, "bytes", f"{len(content):,}", expected, HINT)
    try:
        values = parse_line(content, path, unique=True, hint=HINT)
    except InputError as error:
        expected = "a reader's file, each case once"
        raise InputError(path, "JSON", error.found, expected, HINT) from error

    def refuse(field: str, found: object, expected: str) -> InputError:
        return InputError(path, field, repr(found)[:80], expected, HINT)

    if values.get("format") != FORMAT:
        raise refuse("format", values.get("format"), str(FORMAT))
    if values.get("study") != study.digest:
        raise refuse("study", values.get("study"), f"{study.digest}, this study")
    reader, readings = values.get("reader"), values.get("readings")
    if reader not in (*study.readers, study.arbiter):
        expected = f"one of {', '.join((*study.readers, study.arbiter))}"
        raise refuse("reader", reader, expected)
    if not isinstance(readings, dict):
        raise refuse("readings", readings, "readings by case")
    for case, reading in readings.items():
        if case not in study.cases:
            raise refuse("readings", case, "cases of this study")
        if not isinstance(reading, dict) or type(reading.get("at")) is not int:
            raise refuse(f"readings.{case}", reading, "an object with `at`, its time")
    return str(reader), readings


def read_readers(
    paths: Sequence[Path], study: Study, lexicon: Lexicon
) -> dict[str, dict[str, Reading]]:
    """Read every reader's file, each complete and by the lexicon.

    Returns:
        reader -> case -> reading, without its time.

    Raises:
        InputError: as `read_file`; a case is not read, a reading is incomplete or has unknown
            values, a reader has two files or none.
    """
    found: dict[str, dict[str, Reading]] = {}
    for path in paths:
        reader, readings = read_file(path, study)
        if reader == study.arbiter:
            hint = "hand it in by --arbiter"
            raise InputError(path, "reader", f"{reader}, the arbiter", "a reader", hint)
        if reader in found:
            raise InputError(path, "reader", f"a second file of {reader}", "one each", HINT)
        if missing := sorted(set(study.cases) - set(readings)):
            what = f"{len(readings)} of {len(study.cases)} cases; {missing[0]} is missing"
            raise InputError(path, "readings", what, "every case read", "finish the page")
        plain: dict[str, Reading] = {
            case: _timeless(each) for case, each in sorted(readings.items())
        }
        for case, reading in plain.items():
            lexicon.check(reading, path, f"readings.{case}")
        found[reader] = plain
    if absent := [name for name in study.readers if name not in found]:
        expected = f"a file of each of {', '.join(study.readers)}"
        raise InputError("command line", "--files", f"none of {absent[0]}", expected, "add it")
    return {reader: found[reader] for reader in study.readers}


def _timeless(reading: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in reading.items() if name != "at"}
