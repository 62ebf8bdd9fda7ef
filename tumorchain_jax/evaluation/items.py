"""One question, its answer and the judgement on it, as JSON lines: `items.jsonl`."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from math import inf
from pathlib import Path
from typing import Any

from tumorchain_jax.anatomy.organs import ORGANS, labels_named
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.json_lines import parse_line
from tumorchain_jax.data.schema import SUBTASKS, Record
from tumorchain_jax.evaluation.answers import judge
from tumorchain_jax.reasoning.answer_values import plain
from tumorchain_jax.report.verdict import Verdict

Key = tuple[str, int, str, str, tuple[str, ...], str]
"""Patient, scan, subtask, question, choices, truth."""


@dataclass(frozen=True)
class Item:
    """One question, its answer and the judgement.

    Attributes:
        patient, task, subtask, question, choices: of the record.
        organ: the organ (Table 10) that the question or else its truth names, "" for none.
        truth: as `judge` reads it.
        answer: all the text of the model's last round.
        parsed: what `judge` read in it, "" if nothing (unparsed).
        right: whether that is the truth.
        text_only_right: the same for the answer about a mismatched image; None if not asked.
        log_probability: of the conclusion's tokens; None without a conclusion.
        confidence: calibrated; None where there is none.
        withheld: why a report gives no answer in its headline; "" if it does.
        tumour_mm: diameter of the patient's largest tumour; None without one, or where sizes are
            not compared.
        chain: all rounds of the model's chain; "" where it was not kept.
        reference: the record's own chain; "" where it was not kept.
        scan: index of the record's scan; a patient may have several.
    """

    patient: str
    task: str
    subtask: str
    organ: str
    question: str
    choices: tuple[str, ...]
    truth: str
    answer: str
    parsed: str
    right: bool
    text_only_right: bool | None = None
    log_probability: float | None = None
    confidence: float | None = None
    withheld: str = ""
    tumour_mm: float | None = None
    chain: str = ""
    reference: str = ""
    scan: int = 0

    @property
    def key(self) -> Key:
        """Tells which question to which scan it is; a file has each once."""
        return self.patient, self.scan, self.subtask, self.question, self.choices, self.truth

    def values(self) -> dict[str, Any]:
        """Return plain values; the last four only where there are any."""
        values = asdict(self)
        for name in ("tumour_mm", "chain", "reference", "scan"):
            if values[name] in (None, "", 0):
                del values[name]
        return values


def make_item(
    record: Record,
    answer: str,
    text_only: str | None = None,
    verdict: Verdict | None = None,
    chain: str = "",
) -> Item:
    """Judge an answer to a record, and the one about a mismatched image if there is one.

    Args:
        verdict: on the answer, if it was judged without the truth as well.
        chain: all rounds, if they are to be judged later.

    Raises:
        InputError: the record's own answer cannot be read.
    """
    judgement = judge(record, answer)
    named = {label for mention in labels_named(record.answer) for label in mention.labels}
    organ = record.organ or (named.pop() if len(named) == 1 else 0)
    return Item(
        record.patient,
        record.task,
        record.subtask,
        ORGANS[organ] if organ else "",
        record.question,
        record.choices,
        judgement.truth,
        answer,
        judgement.parsed,
        judgement.right,
        None if text_only is None else judge(record, text_only).right,
        verdict.confidence.log_probability if verdict else None,
        verdict.confidence.value if verdict else None,
        verdict.reason if verdict else "",
        chain=chain,
        reference=record.reasoning if chain else "",
        scan=record.scan,
    )


def json_lines(items: Sequence[Item]) -> str:
    """Format items as JSON lines."""
    return "".join(json.dumps(item.values()) + "\n" for item in items)


def read_items(path: Path) -> list[Item]:
    """Read a file of `json_lines`.

    Raises:
        InputError: there is no such file, a line is no item, or one asks what another asks.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        expected, hint = "the items.jsonl of `tumorchain evaluate -o`", "check the path"
        raise InputError(path, "path", error.strerror or str(error), expected, hint) from error
    items = [_item(line, f"{path}:{number}") for number, line in enumerate(lines, 1)]
    check_once(path, [item.key for item in items])
    return items


def check_once(path: Path, keys: Sequence[Key]) -> None:
    """Refuse a file that asks a question about a scan twice.

    Args:
        keys: `Item.key` of each line.

    Raises:
        InputError: it does; the line and the one before are named.
    """
    first: dict[Key, int] = {}
    for number, key in enumerate(keys, 1):
        if (before := first.setdefault(key, number)) != number:
            patient, _, _, question, *_ = key
            found = f"that of line {before} again ({patient}: {question})"
            hint = "remove one of the two lines"
            raise InputError(f"{path}:{number}", "question", found, "each once", hint)


_HINT = "take items.jsonl as `tumorchain evaluate` wrote it"
_OTHER_TYPES = {
    "choices": (tuple, "texts"),
    "right": (bool, "true or false"),
    "text_only_right": (bool | None, "true, false or null"),
    "tumour_mm": (float | None, "a number of mm, or null"),
    "log_probability": (float | None, "a number or null"),
    "confidence": (float | None, "a number or null"),
    "scan": (int, "a whole number"),
}


def _item(line: bytes, source: str) -> Item:
    return item_of(parse_line(line, source, unique=True, hint=_HINT), source)


def item_of(values: Any, source: str) -> Item:
    """Make an item from plain values, checked.

    Args:
        source: where the values were found, for the error.

    Raises:
        InputError: a value is missing or cannot be.
    """
    try:
        item = Item(**{**values, "choices": tuple(values["choices"])})
    except (KeyError, TypeError) as error:
        names = {field.name for field in fields(Item)}
        odd = ", ".join(sorted(set(values) - names)) if isinstance(values, dict) else ""
        found = f"unknown fields: {odd}" if odd else str(error)
        expected = "a question with its answer, as `Item` has them"
        raise InputError(source, "item", found, expected, _HINT) from error
    for name, value in vars(item).items():
        kind, expected = _OTHER_TYPES.get(name, (str, "text"))
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise _refusal(source, name, value, expected)
    for name, (value, least, most) in {
        "confidence": (item.confidence, 0.0, 1.0),
        "log_probability": (item.log_probability, -inf, 0.0),
        "tumour_mm": (item.tumour_mm, 0.0, inf),
        "scan": (item.scan, 0, inf),
    }.items():
        if value is not None and not least <= value <= most:
            raise _refusal(source, name, value, f"a number from {least:g} to {most:g}")
    for name in ("patient", "question", "truth"):
        if not getattr(item, name).strip():
            raise _refusal(source, name, getattr(item, name), "some text")
    if {type(choice) for choice in item.choices} - {str}:
        raise _refusal(source, "choices", item.choices, "texts")
    if len(set(map(plain, item.choices))) < len(item.choices):
        raise _refusal(source, "choices", item.choices, "different texts")
    if item.choices and item.truth not in map(plain, item.choices):
        raise _refusal(source, "truth", item.truth, "one of the choices")
    if item.right != (item.parsed == item.truth):
        expected = f"whether {item.parsed!r} is the truth, {item.truth!r}"
        raise _refusal(source, "right", item.right, expected)
    if item.subtask not in SUBTASKS.get(item.task, ()):
        raise _refusal(source, "subtask", f"{item.task}/{item.subtask}", "one of Table 1")
    if item.organ not in ("", *ORGANS):
        raise _refusal(source, "organ", item.organ, "an organ of Table 10, or none")
    return item


def _refusal(source: str, field: str, found: object, expected: str) -> InputError:
    return InputError(source, field, repr(found), expected, _HINT)
