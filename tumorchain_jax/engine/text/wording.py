"""A report's text with spelling made even, and the way back to its own characters.

Letters are small, typographic signs plain, and words that are misspelt forms of known ones put
right. Every word knows the characters of the report that it came from; facts quote only those.
"""

import bisect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

# Signs that stand for another, one for one: spaces, dashes, quotes, the multiplication sign.
_PLAIN = str.maketrans(
    {
        **dict.fromkeys("\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009", " "),
        **dict.fromkeys(
            "\u200a\u200b\u200c\u200d\u202f\u205f\u2060\u3000\ufeff\u00ad\t\f\v\r", " "
        ),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        **dict.fromkeys("\u2018\u2019\u201b\u2032\u00b4", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u2033", '"'),
        **dict.fromkeys("\u00d7\u2715\u2716\u2a2f", "x"),
        **dict.fromkeys("\u2022\u25cf\u25aa\u00b7\u2023\u25e6", "*"),
        **dict(zip("\uff1a\uff1b\uff0c\uff08\uff09\u3001", ":;,(),", strict=True)),
    }
)
# The full stop of an abbreviation that never ends a sentence: "met vs. cyst".
_ABBREVIATED = re.compile(
    r"(?<![^\W_])(?:vs|resp|approx|ca|incl|bzw|ggf|evtl|dd)\.(?=[ \t])", re.IGNORECASE
)
# A tab between two columns.
_CELL = re.compile(r"(?<=\S)\t(?=\S)")
_WORD = re.compile(
    r"[0-9]+(?:[.,][0-9]+)*|[\u3400-\u9fff]|[^\W\d_\u3400-\u9fff]+(?:[0-9]+[a-z]?(?![a-z]))?"
)
# A word that the end of a line parts.
BROKEN = re.compile(r"(?<![^\W_])[^\W\d_]+-[ ]{0,3}\n[ ]{0,12}[^\W\d_]+(?![^\W_])")
# British and older spellings -> the one that keys have.
_SPELLINGS = (
    ("oesoph", "esoph"),
    ("haem", "hem"),
    ("tumour", "tumor"),
    ("caec", "cec"),
    ("coeliac", "celiac"),
    ("oedema", "edema"),
    ("faec", "fec"),
    ("centre", "center"),
    ("fibre", "fiber"),
    ("neighbour", "neighbor"),
    ("calibre", "caliber"),
    ("signalling", "signaling"),
    ("ä", "ae"),
    ("ö", "oe"),
    ("ü", "ue"),
    ("ß", "ss"),
)
_LEAST_LETTERS = 5
_NUMERALS = {"vii", "viii", "iii"}


@dataclass(frozen=True, slots=True)
class Word:
    """A word or number.

    Attributes:
        key: spelling made even, without the plural's ending.
        start, end: its characters in `Wording.text`.
    """

    key: str
    start: int
    end: int


def key_of(word: str) -> str:
    """Return what a word in small letters is looked up by."""
    for old, new in _SPELLINGS:
        if old in word:
            word = word.replace(old, new)
    word = word.replace("oesoph", "esoph")
    if len(word) > 3 and word.endswith("s") and word not in _NUMERALS:
        if word.endswith(("sses", "xes")):
            return word[:-2]
        if word.endswith("ies"):
            return word[:-3] + "y"
        if word.endswith(("ases", "oses", "yses")):
            return word[:-2] + "is"
        if not word.endswith(("ss", "us", "is")):
            return word[:-1]
    return word


def even(text: str) -> str:
    """Return a text of the same length in small letters with plain signs."""
    plain = _CELL.sub("|", text).translate(_PLAIN)
    plain = _ABBREVIATED.sub(lambda match: match.group()[:-1] + " ", plain)
    lower = plain.lower()
    if len(lower) != len(plain):
        lower = "".join(c.lower() if len(c.lower()) == 1 else c for c in plain)
    return lower


def _pieces(text: str, corrections: Mapping[str, str]) -> Iterator[re.Match[str]]:
    """Yield the words and numbers of an even text; words that a line's end parts as one."""
    done = 0
    for broken in BROKEN.finditer(text):
        if broken.group() in corrections:
            yield from _WORD.finditer(text, done, broken.start())
            yield broken
            done = broken.end()
    yield from _WORD.finditer(text, done)


class Wording:
    """The even text of a report.

    Attributes:
        original: as read.
        text: the even text; its length may differ where a word was put right.
        cased: the same with the report's capitals.
        words: of `text`, in order.
    """

    def __init__(self, original: str, corrections: Mapping[str, str]):
        """Make a text even.

        Args:
            original: the report.
            corrections: misspelt word -> word, both in small letters; a compound -> its parts; a
                word with the hyphen and the end of the line that part it -> the word.
        """
        self.original = original
        lower = even(original)
        self._starts: list[int] = [0]
        self._shifts: list[int] = [0]
        pieces: list[str] = []
        cased: list[str] = []
        self.words: list[Word] = []
        done = shift = 0
        for match in _pieces(lower, corrections):
            word = match.group()
            right = corrections.get(word)
            start = match.start() + shift
            if right is None:
                self.words.append(Word(key_of(word), start, start + len(word)))
                continue
            pieces += lower[done : match.start()], right
            cased += original[done : match.start()], right if match[0] == original[
                match.start() : match.end()
            ] else right.upper()  # fmt: skip
            done = match.end()
            position = start
            for part in right.split():
                if position > start:
                    shift += 1  # the space that parts a compound
                    self._begin(position, shift)
                self.words.append(Word(key_of(part), position, position + len(part)))
                position += len(part) + 1
            if " " not in right:
                shift += len(right) - len(word)
                self._begin(start + len(right), shift)
        self.text = "".join(pieces) + lower[done:]
        self.cased = "".join(cased) + original[done:]

    def _begin(self, position: int, shift: int) -> None:
        """Note that from a position on the even text is `shift` characters ahead."""
        self._starts.append(position)
        self._shifts.append(shift)

    def original_span(self, start: int, end: int) -> tuple[int, int]:
        """Return the report's characters for `start` to `end` of the even text."""
        return self._back(start), self._back(end)

    def _back(self, position: int) -> int:
        shift = self._shifts[bisect.bisect_right(self._starts, position) - 1]
        return position - shift

    def words_between(self, start: int, end: int) -> tuple[int, int]:
        """Return the range of `words` that lie within `start` to `end`."""
        first = bisect.bisect_left(self.words, start, key=lambda word: word.start)
        last = bisect.bisect_right(self.words, end, key=lambda word: word.end)
        return first, max(first, last)
