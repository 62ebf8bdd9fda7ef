"""Question files of DeepTumorVQA: version 1 (CSV) and version 2 (JSON, JSON lines), one record."""

import csv
import hashlib
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.json_fields import Fields
from tumorchain_jax.data.json_lines import parse_json, parse_line
from tumorchain_jax.evaluation.deeptumorvqa.consistent import (
    HINT,
    check_answer,
    check_image_id,
    check_options,
    check_type,
)
from tumorchain_jax.evaluation.deeptumorvqa.fixed import Format
from tumorchain_jax.evaluation.deeptumorvqa.subtypes import Subtype, key, subtype_named
from tumorchain_jax.weights.seeds import Seeds, read_seeds

Version = Literal["v1", "v2"]
VERSIONS: tuple[Version, ...] = ("v1", "v2")
LETTERS = "ABCDE"
FEWEST_OPTIONS = 2
_OPTION = re.compile(rf"\b([{LETTERS}]): ?")
# A record's field -> its names in the files, as `key` writes them.
_NAMES = {
    "qid": ("qid", "question id"),
    "image_id": ("image id",),
    "question": ("question",),
    "answer": ("answer",),
    "mc_question": ("mc question", "multiple choice question"),
    "correct_option": ("correct option",),
    "type": ("question type",),
    "subtype": ("question subtype",),
}
_OPTIONAL = ("organ", "lesion", "spacing", "shape", "sex", "age", "scanner", "contrast", "split")
_HINT = "take the question file as it was published"
_SIXTH = re.compile(r"\bF: ?")


@dataclass(frozen=True)
class Question:
    """One question.

    Attributes:
        qid, image_id, question, answer, mc_question: as in the file.
        options: letter -> text, as written into `mc_question`.
        correct_option: the letter of the right one.
        subtype: one of the 42.
        facts: organ, lesion, spacing, shape, sex, age, ..., where the file has them.
    """

    qid: str
    image_id: str
    question: str
    answer: str
    mc_question: str
    options: Mapping[str, str]
    correct_option: str
    subtype: Subtype
    facts: Mapping[str, str]

    def truth(self, form: Format) -> str:
        """Return the right letter or the answer's text."""
        return self.correct_option if form == "mc" else self.answer


@dataclass(frozen=True)
class QuestionFile:
    """The questions of a file.

    Attributes:
        name, sha256: of the file.
        version: of the benchmark.
        synthetic: what is synthetic about it; "" for the published files.
        seeds: first seed and number of its digital patients; None for the published files.
        questions: in the order of the file.
    """

    name: str
    sha256: str
    version: Version
    synthetic: str
    seeds: Seeds | None
    questions: tuple[Question, ...]

    @property
    def images(self) -> list[str]:
        """The CTs that are asked about, in the order of the file."""
        return list(dict.fromkeys(question.image_id for question in self.questions))


def read_questions(path: Path, version: Version | None = None) -> QuestionFile:
    """Read a question file; a `.csv` is of version 1 and JSON of version 2 unless it says else.

    Args:
        version: what the file is of, where its form does not tell (v2's `train_qa.csv`).

    Raises:
        InputError: it is no question file, is cut short, or a record cannot be used.
    """
    data = read_bytes(path, "a question file")
    header: Mapping[str, Any] = {}
    if path.suffix.lower() == ".csv":
        rows, found = _csv_rows(path, data), "v1"
    elif path.suffix.lower() == ".jsonl":
        rows, found = _line_rows(path, data), "v2"
    else:
        header = _json_object(path, data)
        rows, found = _json_rows(path, header), "v2"
        stated = str(header.get("version", "2")).lstrip("v")[:1]
        if stated not in ("1", "2") or (version and "version" in header and version[1] != stated):
            expected = f"that of a file of {version}" if version else "1 or 2"
            raise InputError(path, "version", repr(header["version"]), expected, _HINT)
        found = f"v{stated}"
    sources: dict[str, str] = {}
    questions = []
    for source, row in rows:
        question = _question(source, row)
        if (first := sources.setdefault(question.qid, source)) != source:
            found = f"{question.qid} again, as in {first}"
            raise InputError(source, "qid", found, "each once", "remove one")
        questions.append(question)
    if not questions:
        raise InputError(path, "questions", "none", "one or more", _HINT)
    chosen: Version = version or ("v1" if found == "v1" else "v2")
    synthetic = header.get("synthetic", "")
    seeds = read_seeds(Fields(path, "", header), "seeds") if "seeds" in header else None
    return QuestionFile(
        path.name, hashlib.sha256(data).hexdigest(), chosen, str(synthetic), seeds, tuple(questions)
    )


