"""Cue phrases of a sentence, such as `no evidence of`: what they say and how far they reach.

The cues are our own list, `cues.tsv`.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources


@dataclass(frozen=True)
class Cue:
    """A cue phrase in a sentence.

    Attributes:
        meaning: what it says of the findings in its reach; see `cues.tsv`.
        reach: `forward`, `backward` or `both`.
        start, end: its characters in the sentence.
    """

    meaning: str
    reach: str
    start: int
    end: int


@lru_cache(maxsize=256)
def find_cues(sentence: str) -> tuple[Cue, ...]:
    """Return the cues of a sentence from left to right; of two that overlap, the longer one."""
    pattern, meanings = _lexicon()
    return tuple(
        Cue(*meanings[normal_form(match.group())], match.start(), match.end())
        for match in pattern.finditer(sentence)
    )


def cue_phrases() -> Iterable[str]:
    """Return the cue phrases in small letters."""
    return _lexicon()[1]


def normal_form(phrase: str) -> str:
    """Return a phrase in small letters with plain apostrophes and single spaces."""
    return re.sub(r"\s+", " ", phrase).replace("\u2019", "'").lower()


@cache
def _lexicon() -> tuple[re.Pattern[str], dict[str, tuple[str, str]]]:
    """The pattern of all cues, and the meaning and reach of each."""
    text = resources.files(__package__).joinpath("cues.tsv").read_text(encoding="utf-8")
    meanings: dict[str, tuple[str, str]] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            phrase, meaning, reach = line.split("\t")
            for form in _forms(phrase):
                meanings.setdefault(form, (meaning, reach))
    # Chinese parts no words by spaces.
    edges = {True: ("", ""), False: (r"(?<!\w)", r"(?![\w-])")}
    patterns = [
        f"{edges[chinese][0]}(?:{_prefix_tree(phrases)}){edges[chinese][1]}"
        for chinese in (False, True)
        if (phrases := [phrase for phrase in meanings if (phrase[0] >= "\u3400") is chinese])
    ]
    return re.compile("|".join(patterns), re.IGNORECASE), meanings


def _forms(phrase: str) -> Iterator[str]:
    """Yield a phrase and its contractions, with the apostrophe and without: "isn't", "isnt"."""
    yield phrase
    contracted = re.sub(r"\bcan(?:not| not)\b", "can't", phrase)
    contracted = re.sub(
        r"\b(is|are|was|were|do|does|did|has|have|had|could) not\b", r"\1n't", contracted
    )
    yield from {contracted, contracted.replace("n't", "nt")} - {phrase}


def _prefix_tree(phrases: list[str]) -> str:
    """Write an expression for phrases that tries the longer ones first, and no letter twice."""
    by_first: dict[str, list[str]] = {}
    for phrase in phrases:
        if phrase:
            by_first.setdefault(phrase[0], []).append(phrase[1:])
    branches = [
        {" ": r"\s+", "'": "['\u2019]"}.get(letter, re.escape(letter)) + _prefix_tree(rest)
        for letter, rest in by_first.items()
    ]
    if not branches:
        return ""
    optional = "?" if "" in phrases else ""
    return f"(?:{'|'.join(branches)}){optional}"
