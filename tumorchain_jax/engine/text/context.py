"""Whether a finding that a sentence names is present, certain, current and the patient's own.

The method is that of NegEx (Chapman et al. 2001) and ConText (Harkema et al. 2009): cue phrases
reach forward or backward within their clause, up to the next phrase that ends it. The cues are our
own list, `cues.tsv`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib import resources

from tumorchain_jax.engine.facts import Certainty, Polarity, Time


@dataclass(frozen=True)
class Context:
    """How a sentence means a finding that it names.

    Attributes:
        polarity: whether the finding is there.
        certainty: how sure the writer is.
        time: of this examination, of an earlier one, or of a question or plan.
        patient: whether it is the patient's own finding, not that of a relative.
    """

    polarity: Polarity = "present"
    certainty: Certainty = "definite"
    time: Time = "current"
    patient: bool = True


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


# A clause of its own after a comma or "and": its subject, then a finite verb.
_VERB = (
    r"(?:is|are|was|were|has|have|had|shows?|measures?|measuring|demonstrates?|contains?|appears?|"
    r"remains?|reveals?|exhibits?|invades?|extends?)"
)
_NEW_CLAUSE = re.compile(
    rf"(?:,|;|\band\b)\s+(?:the\s+|there\s+|a\s+|"
    rf"an\s+)?(?:[\w-]+\s+){{0,4}}?{_VERB}\b(?!\s+(?:not|no)\b)",
    re.IGNORECASE,
)
_REACH = 250
"""Characters that a cue reaches at most."""
_SEMICOLON = re.compile(r";|:\s|\.\s")


@lru_cache(maxsize=256)
def find_cues(sentence: str) -> tuple[Cue, ...]:
    """Return the cues of a sentence from left to right; of two that overlap, the longer one."""
    pattern, meanings = _lexicon()
    return tuple(
        Cue(*meanings[_normal(match.group())], match.start(), match.end())
        for match in pattern.finditer(sentence)
    )


def read_context(sentence: str, start: int, end: int) -> Context:
    """Read what a sentence says of the finding at its characters `start` to `end`."""
    context = Context()
    for meaning in _meanings(sentence, start, end):
        match meaning:
            case "absent":
                context = replace(context, polarity="absent")
            case "probable" if context.certainty == "definite":
                context = replace(context, certainty="probable")
            case "possible":
                context = replace(context, certainty="possible")
            case "prior" | "hypothetical":
                context = replace(context, time=meaning)
            case "other":
                context = replace(context, patient=False)
    return context


def _meanings(sentence: str, start: int, end: int) -> Iterator[str]:
    """Meanings of the cues that reach the characters `start` to `end`."""
    low, high = start - _REACH, end + _REACH
    cues = [
        cue for cue in find_cues(sentence) if low <= cue.end <= start or end <= cue.start <= high
    ]
    stops = [cue for cue in cues if cue.meaning == "stop"]
    for cue in cues:
        if cue.meaning in ("stop", "plain"):
            continue
        if cue.end <= start and cue.reach in ("forward", "both"):
            between = (cue.end, start)
        elif cue.start >= end and cue.reach in ("backward", "both"):
            between = (end, cue.start)
        else:
            continue
        text = sentence[slice(*between)]
        stopped = any(between[0] <= stop.start and stop.end <= between[1] for stop in stops)
        if not stopped and not _SEMICOLON.search(text) and not _NEW_CLAUSE.search(text):
            yield cue.meaning


def _normal(phrase: str) -> str:
    return re.sub(r"\s+", " ", phrase).replace("\u2019", "'").lower()


@cache
def _lexicon() -> tuple[re.Pattern[str], dict[str, tuple[str, str]]]:
    """The pattern of all cues, and the meaning and reach of each."""
    text = resources.files(__package__).joinpath("cues.tsv").read_text(encoding="utf-8")
    meanings: dict[str, tuple[str, str]] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            phrase, meaning, reach = line.split("\t")
            meanings[phrase] = meaning, reach
    # Chinese parts no words by spaces.
    edges = {True: ("", ""), False: (r"(?<!\w)", r"(?![\w-])")}
    patterns = [
        f"{edges[chinese][0]}(?:{_prefix_tree(phrases)}){edges[chinese][1]}"
        for chinese in (False, True)
        if (phrases := [phrase for phrase in meanings if (phrase[0] >= "\u3400") is chinese])
    ]
    return re.compile("|".join(patterns), re.IGNORECASE), meanings


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
