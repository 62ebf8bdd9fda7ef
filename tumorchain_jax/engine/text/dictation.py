"""Texts that the rules do not follow: dictation without punctuation, and words such as "latter".

Without marks nobody can tell where a denial ends; which of two lesions "the former" is, a
reader works out from more than the sentence.
"""

import re

from tumorchain_jax.engine.text.wording import even

_LEAST_WORDS = 40
_MARK = re.compile(r"[.,;:!?|()\[\]*\u3002\uff0c]|\n[ \t]*\n")
_SHORT_LINE = 45
_REFERENCE = re.compile(r"\b(?:the )?(?:latter|former(?= (?:is|has|shows|measures|one|lesion))|"
                        r"letztere[rs]?|erstere[rs]?)\b")  # fmt: skip


def find_reference(text: str) -> tuple[int, int] | None:
    """Return where a report says which of two things it means by "the latter"; None if nowhere.

    Args:
        text: of a report, as read.
    """
    match = _REFERENCE.search(even(text))
    return match.span() if match else None


def find_unpunctuated(text: str) -> tuple[int, int] | None:
    """Return the first stretch of many words without any mark; None if there is none.

    The end of a short line is a mark: lists are written so.

    Args:
        text: of a report, as read.
    """
    start = 0
    for end in (*(match.end() for match in _MARK.finditer(even(text))), len(text)):
        if (stretch := _longest(text, start, end)) is not None:
            return stretch
        start = end
    return None


def _longest(text: str, start: int, end: int) -> tuple[int, int] | None:
    begin = at = start
    words = 0
    for line in text[start:end].splitlines(keepends=True):
        words += len(line.split())
        at += len(line)
        if words >= _LEAST_WORDS:
            return begin, at
        if len(line.strip()) < _SHORT_LINE:
            begin, words = at, 0
    return None
