"""The sentences of a section: prose, wrapped lines, bullets, rows of tables, `key: value` lines."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_SHORT = (
    r"\b(?:approx|ca|dr|prof|mr|mrs|ms|vs|nr|e\.g|i\.e|fig|max|min|resp|incl|excl|seg|st|"
    r"bzw|ggf|evtl|z\.b|d\.h|u\.a|v\.a|z\.n|s\.o|vgl|lt|rt|l|r|ant|post|sup|inf|diam|dd|cf|est|"
    r"avg|pt|ln|lk|dg|re|li)\.$"
)
_ABBREVIATION = re.compile(_SHORT)
# A full stop that is none of a number, or the end of a line; both are looked at again.
_END = re.compile(r"[.!?](?=[\s)\]\"']|$)|[\u3002\uff01\uff1f]|;(?=\s)|\n")
_ITEM = re.compile(
    r"[ \t]*(?:[*+>#\u2610\u2611\u2612]|-{1,2}[ \t]|\d{1,2}[.)][ \t]|\(?[a-z\d]\)[ \t]|\[[ x]?\]|"
    r"[a-z][\w /&,()-]{0,40}:(?:[ \t]|$))"
)
# A line that ends or begins so is no sentence's end or beginning.
_OPEN_END = re.compile(
    r"(?:[,(&]|(?<![^\W_])[^\W\d_]+-|\b(?:of|in|the|an|and|or|nor|with|without|to|from|for|by|at|is|are|was|were|"
    r"than|into|within|any|both|between|der|die|das|im|und|oder|mit|ohne|von|eine[nrms]?))$"
)
_OPEN_BEGIN = re.compile(r"[ \t]*(?:(?:of|and|or|nor|which|than|that|und|oder)\b(?![ \t]*:)|[),])")
_BLANK = re.compile(r"[ \t]*(?:\n|$)")
_LEAST_WIDTH = 50
_BRACKET = 150
"""Characters from a semicolon to the bracket around it, at most."""
MOST_CHARACTERS = 700
"""A longer sentence is cut at a space: the time to read it must not grow with its square."""


@dataclass(frozen=True)
class Sentence:
    """A sentence, an item of a list, or a row.

    Attributes:
        start, end: its characters.
        opens: it is the first of a paragraph, or an item or row of its own.
    """

    start: int
    end: int
    opens: bool


def split_sentences(text: str, start: int, end: int, cased: str = "") -> Iterator[Sentence]:
    """Yield the sentences of `text[start:end]` in order.

    Args:
        text: in small letters, as `Wording.text`.
        start, end: of a section.
        cased: the same text with its capitals, if it has both.
    """
    width = max((len(line) for line in text[start:end].split("\n")), default=0)
    begin = start
    for match in _END.finditer(text, start, end):
        if match.group() == "\n":
            if _is_wrapped(text, begin, match.start(), end, width, cased):
                continue
        elif match.group() == "?" and text[match.start() - 1 : match.start()] in ("", " ", "\n"):
            continue  # "? metastasis" asks of what follows
        elif _goes_on(text, begin, match, end):
            continue
        yield from _sentence(text, begin, match.end(), start)
        begin = match.end()
    yield from _sentence(text, begin, end, start)


def _sentence(text: str, begin: int, end: int, section: int) -> Iterator[Sentence]:
    """Yield the sentence between two ends unless it holds no letter or digit."""
    start = begin
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    # A new line begins anew what is spoken of.
    opens = begin == section or "\n" in text[max(0, begin - 1) : start]
    while end - start > MOST_CHARACTERS:
        cut = text.rfind(" ", start + 1, start + MOST_CHARACTERS)
        cut = cut if cut > start else start + MOST_CHARACTERS
        yield Sentence(start, cut, opens)
        start, opens = cut, False
    if any(map(str.isalnum, text[start:end])):
        yield Sentence(start, end, opens)


def _goes_on(text: str, begin: int, match: re.Match[str], end: int) -> bool:
    """Whether a sentence goes on after a full stop or semicolon."""
    if match.group() == ";":
        return _is_bracketed(text, begin, match.start(), end)
    return match.group() == "." and not _is_stop(text, begin, match.start())


def _is_bracketed(text: str, begin: int, position: int, end: int) -> bool:
    """Whether a semicolon parts what stands in brackets: "two cysts (S5, 12 mm; S8, 20 mm)"."""
    opened = text.rfind("(", max(begin, position - _BRACKET), position)
    if opened < 0 or text.find(")", opened, position) >= 0:
        return False
    closed = text.find(")", position, min(end, position + _BRACKET))
    return closed >= 0 and "\n" not in text[position:closed]


def _is_stop(text: str, begin: int, position: int) -> bool:
    """Whether the full stop at a position ends a sentence."""
    before = text[max(begin, position - 12) : position + 1]
    if _ABBREVIATION.search(before) and text[position + 1 : position + 2] != "\n":
        return False
    if before.endswith((" no.", "\nno.")) and text[position + 1 : position + 3].strip().isdigit():
        return False
    # "1." before an item of a list.
    return not re.fullmatch(r"\s*\d{1,2}\.", text[begin : position + 1])


def _is_shouted(cased: str, begins: int) -> bool:
    """Whether the line that begins at a position is in capitals."""
    end = cased.find("\n", begins)
    line = cased[begins : end if end >= 0 else len(cased)]
    return line.isupper() and sum(map(str.isalpha, line)) > 4


def _is_wrapped(text: str, begin: int, position: int, end: int, width: int, cased: str) -> bool:
    """Whether the line's end at a position is only where the line was full."""
    before = text[begin:position].rstrip()
    if not before:
        return True
    if before[-1] in ".!?:;" or _BLANK.match(text, position + 1):
        return False
    following = text[position + 1 : min(end, position + 60)]
    if _ITEM.match(following) or "|" in following or "|" in before:
        return False
    if cased[position + 1 : position + 2].islower():
        return True
    if _OPEN_END.search(before[-24:]) or _OPEN_BEGIN.match(following):
        return True
    if width < _LEAST_WIDTH:
        return False
    begins = text.rfind("\n", 0, position) + 1
    line = text[begins:position].rstrip()
    if cased and _is_shouted(cased, position + 1) and not _is_shouted(cased, begins):
        return False  # a heading in capitals after running text
    word = following.split(maxsplit=1)[0] if following.strip() else ""
    return len(line) + 1 + len(word) > width - 2
