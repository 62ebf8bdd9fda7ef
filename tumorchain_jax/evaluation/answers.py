"""Judging answers: read what an answer says and compare it with the truth.

Truth and answer are read in the same way, into the same few words, so that letters, synonyms and
spelling do not matter; an answer is right when its words are those of the truth. To name a value
more ("round or irregular", a letter and the text of another choice) or to deny one ("not round") is
to say something else, and wrong; so is to say nothing.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.schema import Record
from tumorchain_jax.reasoning.answer_values import READERS, choice_values, either, plain
from tumorchain_jax.report.conclusion import parse_conclusion

YES_NO = ("yes", "no")


@dataclass(frozen=True)
class Judgement:
    """A truth and an answer, both as they were parsed.

    Attributes:
        truth: `liver`, `T4a`, `yes`; several parts of a report as `liver; T4a; N0`.
        parsed: the same of the answer, competing values as `liver or stomach`; "" when it says
            nothing that was asked for (unparsed).
        right: whether they are the same.
    """

    truth: str
    parsed: str
    right: bool


def judge(record: Record, text: str) -> Judgement:
    """Judge what a model wrote in its last round by the truth of a record.

    A multiple-choice answer is read by letter, by the choice's text, or both; an open one by what
    its subtask asks for; a truth outside the words known here must be met word for word.

    Raises:
        InputError: the record's own answer cannot be read, or is none of its choices.
    """
    read = _reader(record)
    truth, parsed = read(record.answer), read(_conclusion(text))
    if not truth or (record.choices and truth not in map(plain, record.choices)):
        expected = "one of the choices" if record.choices else "some text"
        raise InputError(record.patient, "answer", repr(record.answer), expected, "fix the record")
    return Judgement(truth, parsed, parsed == truth)


# What decides nothing, although its "not" reads like a denial of what was asked.
_UNDECIDED = re.compile(
    r"\b(?:do not|don['\u2019]t|can ?not|can['\u2019]t|could not|unable to|impossible to) "
    r"(?:know|tell|say|determine|assess|judge|answer|decide|be (?:determined|assessed|judged|told))"
    r"|\b(?:not|un) ?(?:sure|certain)\b|\bunsure\b",
    re.IGNORECASE,
)


def _conclusion(text: str) -> str:
    """Extract the conclusion as a report does; a text cut in its thoughts has none."""
    answer = re.split("</think>", text, flags=re.IGNORECASE)[-1]
    if "<think>" in answer.lower() or not re.search(r"\w", answer):
        return ""
    conclusion = parse_conclusion(text)
    return "" if _UNDECIDED.search(conclusion) else conclusion


def _reader(record: Record) -> Callable[[str], str]:
    if record.choices:
        return partial(choice_values, record.choices)
    if plain(record.answer) in YES_NO:
        return partial(_read_kinds, ["yes/no"])
    asked = _KINDS.get(record.subtask, (record.subtask,))
    spoken = [kind for kind in asked if READERS[kind](record.answer)]
    # Without what the subtask is about, the rest of the truth would be too little to judge by.
    return partial(_read_kinds, spoken) if asked[0] in spoken else plain


# What a subtask asks for, where that is not of its own name: the first always, the others as far as
# the truth speaks of them.
_KINDS = {
    "organ_position": ("third",),
    "tumor_position": ("organ", "segment"),
    "segment_localization": ("segment", "organ"),
    "cot_report": ("organ", "segment", "tumor", "node", "metastasis"),
}


def _read_kinds(kinds: Sequence[str], text: str) -> str:
    said = [either(READERS[kind](text)) for kind in kinds]
    return "; ".join(part or "-" for part in said) if any(said) else ""
