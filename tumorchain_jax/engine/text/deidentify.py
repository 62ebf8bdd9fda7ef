"""What tells who the patient is, found in a report and replaced by typed placeholders.

By rules: labelled names and numbers, titles, dates, telephone numbers, addresses, mail and web
addresses, ages over 89 (as HIPAA's safe harbour lists them). A name that is found once is replaced
wherever it stands. Rules miss what no form gives away, such as a name in the middle of a sentence
without title or label: recall is measured on planted identifiers (`tests/engine/text`).
"""

import bisect
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from tumorchain_jax.engine.text.identifiers import NAMED, NO_NAMES, RULES, Identifier
from tumorchain_jax.engine.text.vocabulary import known_words


@dataclass(frozen=True)
class Replaced:
    """A replaced identifier.

    Attributes:
        kind: what it is.
        start, end: its characters in the report.
        new_start, new_end: characters of its placeholder in the new text.
    """

    kind: Identifier
    start: int
    end: int
    new_start: int
    new_end: int


@dataclass(frozen=True)
class Deidentified:
    """A report without identifiers.

    Attributes:
        text: with placeholders such as `[NAME]`.
        replaced: what was replaced, in the order of the text.
    """

    text: str
    replaced: tuple[Replaced, ...]

    def original_span(self, start: int, end: int) -> tuple[int, int]:
        """Return the report's characters for `start` to `end` of the new text.

        A span that touches a placeholder covers the identifier as a whole.
        """
        return self._back(start, first=True), self._back(end, first=False)

    def _back(self, position: int, first: bool) -> int:
        k = bisect.bisect_right(self.replaced, position, key=lambda one: one.new_start) - 1
        if k < 0:
            return position
        one = self.replaced[k]
        if position >= one.new_end:
            return one.end + position - one.new_end
        if position == one.new_start:
            return one.start
        return one.start if first else one.end


def deidentify(text: str) -> Deidentified:
    """Replace names, dates, numbers and addresses in a report by placeholders."""
    pieces: list[str] = []
    replaced: list[Replaced] = []
    done = length = 0
    for kind, start, end in _found(text):
        placeholder = f"[{kind}]"
        pieces += text[done:start], placeholder
        length += start - done
        replaced.append(Replaced(kind, start, end, length, length + len(placeholder)))
        length += len(placeholder)
        done = end
    return Deidentified("".join(pieces) + text[done:], tuple(replaced))


def _found(text: str) -> list[tuple[Identifier, int, int]]:
    """Return the identifiers of a text in order; of two that overlap, the longer or earlier one."""
    spans = [(kind, *span) for kind, pattern in _patterns() for span in _spans(pattern, text)]
    names = [span for pattern in NAMED for span in _spans(pattern, text)]
    named = [trimmed for span in names if (trimmed := _trimmed(text, *span))]
    spans += [("NAME", start, end) for start, end in named]
    spans += [("NAME", start, end) for start, end in _again(text, named)]
    spans.sort(key=lambda span: (span[1], -span[2]))
    kept: list[tuple[Identifier, int, int]] = []
    for kind, start, end in spans:
        if kept and start < kept[-1][2]:
            if end > kept[-1][2]:
                kept[-1] = (kept[-1][0], kept[-1][1], end)
        else:
            kept.append((kind, start, end))
    return kept


@cache
def _patterns() -> tuple[tuple[Identifier, re.Pattern[str]], ...]:
    return tuple((kind, re.compile(p, re.MULTILINE)) for kind, ps in RULES for p in ps)


def _spans(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    for match in pattern.finditer(text):
        name = next((name for name, found in match.groupdict().items() if found), None)
        yield match.span(name) if name else match.span()


def _trimmed(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Cut a name off at the first word that is none; None if nothing is left."""
    stop = start
    for word in re.finditer(r"[^\s,]+", text[start:end]):
        plain = word.group().strip(".'\u2019-").lower()
        if len(plain) == 1 and word.group()[-1] == "." and stop > start:
            stop = start + word.end()  # an initial
            continue
        if plain in NO_NAMES or (plain in known_words() and len(plain) > 3):
            break
        # A sentence may begin after the name: "Dr. Smith. The".
        stop = start + word.end()
        if word.group().endswith(".") and len(plain) > 3:
            stop -= 1
            break
    return (start, stop) if len(text[start:stop].strip(" .,")) > 1 else None


def _again(text: str, spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Find the words of names elsewhere in the text."""
    known = known_words()
    words = {
        word
        for start, end in spans
        for word in re.findall(r"[^\W\d_]{3,}", text[start:end])
        if word[0].isupper() and word.lower() not in NO_NAMES and word.lower() not in known
    }
    if words:
        forms = sorted({form for w in words for form in (w, w.upper(), w.capitalize())}, key=len)
        pattern = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, reversed(forms)))})(?!\w)")
        yield from (match.span() for match in pattern.finditer(text))
