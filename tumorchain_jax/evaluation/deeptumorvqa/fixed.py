"""The default rules: an answer is read by the question's own options, or abstains with a reason.

Stated in prose in the room's README; an abstention has no score.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tumorchain_jax.evaluation.deeptumorvqa.subtypes import Subtype
from tumorchain_jax.evaluation.deeptumorvqa.v1 import mra10
from tumorchain_jax.evaluation.reading.answer_part import Abstained, Why, answer_part
from tumorchain_jax.evaluation.reading.categories import read_category, read_truth
from tumorchain_jax.evaluation.reading.choices import read_choice
from tumorchain_jax.evaluation.reading.numbers import read_number
from tumorchain_jax.evaluation.reading.yes_no import read_yes_no

Format = Literal["mc", "freeform"]
FORMATS: tuple[Format, ...] = ("mc", "freeform")


@dataclass(frozen=True)
class Verdict:
    """What an answer says, and what that is worth.

    Attributes:
        state: `right`, `wrong`, `answered` (a number), `abstain`, or `bad_truth`: the question's
            own answer cannot be read.
        why: of an abstention.
        reading: letter, yes or no, option's text, or number; None where nothing was read.
        truth: the question's own answer, read in the same way.
        score: 1 right, 0 wrong; of a number 1 - relative error, at least 0; None of an abstention.
        mra10, absolute_error, relative_error: of a number (the relative one not where the truth
            is 0); the absolute one in the unit of the question.
    """

    state: Literal["right", "wrong", "answered", "abstain", "bad_truth"]
    why: Why | None = None
    reading: str | float | None = None
    truth: str | float | None = None
    score: float | None = None
    mra10: float | None = None
    absolute_error: float | None = None
    relative_error: float | None = None


def judge(
    subtype: Subtype, form: Format, options: Mapping[str, str], truth: str, output: str
) -> Verdict:
    """Judge one answer.

    Args:
        options: letter -> text.
        truth: the correct letter (`mc`), or the answer's text (`freeform`).
        output: the model's whole text, as it came.
    """
    true = _read_truth(subtype, form, options, truth)
    if true is None:
        return Verdict("bad_truth")
    said = answer_part(output)
    read = said if isinstance(said, Abstained) else _read(subtype, form, options, said)
    if isinstance(read, Abstained):
        return Verdict("abstain", read.why, truth=true)
    if isinstance(true, float):
        assert isinstance(read, float)
        return _number(read, true)
    right = read == true
    return Verdict("right" if right else "wrong", None, read, true, float(right))


def _read(
    subtype: Subtype, form: Format, options: Mapping[str, str], text: str
) -> str | float | Abstained:
    if form == "mc":
        return read_choice(options, text, subtype.quantity)
    if subtype.quantity is not None:
        return read_number(text, subtype.quantity)
    return read_yes_no(text) if subtype.kind == "binary" else read_category(options, text)


def _read_truth(
    subtype: Subtype, form: Format, options: Mapping[str, str], truth: str
) -> str | float | None:
    if form == "mc":
        letter = truth.strip().upper()
        return letter if letter in options else None
    if not isinstance(said := answer_part(truth), str):
        return None
    if subtype.kind == "categorical":
        return read_truth(options, said) or None
    read = _read(subtype, form, options, said)
    return None if isinstance(read, Abstained) else read


def _number(read: float, truth: float) -> Verdict:
    off = abs(read - truth)
    relative = off / abs(truth) if truth else None
    score = float(read == truth) if relative is None else max(0.0, 1 - relative)
    off, relative = _short(off), None if relative is None else _short(relative)
    return Verdict("answered", None, read, truth, score, mra10(read, truth), off, relative)


def _short(value: float) -> float:
    """Drop what floating point adds: 257.1 - 257 is 0.1."""
    return float(f"{value:.12g}") if math.isfinite(value) else value
