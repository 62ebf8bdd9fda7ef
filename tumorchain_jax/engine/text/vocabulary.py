"""Canonical terms of the facts with their synonyms, and the search of a text for them.

`vocabulary.tsv` and `german.tsv` hold the words; organs' names come from `anatomy/organs.py` too.
The longest term counts where several begin at the same word, as in a dictionary of phrases.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources

from tumorchain_jax.anatomy.organs import NAMES, display_name
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.engine.text.wording import Word, Wording, key_of

FILES = ("vocabulary.tsv", "german.tsv")
KINDS = (
    "organ", "part", "weak part", "none", "lesion", "node", "nodal organ", "sign", "density",
    "shape", "boundary", "impression", "state", "normal", "not normal", "rest", "history",
    "histology",
)  # fmt: skip
_LUNGS = {10, 11, 12, 13, 14}
# What may stand between two words of a term.
_GAP = re.compile(r"[ \-_/']{0,4}|[ ]{0,4}-?\n[ ]{0,8}|\s{0,2}[:=|]\s{0,2}")
# "Ca. 42 mm" is a size, "Ca" before a word a carcinoma.
_CIRCA = re.compile(r"ca\.?\s{1,2}\d")
_COUINAUD = re.compile(r"s(?:eg)?([2-8])([ab]?)|s([iv]+)([ab]?)")
_GERMAN_PLURALS = (
    *("metastasen", "zysten", "herde", "läsionen", "tumoren", "tumore", "karzinome", "hämangiome"),
    *("raumforderungen", "tumorformationen", "filiae", "knoten", "granulome", "divertikel"),
    *("gallensteine", "foci", "calculi", "diverticula", "thrombi", "noduli"),
)
# Names of organs in `anatomy/organs.py` that are findings here.
_FINDING_IN_NAME = re.compile(r"\bcysts?\b|hydronephrosis|lithiasis|megaly|cirrhosis|stones?\b")
_SHORTENED = frozenset(
    {"seg", "segm", "lt", "rt", "l", "r", "hep", "panc", "asc", "desc", "prox", "dist"}
)
_AND_SEGMENT = re.compile(
    r"(?:\s?\([^()\n]{0,30}\))?\s{0,2}(?:,|/|&|\+|and|und|or)\s{0,2}(?:and |und |segment )?(?:s|"
    r"seg\.? ?)?([2-8]|"
    r"[iv]{1,4})([ab]?)"
    r"(?![\w.,]?\d|\w|\s?(?:mm|cm|x\s?\d))"
)
_PLAIN_SEGMENT = re.compile(r"iv[ab]|ii|iii|iv|vi{1,3}")
_IN_SEGMENT = re.compile(r"\b(?:in|within|im)\s$")
_NO_SEGMENT = re.compile(
    r"(?:stage|stadium|type|typ|class|grade|group|category|level|zone|bosniak|lane)\s$"
)
_ROMAN = {"2": "II", "3": "III", "4": "IV", "5": "V", "6": "VI", "7": "VII", "8": "VIII"}


@dataclass(frozen=True, slots=True)
class Entry:
    """A meaning of a term.

    Attributes:
        kind: one of `KINDS`.
        value: the canonical word; of an organ its name, or several joined by `+`.
        organ: the organ that it belongs to, or empty.
    """

    kind: str
    value: str
    organ: str = ""


@dataclass(frozen=True, slots=True)
class Term:
    """A term in a text.

    Attributes:
        entries: its meanings; more than one where the organ decides.
        start, end: its characters in `Wording.text`.
        plural: the last word stands in the plural.
    """

    entries: tuple[Entry, ...]
    start: int
    end: int
    plural: bool

    @property
    def kind(self) -> str:
        """The kind of its first meaning."""
        return self.entries[0].kind

    @property
    def value(self) -> str:
        """The value of its first meaning."""
        return self.entries[0].value

    def meaning(self, organ: str) -> Entry | None:
        """Return the meaning that belongs to an organ."""
        return next((entry for entry in self.entries if entry.organ == organ), None)


def find_terms(wording: Wording, start: int, end: int) -> list[Term]:
    """Return the terms of a sentence from left to right; of two that overlap, the longer one.

    Args:
        wording: of the report.
        start, end: characters of the sentence in its text.

    A sign may begin within an organ's name: "pancreatic duct is dilated" names both.
    """
    found: list[Term] = []
    k, count = wording.words_between(start, end)
    while k < count:
        term, length = _term_at(wording, k, count)
        if term and term.kind == "organ" and ":" in wording.text[term.start : term.end]:
            # "Kidneys: right normal, left with a cyst".
            key = next(n for n in range(k, count) if ":" in _after(wording, n))
            term, length = _term_at(wording, k, key + 1)
        if term is None or _CIRCA.match(wording.text, term.start):
            k += 1
            continue
        found.append(term)
        if term.value.startswith("liver segment"):
            found += _further_segments(wording, term)
        if term.kind in ("organ", "part", "none"):
            for later in range(k + 1, k + length):
                inner, size = _term_at(wording, later, count)
                if inner and inner.kind == "sign" and later + size > k + length:
                    found.append(inner)
                    length = later + size - k
                    break
        k += length
    return found


def _after(wording: Wording, k: int) -> str:
    """Return what stands between a word and the next one."""
    return wording.text[wording.words[k].end : wording.words[k + 1].start]


def _is_joined(text: str, left: Word, right: Word) -> bool:
    """Whether two words may belong to one term: nothing much stands between them."""
    if _GAP.fullmatch(text, left.end, right.start):
        return True
    return left.key in _SHORTENED and text[left.end : right.start] in (".", ". ")


def _further_segments(wording: Wording, term: Term) -> Iterator[Term]:
    """Yield the other numbers of "segments V, VI and VIII"."""
    end = term.end
    while match := _AND_SEGMENT.match(wording.text, end):
        number, letter = _ROMAN.get(match[1], match[1].upper()), match[2]
        if number not in _ROMAN.values() or (letter and number != "IV"):
            return
        entry = Entry("part", f"liver segment {number}{letter}", "liver")
        yield Term((entry,), match.start(1), match.end(), False)
        end = match.end()


def _term_at(wording: Wording, k: int, count: int) -> tuple[Term | None, int]:
    """Return the longest term that begins at a word, and how many words it has."""
    words, text = wording.words, wording.text
    node, entries, length = _tree(), None, 0
    for n in range(k, count):
        if n > k and not _is_joined(text, words[n - 1], words[n]):
            break
        following = node.branches.get(words[n].key)
        if following is None:
            break
        node = following
        if node.entries:
            entries, length = tuple(node.entries), n + 1 - k
    if not length and (entry := _couinaud(text[words[k].start : words[k].end])):
        entries, length = (entry,), 1
    if not length and (entry := _plain_segment(text, words[k])):
        entries, length = (entry,), 1
    if entries is None:
        return None, 0
    last = words[k + length - 1]
    word = text[last.start : last.end]
    plural = (word != last.key and word[-1] in "sa") or word.endswith(_GERMAN_PLURALS)
    return Term(entries, words[k].start, last.end, plural), length


@cache
def known_words() -> frozenset[str]:
    """Return every word of the terms in small letters, as the files spell it."""
    phrases = [*NAMES, *(phrase for phrase, _ in _lines())]
    return frozenset(word for phrase in phrases for word in _words_of(phrase))


def _couinaud(word: str) -> Entry | None:
    """Read `s7`, `seg7` or `s4a` as a liver segment."""
    match = _COUINAUD.fullmatch(word)
    if not match:
        return None
    number = _ROMAN.get(match[1] or "", (match[3] or "").upper())
    letter = match[2] or match[4] or ""
    if number not in _ROMAN.values() or (letter and number != "IV"):
        return None
    return Entry("part", f"liver segment {number}{letter}", "liver")


def _plain_segment(text: str, word: Word) -> Entry | None:
    """Read `IVb`, or `in VI`, as a liver segment."""
    letters = text[word.start : word.end]
    if not _PLAIN_SEGMENT.fullmatch(letters):
        return None
    before = text[max(0, word.start - 12) : word.start]
    if _NO_SEGMENT.search(before) or (letters[-1] not in "ab" and not _IN_SEGMENT.search(before)):
        return None
    number = letters.rstrip("ab")
    letter = letters[len(number) :]
    return Entry("part", f"liver segment {number.upper()}{letter}", "liver")


@dataclass(slots=True)
class _Node:
    """A branch of the tree of phrases: what may follow, and what the phrase means if it ends."""

    branches: dict[str, "_Node"]
    entries: list[Entry]


@cache
def _tree() -> _Node:
    root = _Node({}, [])
    for phrase, entry in _lines():
        node = _grow(root, phrase)
        if entry not in node.entries:
            node.entries.append(entry)
    for name, labels in NAMES.items():
        if _FINDING_IN_NAME.search(name):
            continue
        node = _grow(root, name)
        if not node.entries:
            node.entries.append(_organ(labels))
    return root


def _grow(node: _Node, phrase: str) -> _Node:
    for word in _words_of(phrase):
        node = node.branches.setdefault(key_of(word), _Node({}, []))
    return node


def _organ(labels: tuple[int, ...]) -> Entry:
    if not labels:
        return Entry("none", "")
    if set(labels) <= _LUNGS and len(labels) > 1:
        return Entry("organ", "lungs")
    return Entry("organ", "+".join(display_name(label) for label in labels))


def _words_of(phrase: str) -> list[str]:
    wording = Wording(phrase, {})
    return [wording.text[word.start : word.end] for word in wording.words]


@cache
def _lines() -> tuple[tuple[str, Entry], ...]:
    """Every phrase of the files with its meaning."""
    return tuple(line for name in FILES for line in _of_file(name))


def _of_file(name: str) -> Iterator[tuple[str, Entry]]:
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        fields = line.split("\t")
        if len(fields) != 4 or fields[0] not in KINDS:
            expected = f"kind, value, organ, phrases; a kind of {', '.join(KINDS)}"
            raise InputError(f"{name}:{number}", "line", line, expected, "part them by tabs")
        kind, value, organ, phrases = fields
        for pattern in phrases.split(";"):
            for phrase in expand(pattern.strip()):
                yield " ".join(phrase.split()), Entry(kind, value, organ)


def expand(pattern: str) -> Iterator[str]:
    """Write out a pattern: `a {b,c} d` as `a b d` and `a c d`; braces may hold braces."""
    start = pattern.find("{")
    if start < 0:
        yield pattern
        return
    depth, piece, choices = 1, start + 1, []
    for k in range(start + 1, len(pattern)):
        depth += {"{": 1, "}": -1}.get(pattern[k], 0)
        if (depth == 1 and pattern[k] == ",") or depth == 0:
            choices.append(pattern[piece:k])
            piece = k + 1
        if depth == 0:
            break
    for choice in choices:
        for middle in expand(choice):
            for end in expand(pattern[piece:]):
                yield pattern[:start] + middle + end
