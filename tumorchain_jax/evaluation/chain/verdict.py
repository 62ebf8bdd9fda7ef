"""What a judge is given, and what it returns: marks, or the reason why there are none.

Only `judged` has a number. A chain that says nothing is an abstention of the model; a judge that
cannot be read is a failure of the judge. Neither is ever counted as a mark.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol, runtime_checkable

from tumorchain_jax.evaluation.chain.reader import Statement, plain_text, read_chain
from tumorchain_jax.evaluation.chain.rubric import Marks
from tumorchain_jax.evaluation.chain.truth import Truth
from tumorchain_jax.report.conclusion import parse_conclusion

State = Literal["judged", "abstained", "failed"]
JUDGED: State = "judged"
ABSTAINED: State = "abstained"
FAILED: State = "failed"
STATES: tuple[State, ...] = (JUDGED, ABSTAINED, FAILED)


@dataclass(frozen=True)
class Case:
    """A chain to be judged.

    Attributes:
        patient: whose scan it is about; drawn together in a bootstrap.
        subtask: of Table 1.
        question, choices: as the model was asked.
        chain: what the model wrote, all rounds; data, never an instruction.
        reference: the true chain as text.
        right: whether the reader of `answers.py` finds the conclusion right; None if unknown.
        truth: the reference as triples where they are known without the text.
    """

    patient: str
    subtask: str
    question: str
    choices: tuple[str, ...]
    chain: str
    reference: str
    right: bool | None = None
    truth: Truth | None = None

    @cached_property
    def said(self) -> tuple[Statement, ...]:
        """The statements that the rules read in the chain."""
        return tuple(read_chain(self.chain))

    @cached_property
    def true(self) -> Truth:
        """The truth: the given one, or what the rules read in the reference."""
        read = self.truth or Truth(tuple(s.triple for s in read_chain(self.reference)))
        return read


@dataclass(frozen=True)
class ChainVerdict:
    """What a judge says of a chain.

    Attributes:
        state: `judged`, `abstained` (the model's silence) or `failed` (the judge's).
        why: of the last two; a few words, then details after a colon.
        marks: None unless judged.
        right: whether the conclusion agrees with the truth, as the judge sees it; None unless
            judged, and where there is nothing to compare.
        attempts: calls that were made, 0 by rules.
        sum_differs: whether the judge's own sum is not that of its marks.
    """

    state: State
    why: str = ""
    marks: Marks | None = None
    right: bool | None = None
    attempts: int = 0
    sum_differs: bool = False


@runtime_checkable
class Judge(Protocol):
    """A judge of chains."""

    @property
    def name(self) -> str:
        """What files and tables call it, with its version."""
        ...

    @property
    def workers(self) -> int:
        """How many cases it takes at once."""
        ...

    def judge(self, case: Case) -> ChainVerdict:
        """Judge one chain; a failure is a verdict, never an exception."""
        ...

    def swapped(self) -> "Judge":
        """The same judge, shown the chain before the reference."""
        ...


# Silence.

_REFUSAL = re.compile(
    r"\b(?:i(?: am|'m)? (?:cannot|can ?not|can't|unable|not able|won't|do not|don't)|as an ai\b"
    r"|i(?: am|'m) sorry|sorry, (?:but )?i|cannot (?:assist|help|provide|comply|interpret)"
    r"|unable to (?:assist|help|provide|view|interpret|analy[sz]e))",
    re.IGNORECASE,
)
_ENGLISH = frozenset(
    re.findall(r"\w+", "the of is in and a an no with to it this are there has by at be was on")
)
_FOREIGN = frozenset(
    re.findall(
        r"\w+",
        "der die das und ist mit nicht ein eine im des den el la los las una un en con del le les "
        "une dans avec pas est il lo gli di della nel sono non och det ett som av het een van niet "
        "para por que se na da do em uma",
    )
)
_SENTENCE_END = (".", "!", "?", ")", "]", '"', "'", "*", ";", ":")
_SHORT_WORDS, _ENTRY_WORDS, _FOREIGN_SCRIPT = 12, 6, 0.2


def silence(text: str) -> str:
    """Say why a chain has nothing to judge: empty, cut, refusing, in another language; else ""."""
    plain = plain_text(text)
    words = re.findall(r"[^\W\d_]+", plain.lower())
    if not words:
        return "empty"
    if _open_thought(text) or _ends_in_the_middle(plain, words):
        return "cut"
    strange = sum(ord(letter) > 0x24F for word in words for letter in word)
    if strange > _FOREIGN_SCRIPT * sum(map(len, words)):
        return "other language"
    native, foreign = (sum(word in known for word in words) for known in (_ENGLISH, _FOREIGN))
    if foreign > native:
        return "other language"
    if _REFUSAL.search(plain) and not read_chain(text):
        return "refusal"
    return ""


def _open_thought(text: str) -> bool:
    lower = text.lower()
    return lower.rfind("<think>") > lower.rfind("</think>")


def _ends_in_the_middle(plain: str, words: Sequence[str]) -> bool:
    """Whether a text of some length stops before the end of a sentence, with no conclusion yet."""
    end = plain.rstrip()
    if len(words) <= _SHORT_WORDS or end.endswith(_SENTENCE_END):
        return False
    *before, last_line = end.splitlines()
    # An entry of a list, or a closing formula: a short line of its own, not broken off in a phrase.
    whole = words[-1] not in _ENGLISH and not end.endswith(",")
    if before and whole and len(last_line.split()) <= _ENTRY_WORDS:
        return False
    marked = re.search(r"(?:conclusion|answer|stage|diagnosis|impression)\W", last_line.lower())
    return not (marked and parse_conclusion(end))