def read_bytes(path: Path, what: str) -> bytes:
    """Read a whole file.

    Raises:
        InputError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        found = error.strerror or str(error)
        raise InputError(path, "path", found, what, "check the path") from error


def split_options(source: object, text: str) -> dict[str, str]:
    """Split the options off a multiple-choice question: `... A: Yes B: No`.

    Raises:
        InputError: they are fewer than two or more than five, out of order, empty or alike.
    """
    marks = list(_OPTION.finditer(text))
    starts = [number for number, mark in enumerate(marks) if mark[1] == "A"]
    run = marks[starts[-1] :] if starts else []
    letters = "".join(mark[1] for mark in run)

    def refuse(found: str) -> NoReturn:
        expected = "2 to 5 different options, from `A: ` on in order"
        raise InputError(source, "mc_question", found, expected, HINT)

    ends = [*(mark.start() for mark in run), len(text)][1:]
    texts = [text[mark.end() : end].strip() for mark, end in zip(run, ends, strict=True)]
    if len(run) < FEWEST_OPTIONS or letters != LETTERS[: len(run)] or not all(texts):
        refuse(f"{len(run)} ({', '.join(letters) or 'none'}) in {text[-80:]!r}")
    if len(run) == len(LETTERS) and _SIXTH.search(texts[-1]):
        refuse(f"a sixth, F, in {text[-80:]!r}")
    first: dict[str, str] = {}
    for letter, each in zip(letters, texts, strict=True):
        if (other := first.setdefault(" ".join(each.casefold().split()), letter)) != letter:
            refuse(f"options {other} and {letter}, both {each!r}")
    return dict(zip(letters, texts, strict=True))


def _csv_rows(path: Path, data: bytes) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        reader = csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True)
        for row in reader:
            source = f"{path}:{reader.line_num}"
            if None in row or None in row.values():
                found, expected = "another number of fields", f"{len(reader.fieldnames or ())}"
                raise InputError(source, "fields", found, expected, _HINT)
            yield source, row
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(path, "CSV", str(error), "a whole CSV file in UTF-8", _HINT) from error


def _line_rows(path: Path, data: bytes) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, line in enumerate(data.splitlines(), 1):
        if line.strip():
            yield f"{path}:{number}", parse_line(line, f"{path}:{number}", unique=True, hint=_HINT)


def _json_object(path: Path, data: bytes) -> Mapping[str, Any]:
    try:
        values = parse_json(data)
    except (ValueError, RecursionError) as error:
        found = str(error)[:200]
        raise InputError(path, "JSON", found, "a whole file of JSON", _HINT) from error
    if isinstance(values, list):
        values = {"questions": values}
    if not isinstance(values, dict) or not isinstance(values.get("questions"), list):
        raise InputError(path, "questions", "no such list", "a list of questions", _HINT)
    return values


def _json_rows(path: Path, values: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    rows = values["questions"]
    stated = values.get("num_questions", len(rows))
    if stated != len(rows):
        raise InputError(path, "num_questions", f"{len(rows)} questions", str(stated), _HINT)
    for number, row in enumerate(rows):
        source = f"{path}[{number}]"
        if not isinstance(row, dict):
            raise InputError(source, "question", repr(row)[:80], "an object", _HINT)
        yield source, row


def _question(source: str, row: Mapping[str, Any]) -> Question:
    by_key = {key(str(name)): value for name, value in row.items()}
    values = {field: _text(source, by_key, field, names) for field, names in _NAMES.items()}
    subtype = subtype_named(values["subtype"])
    if subtype is None:
        expected = "one of the 42 subtypes (evaluation/deeptumorvqa/README.md)"
        raise InputError(source, "question_subtype", repr(values["subtype"]), expected, _HINT)
    check_type(source, values["type"], subtype)
    check_image_id(source, values["image_id"])
    options = split_options(source, values["mc_question"])
    check_options(source, options, subtype.quantity)
    letter = values["correct_option"].strip().upper()
    if letter not in options:
        expected = f"one of {', '.join(options)}"
        raise InputError(source, "correct_option", repr(letter), expected, _HINT)
    check_answer(source, values["answer"], letter, options, subtype.quantity)
    facts = {name: str(by_key[name]) for name in _OPTIONAL if by_key.get(name) not in (None, "")}
    return Question(
        values["qid"],
        values["image_id"],
        values["question"],
        values["answer"],
        values["mc_question"],
        options,
        letter,
        subtype,
        facts,
    )


def _text(source: str, row: Mapping[str, Any], field: str, names: Sequence[str]) -> str:
    for name in names:
        value = row.get(name)
        plain = isinstance(value, str | int | float) and not isinstance(value, bool)
        # An answer may be empty: its record is then at fault, and is counted as such.
        if plain and (str(value).strip() or field == "answer"):
            return str(value)
    given = [row[name] for name in names if name in row]
    found = f"{list(row)[:4]}" if not given else repr(given[0])[:80]
    raise InputError(source, field, found, "some text", _HINT)
