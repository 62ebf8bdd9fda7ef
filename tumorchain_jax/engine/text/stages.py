"""T, N and M categories that a report states, with the characters where it states them.

A category counts if its basis is said (`pT3`) or if its surroundings speak of staging: `T3` alone
may be a vertebra or the number of a sample. What is not stated is not concluded from the findings.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Basis = Literal["clinical", "pathological", "after therapy", "not said"]


@dataclass(frozen=True)
class StageMention:
    """A category in a text.

    Attributes:
        letter: `T`, `N` or `M`.
        value: the category in capitals, substages in lower case: `T4a`, `NX`.
        basis: clinical (c), pathological (p), or after therapy (y).
        start, end: its characters in the text.
    """

    letter: str
    value: str
    basis: Basis
    start: int
    end: int


# Scanned texts have the letter O for the number 0, and l or I for 1.
_ONE = r"(?:[cpyrmu]{0,3}|[cp]\s)[TNM](?:is|\s?[0-4OoXxlI][a-d]?)"
_PARTS = re.compile(
    r"(?P<basis>[cpyrmu]*(?:(?<=[cp])\s)?)(?P<letter>[TNM])\s?(?P<value>(?<!\s)is|[0-4OoXxlI][a-d]?)"
)
# Categories side by side: `pT3 pN1`, `T4aN0M0`, `T3, N1`.
_RUN = re.compile(rf"(?:(?<![A-Za-z0-9])|(?<=AJCC))(?:{_ONE}[\s,;/]{{0,3}})*{_ONE}(?![A-Za-z0-9])")
# A key and its value apart: `T stage: 3`, `N category = N1`, `M: 0`.
_KEYED = re.compile(
    r"(?<![A-Za-z0-9-])(?P<basis>[cpyr]{0,3})(?P<letter>[TNM])(?:[- ]?(?:[Ss]tage|STAGE|"
    r"[Cc]ategory|"
    r"CATEGORY|[Cc]lassification|[Ss]tadium|[Kk]ategorie))?\s?[:=|]\s?(?:[cpyr]{0,3}(?P=letter))?"
    r"(?P<value>is|[0-4Xx][a-d]?)(?![A-Za-z0-9%]|[.,]\d)"
)
_CAPITALS = re.compile(
    r"(?<![A-Za-z0-9])(?:[CPYR]{0,2}T ?(?:IS|[0-4X][A-D]?)[ ,;/]{0,3}[CPYR]{0,2}N ?[0-4X][A-D]?"
    r"(?:[ ,;/]{0,3}[CPYR]{0,2}M ?[0-4X][A-D]?)?|(?:Y?[CP]|MR)[TN][0-4X][A-D]?|[CP]M[01X]|"
    r"[CP] [TNM][0-4X][A-D]?|T[0-4][A-D]|N[1-3][A-C]|M1[A-D])(?![A-Za-z0-9])"
)
# A key such as `PN: N2A`.
_CAPITAL_KEY = re.compile(r"(?<![A-Za-z0-9])Y?[CP](?=[TNM]\s?[:=|])")
_SPACES = dict.fromkeys(map(ord, "\u00a0\u2007\u2009\u202f\r\t"), " ")
_STAGING = re.compile(r"\bstag(?:e|ing)|\bTNM\b|\bAJCC|\bUICC\b|\bp?T\s?N\s?M\b", re.IGNORECASE)
_WORD = re.compile(r" [A-Za-z]{3}")
_BEFORE = 60
_DIGITS = {"O": "0", "o": "0", "l": "1", "I": "1", "x": "X"}


def find_stages(text: str) -> list[StageMention]:
    """Return the categories that a text states, in the order of the text."""
    text = _CAPITALS.sub(_in_usual_letters, text.translate(_SPACES))
    text = _CAPITAL_KEY.sub(lambda match: match.group().lower(), text)
    mentions = [mention for run in _RUN.finditer(text) for mention in _of_run(text, run)]
    told = {mention.end for mention in mentions}
    keyed = [match for match in _KEYED.finditer(text) if match.end() not in told]
    # One letter with a colon may be anything; "T stage:" or two letters are a stage.
    letters = {match["letter"] for match in keyed}
    mentions += [
        _mention(match)
        for match in keyed
        if len(letters) > 1 or len(match.group().split(":")[0]) > 2
    ]
    return sorted(mentions, key=lambda mention: mention.start)


def _in_usual_letters(match: re.Match[str]) -> str:
    """Write `CT4A CN1` as `cT4a cN1`; capitals everywhere hide what is a prefix."""
    return re.sub(
        r"MR(?=[TN])|[CPYR]+(?= ?[TNM])|(?<=\d)[A-D]|(?<=T)IS",
        lambda part: part[0].lower(),
        match.group(),
    )


def _of_run(text: str, run: re.Match[str]) -> list[StageMention]:
    """Return the categories of a run; those without a basis need a neighbour or a word for it."""
    parts = list(_PARTS.finditer(text, *run.span()))
    said = _STAGING.search(text, max(0, run.start() - _BEFORE), run.start())
    together = len({part["letter"] for part in parts}) > 1
    return [
        _mention(part)
        for k, part in enumerate(parts)
        # "No" and "To" are words, unless a category precedes them and no word follows.
        if part["basis"]
        or (
            (said or together)
            and not (part["value"][0] in "Oo" and (not k or _WORD.match(text, part.end())))
        )
    ]


def stated(mentions: Iterable[StageMention], letter: str) -> str | None:
    """Return the one category of a letter; None if none is stated, or different ones.

    A pathological category is taken before a clinical one, and a category without a substage
    gives way to the same with one. `TX` counts only where nothing else is stated.
    """
    mentions = [mention for mention in mentions if mention.letter == letter]
    for bases in (("pathological", "after therapy"), ("not said",), ("clinical",)):
        values = {mention.value for mention in mentions if mention.basis in bases}
        values = values - {f"{letter}X"} or values
        values = {v for v in values if not any(w != v and w.startswith(v) for w in values)}
        if values:
            return values.pop() if len(values) == 1 else None
    return None


def _mention(part: re.Match[str]) -> StageMention:
    digit, substage = part["value"][0], part["value"][1:]
    value = _DIGITS.get(digit, digit) + substage
    return StageMention(part["letter"], part["letter"] + value, _basis(part["basis"]), *part.span())


def _basis(prefix: str) -> Basis:
    if "y" in prefix:
        return "after therapy"
    if "p" in prefix:
        return "pathological"
    return "clinical" if "c" in prefix else "not said"
