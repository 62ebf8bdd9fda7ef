"""One question, its answer and the judgement on it, as JSON lines: `items.jsonl`."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from tumorchain_jax.anatomy.organs import ORGANS, labels_named
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.schema import SUBTASKS, Record
from tumorchain_jax.evaluation.answers import judge
from tumorchain_jax.report.verdict import Verdict


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

    def values(self) -> dict[str, Any]:
        """Return plain values; the last three only where there are any."""
        values = asdict(self)
        for name in ("tumour_mm", "chain", "reference"):
            if values[name] in (None, ""):
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
    )


def json_lines(items: Sequence[Item]) -> str:
    """Format items as JSON lines."""
    return "".join(json.dumps(item.values()) + "\n" for item in items)


def read_items(path: Path) -> list[Item]:
    """Read a file of `json_lines`.

    Raises:
        InputError: there is no such file, or a line is no item.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        expected = "a file of judged answers"
        raise InputError(path, "items", repr(error.strerror), expected, "evaluate first") from error
    return [_item(line, f"{path}[{number}]") for number, line in enumerate(lines, 1)]


_OTHER_TYPES = {
    "choices": (tuple, "texts"),
    "right": (bool, "true or false"),
    "text_only_right": (bool | None, "true, false or null"),
    "tumour_mm": (float | None, "a number of mm, or null"),
    "log_probability": (float | None, "a number or null"),
    "confidence": (float | None, "a number or null"),
}


def _item(line: bytes, source: str) -> Item:
    try:
        values = json.loads(line)
    except ValueError as error:
        raise _refusal(source, "item", str(error), "JSON") from error
    return item_of(values, source)


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
        names = ", ".join(field.name for field in fields(Item))
        raise _refusal(source, "item", str(error), f"an object with {names}") from error
    for name, value in vars(item).items():
        kind, expected = _OTHER_TYPES.get(name, (str, "text"))
        if not isinstance(value, kind):
            raise _refusal(source, name, value, expected)
    if {type(choice) for choice in item.choices} - {str}:
        raise _refusal(source, "choices", item.choices, "texts")
    if item.subtask not in SUBTASKS.get(item.task, ()):
        raise _refusal(source, "subtask", f"{item.task}/{item.subtask}", "one of Table 1")
    if item.organ not in ("", *ORGANS):
        raise _refusal(source, "organ", item.organ, "an organ of Table 10, or none")
    return item


def _refusal(source: str, field: str, found: object, expected: str) -> InputError:
    return InputError(source, field, repr(found), expected, "evaluate again")
