"""Numbers of a text in the unit of a question."""

import math
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from tumorchain_jax.evaluation.reading.answer_part import Abstained, refuses

Quantity = Literal["volume", "HU", "ratio", "percent", "length", "count"]
"""What is asked for: cm3, HU, a ratio, percent, cm, a whole number."""

_SIGN = r"(?:(?<![\w)\]%.])[+\-\u2212\u2013]|\bminus )?"
_DIGITS = r"(?:\d{1,3}(?:[, ]\d{3})+(?![\d,])(?:\.\d+)?|\d+,\d+(?![\d,])|\d+(?:\.\d+)?|\.\d+)"
_EXPONENT = r"(?:e[+-]?\d{1,4}\b|\s?[x\u00d7*]\s?10\s?\^\s?[+\-\u2212]?\d{1,3})?"
_NUMBER = re.compile(rf"(?<![\w.])(?<!\d,){_SIGN}{_DIGITS}{_EXPONENT}", re.IGNORECASE)
_FRACTION = re.compile(r"(?<![\w./])(\d+(?:\.\d+)?)\s?[/:\u2044]\s?(\d+(?:\.\d+)?)(?![\w/]|\.\d)")
# A number that belongs to a name: segment 6, slice 48.
_NAME = re.compile(
    r"\b(?:segments?|slices?|grades?|stages?|levels?|phases?|series|images?|figures?|steps?|"
    r"questions?|options?|types?|class)\s+(?:no\.?\s*)?$",
    re.IGNORECASE,
)
_UNITS: dict[Quantity, tuple[tuple[str, float], ...]] = {
    "volume": (
        (r"cm\^?3|ccm|cc|cm cubed|cubic (?:centimet(?:er|re)s?|cm)|ml|millilit(?:er|re)s?", 1.0),
        (r"mm\^?3|cubic (?:millimet(?:er|re)s?|mm)|[µμ]l", 1e-3),
        (r"l|lit(?:er|re)s?|dm\^?3", 1e3),
    ),
    "HU": ((r"hu|hounsfield(?: units?)?", 1.0),),
    "ratio": ((r"%|percent|per cent", 0.01),),
    "percent": ((r"%|percent|per cent", 1.0),),
    "length": (
        (r"cm|centimet(?:er|re)s?", 1.0),
        (r"mm|millimet(?:er|re)s?", 0.1),
    ),
    "count": (),
}
_ALL_UNITS = "|".join(
    sorted(
        {pattern for units in _UNITS.values() for pattern, _ in units} | {"years?", "gb", "gib"},
        key=len,
        reverse=True,
    )
)
_UNIT = re.compile(rf"\s?-?\s?({_ALL_UNITS})(?![\w^])", re.IGNORECASE)
_LETTER = re.compile(r"[^\W\d_]")
_RANGE = re.compile(r"\s?(?:-|\u2013|\u2212|to|and|or|bis)\s?$", re.IGNORECASE)
_MARK = re.compile(r"\b(?:answer|total|sum|result|altogether)\b", re.IGNORECASE)
_WORDS = {
    word: float(number)
    for number, word in enumerate(
        [
            "zero",
            "one",
            "two",
            "three",
            "four",
            "five",
            "six",
            "seven",
            "eight",
            "nine",
            "ten",
            "eleven",
            "twelve",
        ]
    )
} | {"single": 1.0, "solitary": 1.0}
_WORD = re.compile(rf"\b({'|'.join(_WORDS)})\b(?![ -](?:hundred|thousand))", re.IGNORECASE)
_LARGE = re.compile(r"\b(?:hundred|thousand|million)\b", re.IGNORECASE)
_NO_LESION = re.compile(
    r"\bnone\b|\bnil\b|\b(?:no|without|free of)(?: \w+){0,3} "
    r"(?:lesions?|tumou?rs?|cysts?|mass(?:es)?|nodules?)\b|^\W*no\W*$",
    re.IGNORECASE,
)


class Found(NamedTuple):
    """A number of a text: where it stands, and its value in the unit of the question."""

    start: int
    end: int
    value: float


