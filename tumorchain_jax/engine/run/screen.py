"""What keeps a record out: it repeats another one, tells its answer, or cannot be judged."""

import re
from collections import Counter
from collections.abc import Sequence

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.schema import Record
from tumorchain_jax.evaluation.answers import judge

GRAM = 5
MOST_ALIKE = 0.9
"""Jaccard similarity of two questions' 5-grams of words, above which they are near-duplicates."""
_WORD = re.compile(r"\w+(?:\.\d+)?")


def screen(records: Sequence[Record]) -> tuple[list[int], Counter[str]]:
    """Find the records of a case that can be used.

    Returns:
        Their positions, and how many others there are of each reason.
    """
    kept: list[int] = []
    left_out: Counter[str] = Counter()
    seen: dict[int, list[tuple[str, frozenset[str]]]] = {}
    for number, record in enumerate(records):
        before = seen.setdefault(record.scan, [])
        asked = asked_text(record)
        reason = fault(record)
        if not reason and any(asked == other for other, _ in before):
            reason = "duplicate question"
        grams = word_grams(asked)
        if not reason and any(alike(grams, other) > MOST_ALIKE for _, other in before):
            reason = "near-duplicate question"
        if reason:
            left_out[reason] += 1
            continue
        before.append((asked, grams))
        kept.append(number)
    return kept, left_out


def fault(record: Record) -> str:
    """Name what is wrong with a record by itself; empty if nothing is."""
    if tells_answer(record):
        return "answer in its question"
    try:
        judgement = judge(record, record.rounds[-1].text)
    except InputError:
        return "answer that cannot be judged"
    return "" if judgement.right else "text that does not end with the answer"


def asked_text(record: Record) -> str:
    """A question with its choices, whose order does not matter, in small letters."""
    return " ".join(_WORD.findall(" ".join([record.question, *sorted(record.choices)]).casefold()))


def word_grams(text: str) -> frozenset[str]:
    """Five words each, in a row; all words of a text with fewer."""
    words = text.split()
    count = max(1, len(words) - GRAM + 1)
    return frozenset(" ".join(words[start : start + GRAM]) for start in range(count))


def alike(first: frozenset[str], second: frozenset[str]) -> float:
    """Jaccard similarity: shared 5-grams of all."""
    shorter, longer = sorted((len(first), len(second)))
    if shorter <= MOST_ALIKE * longer:
        return 0.0  # too different in length; most pairs end here
    shared = len(first & second)
    return shared / (shorter + longer - shared)


def tells_answer(record: Record) -> bool:
    """Whether an open question states its answer, other than as one of several to choose from."""
    if record.choices:
        return False
    answer = _WORD.findall(record.answer.casefold())
    clauses = re.split(r"[.?!;:]\s", record.question.casefold())
    return any(_holds(_WORD.findall(each), answer) and "or" not in each.split() for each in clauses)


def _holds(words: Sequence[str], part: Sequence[str]) -> bool:
    size = len(part)
    return any(words[start : start + size] == part for start in range(len(words) - size + 1))
