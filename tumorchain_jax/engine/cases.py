"""The list of cases that the engine works on, checked as a whole before anything runs.

JSON lines in UTF-8, one case each; paths start from the list's own folder and stay in it:

    {"case": "a-17", "patient": "P-17", "scans": ["a-17"], "radiology": ["a-17/report.txt"],
     "pathology": ["a-17/pathology.txt"], "language": "en", "sex": "female", "age": 64}

`pathology`, `language`, `sex` and `age` may be left out. A report is a text file in UTF-8, with or
without a byte order mark. `masks` may name the file that `tumorchain engine masks` wrote of the
first scan.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.json_lines import LineFields, parse_line
from tumorchain_jax.engine.case import Case, Document
from tumorchain_jax.engine.facts import Fact, SourceKind
from tumorchain_jax.engine.measurements import read_measurements

MOST_BYTES = 4_000_000
"""Of a report; one of a megabyte is read, a file that cannot be a report is refused."""
LONGEST_NAME = 200
OLDEST = 120
KINDS: tuple[SourceKind, ...] = ("radiology", "pathology")
FIELDS = ("case", "patient", "scans", *KINDS, "language", "sex", "age", "masks")
SHOWN = 5
"""Problems that an error names by their place."""
_HINT = "fix the line; engine/README.md shows one"
_ENCODING = "save it as UTF-8, for example with `iconv -f LATIN1 -t UTF-8`"
_MARKS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


@dataclass(frozen=True)
class Report:
    """A report on disk.

    Attributes:
        kind: `radiology` or `pathology`.
        path: of the file.
        sha256: of its text, see `Document`.
    """

    kind: SourceKind
    path: Path
    sha256: str

    def read(self, language: str) -> Document:
        """Read it again.

        Raises:
            InputError: it cannot be read, or is another text than it was.
        """
        document = Document(self.kind, read_text(self.path), language)
        if document.sha256 != self.sha256:
            found, expected = "another text than when the run began", "the same text"
            raise InputError(self.path, "report", found, expected, "rerun the same command")
        return document


@dataclass(frozen=True)
class ListedCase:
    """A case of the list; its reports stay on disk.

    Attributes:
        id, patient, scans, sex, age: see `Case`.
        language: of all its reports.
        reports: in the order of the list, radiology first.
        masks: file of measurements and its SHA-256, if there is one.
    """

    id: str
    patient: str
    scans: tuple[str, ...]
    reports: tuple[Report, ...]
    language: str = ""
    sex: str = ""
    age: int | None = None
    masks: tuple[Path, str] | None = None

    @property
    def digest(self) -> str:
        """Hash of all that the list and the reports say, whatever the files' names are."""
        reports = [(report.kind, report.sha256) for report in self.reports]
        facts = [
            self.id, self.patient, self.scans, reports, self.language, self.sex, self.age,
            self.masks[1] if self.masks else "",
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    def read(self) -> Case:
        """Read the case with its reports.

        Raises:
            InputError: as `Report.read`.
        """
        documents = tuple(report.read(self.language) for report in self.reports)
        return Case(
            self.id, self.patient, self.scans, documents, self._measured(), self.sex, self.age
        )

    def _measured(self) -> tuple[Fact, ...]:
        if self.masks is None:
            return ()
        path, expected = self.masks
        facts, sha256 = read_measurements(path, self.id)
        if sha256 != expected:
            found, hint = "other facts than when the run began", "rerun the same command"
            raise InputError(path, "masks", found, "the same facts", hint)
        return facts


def read_cases(path: Path) -> list[ListedCase]:
    """Read and check a list of cases and all their reports, sorted by the cases' ids.

    Raises:
        InputError: the list cannot be read; or there are problems in it, of which the error names
            the first, and the places of some others.
    """
    cases, problems = check_cases(path)
    if problems:
        raise _first_of(problems)
    if not cases:
        raise InputError(path, "cases", "none", "a line for each case", _HINT)
    return cases


def check_cases(path: Path) -> tuple[list[ListedCase], list[InputError]]:
    """Read a list of cases, and collect all problems in it.

    Raises:
        InputError: the list itself cannot be read.
    """
    root = path.absolute().parent.resolve()
    problems: list[InputError] = []
    cases: list[ListedCase] = []
    uses = _Uses()
    for where, line in _lines(path):
        if isinstance(line, InputError):
            problems.append(line)
            continue
        try:
            values = parse_line(line, where, unique=True, hint=_HINT)
            case = _case(LineFields(where, values, hint=_HINT), root)
            uses.note(where, case)
        except InputError as error:
            problems.append(error)
        else:
            cases.append(case)
    cases.sort(key=lambda case: case.id)
    return cases, problems


def read_text(path: Path) -> str:
    """Read a report.

    Raises:
        InputError: it is no regular file, too large, not UTF-8, empty, or holds NUL characters.
    """

    def refuse(field: str, found: str, expected: str, hint: str) -> NoReturn:
        raise InputError(path, field, found, expected, hint)

    try:
        if not path.is_file():
            found = "a folder" if path.is_dir() else "no regular file"
            refuse("report", found, "a text file", "check the path")
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        refuse("report", f"{error.strerror}", "a text file", "check the path")
    if len(content) > MOST_BYTES:
        size = f"{path.stat().st_size:,} bytes"
        refuse("report", size, f"at most {MOST_BYTES:,}", "check that it is one report")
    text = _decode(content, path)
    if "\0" in text:
        found = f"a NUL character at {text.index(chr(0))}"
        refuse("text", found, "text", "check the file; its encoding may not be UTF-8")
    if not text.strip():
        refuse("report", "no text", "a report", "complete it, or leave it out of the list")
    return text


def _decode(content: bytes, source: object) -> str:
    if mark := _MARKS.get(content[:2]):
        hint = f"save it as UTF-8, for example with `iconv -f {mark} -t UTF-8`"
        raise InputError(source, "encoding", mark, "UTF-8", hint)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        found = f"byte 0x{content[error.start]:02x} at {error.start}, which is not UTF-8"
        raise InputError(source, "encoding", found, "UTF-8", _ENCODING) from error


def _lines(path: Path) -> Iterator[tuple[str, str | InputError]]:
    """Yield `FILE:LINE` and the line, or what is wrong with its encoding; skip empty lines."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                where = f"{path}:{number}"
                if number == 1 and line[:2] in _MARKS:
                    _decode(line, path)
                try:
                    text = _decode(line, where) if number == 1 else line.decode()
                except UnicodeDecodeError:
                    found = "bytes that are not UTF-8"
                    yield where, InputError(where, "encoding", found, "UTF-8", _ENCODING)
                except InputError as error:
                    yield where, error
                else:
                    if text.strip():
                        yield where, text
    except OSError as error:
        expected = "a list of cases as JSON lines"
        raise InputError(path, "path", f"{error.strerror}", expected, "check the path") from error


def _case(fields: LineFields, root: Path) -> ListedCase:
    fields.check_known(FIELDS)
    id = _name(fields, "case", fields.text("case", filled=True))
    patient = _name(fields, "patient", fields.text("patient", filled=True))
    scans = tuple(_name(fields, "scans", name) for name in _texts(fields, "scans"))
    if not scans:
        fields.refuse("scans", "one or more names of scans")
    paths = {kind: _texts(fields, kind) for kind in KINDS}
    if not paths["radiology"]:
        hint = "name its report; without one there is nothing to reason from"
        fields.refuse("radiology", "one or more paths of reports", hint)
    reports = [_report(fields, kind, path, root) for kind in KINDS for path in paths[kind]]
    language = fields.text("language", "")
    if language and not (2 <= len(language) <= 8 and language.replace("-", "").isalpha()):
        fields.refuse("language", "a code such as en or de", _HINT)
    sex = fields.values.get("sex") or ""
    if sex not in ("", "female", "male"):
        fields.refuse("sex", "female or male; leave it out where it is unknown", _HINT)
    age = fields.values.get("age")
    if age is not None and not (type(age) is int and 0 <= age <= OLDEST):
        fields.refuse("age", f"a whole number of years, 0 to {OLDEST}", _HINT)
    masks = None
    if "masks" in fields.values:
        path = _inside(fields, "masks", fields.path("masks"), root)
        masks = path, read_measurements(path, id)[1]
    return ListedCase(id, patient, scans, tuple(reports), language, sex, age, masks)


def _texts(fields: LineFields, name: str) -> Sequence[str]:
    """Read a list of different filled texts; empty where it is left out."""
    value: Any = fields.values.get(name, [])
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        fields.refuse(name, 'a list of texts, as ["a-17"]', _HINT)
    texts = [LineFields(fields.source, {name: each}, hint=_HINT).path(name) for each in value]
    if len(set(texts)) < len(texts):
        fields.refuse(name, "each once", _HINT)
    return texts


def _name(fields: LineFields, field: str, name: str) -> str:
    if len(name) > LONGEST_NAME or not name.isprintable() or name != name.strip():
        expected = f"at most {LONGEST_NAME} printable characters, without spaces around"
        LineFields(fields.source, {field: name}).refuse(field, expected, _HINT)
    if field == "scans" and (".." in Path(name).parts or Path(name).is_absolute()):
        expected = "a name below the folder of scans"
        LineFields(fields.source, {field: name}).refuse(field, expected, _HINT)
    return name


def _inside(fields: LineFields, field: str, name: str, root: Path) -> Path:
    """Find a file that a line names in the folder of the list."""

    def refuse(found: str, expected: str, hint: str) -> NoReturn:
        raise InputError(fields.source, field, f"{name!r}, {found}", expected, hint)

    inside = "a file in the folder of the list"
    if Path(name).is_absolute():
        refuse("an absolute path", "a path from the list's folder", "move the list beside it")
    try:
        path = (root / name).resolve(strict=True)
    except (OSError, RuntimeError) as error:  # Python 3.11 raises the latter for a circle of links
        found = getattr(error, "strerror", None) or "a circle of links"
        refuse(found.lower(), inside, "check the path")
    if not path.is_relative_to(root):
        refuse("which leads out of the list's folder", inside, "copy it into it")
    return path


def _report(fields: LineFields, kind: SourceKind, name: str, root: Path) -> Report:
    path = _inside(fields, kind, name, root)
    try:
        text = read_text(path)
    except InputError as error:
        raise InputError(
            fields.source, kind, f"{name!r}: {error.found}", error.expected, error.hint
        ) from error
    return Report(kind, path, Document(kind, text).sha256)


class _Uses:
    """What lines before have used, each of which belongs to one case or patient alone."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, str], tuple[str, str]] = {}

    def note(self, where: str, case: ListedCase) -> None:
        """Refuse a case, a scan, or a report's file of a line before."""
        self._own("case", case.id, where, "")
        for scan in case.scans:
            self._own("scans", scan, where, "")
        for report in case.reports:
            self._own(report.kind, str(report.path), where, case.patient)
        if case.sex:
            earlier, sex = self._first.setdefault(("sex", case.patient), (where, case.sex))
            if sex != case.sex:
                expected = f"{sex}, as of the same patient in {earlier}"
                raise InputError(where, "sex", case.sex, expected, "fix one of them")

    def _own(self, field: str, value: str, where: str, owner: str) -> None:
        earlier, other = self._first.setdefault((field, value), (where, owner))
        if earlier != where and not (owner and owner == other):
            name = Path(value).name if owner else value
            found, hint = f"{name!r} of {earlier} again", "give each its own"
            raise InputError(where, field, found, "one case that has it", hint)


def _first_of(problems: Sequence[InputError]) -> InputError:
    """Return the first problem, with the places of some others."""
    first, *others = problems
    if not others:
        return first
    places = [f"{error.subject} ({error.field})" for error in others[:SHOWN]]
    more = len(others) - len(places)
    told = ", ".join(places) + (f" and {more} more" if more else "")
    hint = f"{first.hint}; also wrong: {told}; `tumorchain engine plan` lists all"
    return InputError(first.subject, first.field, first.found, first.expected, hint)