def read_number(text: str, quantity: Quantity) -> float | Abstained:
    """Read the one number that a text gives, in the unit of the question.

    Of several the one after the last `=`, or after answer or total; a range is none. What belongs
    to a name (T2, segment 6) or has another kind of unit is no answer.

    Args:
        text: as `answer_part` gives it.
    """
    if re.match(r"[-\u2013\u2212]\s+\d", text) and quantity == "HU":
        return Abstained("ambiguous")  # a sign, or a bullet
    if quantity == "percent" and re.search(r"\bslice\b", text, re.IGNORECASE) and "%" not in text:
        return Abstained("ambiguous")  # the number of a slice, or its share
    found = numbers(text, quantity)
    values = {each.value for each in found}
    if len(values) > 1:
        values = _marked(text, found)
    if len(values) == 1:
        return values.pop()
    if values or found:
        return Abstained("ambiguous")
    if refuses(text):
        return Abstained("refusal")
    if quantity == "count" and _NO_LESION.search(text):
        return 0.0
    return Abstained("no_number")


def numbers(text: str, quantity: Quantity) -> list[Found]:
    """Find all numbers that may answer, from left to right, in the unit of the question."""
    text = re.sub(r"(?:±|\+/-)\s?[\d.]+", lambda spread: " " * len(spread[0]), text)
    found = list(_numerals(text, quantity))
    if quantity == "count" and not found and not _LARGE.search(text):
        found = [Found(w.start(), w.end(), _WORDS[w[1].lower()]) for w in _WORD.finditer(text)]
    return found


def _numerals(text: str, quantity: Quantity) -> Iterator[Found]:
    taken = -1
    if quantity == "ratio":
        for parts in _FRACTION.finditer(text):
            if float(parts[2]):
                yield Found(*parts.span(), float(parts[1]) / float(parts[2]))
                taken = parts.end()
    for match in _NUMBER.finditer(text):
        if match.start() < taken or _NAME.search(text[: match.start()]):
            continue
        if _LARGE.match(text[match.end() :].lstrip()):
            continue
        unit, rest = _UNIT.match(text, match.end()), text[match.end() : match.end() + 1]
        factor = _factor(unit[1], quantity) if unit else 1.0
        value = _value(match[0])
        # Glued to letters that are no unit (2nd), or of another kind of unit (3 cm of a volume).
        if factor is None or (not unit and _LETTER.match(rest)) or not math.isfinite(value):
            continue
        taken = unit.end() if unit else match.end()
        yield Found(match.start(), taken, float(f"{value * factor:.12g}"))


def _factor(unit: str, quantity: Quantity) -> float | None:
    for pattern, factor in _UNITS[quantity]:
        if re.fullmatch(pattern, unit, re.IGNORECASE):
            return factor
    return None


def _value(text: str) -> float:
    plain = re.sub("[\u2212\u2013]", "-", text.lower()).replace("minus ", "-")
    base, _, power = re.sub(r"\s?[x\u00d7*]\s?10\s?\^\s?", "#", plain).partition("#")
    if re.search(r"\d[, ]\d{3}(?:[, .]|e|$)", base):
        base = re.sub("[, ]", "", base)
    base = base.replace(",", ".").strip()
    # 2.571 x 10^2 as one literal, so that it is rounded once.
    return float(f"{base}e{power}" if power else base)


def _marked(text: str, found: list[Found]) -> set[float]:
    """Values that are said to be the answer, where a text has several numbers."""
    ends = [text.rfind("=") + 1] if "=" in text else []
    ends = ends or [mark.end() for mark in _MARK.finditer(text)]
    values = set()
    for end in ends:
        after = [each for each in found if each.start >= end]
        if not after or re.search(r"[;,]|\.\s", text[end : after[0].start]):
            continue
        first, second = after[0], after[1] if len(after) > 1 else None
        if second and _RANGE.fullmatch(text[first.end : second.start] or "-"):
            return set()
        values.add(first.value)
    return values
