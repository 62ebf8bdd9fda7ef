"""Misspelt words of a report put right where one known word is one slip away.

A slip is a letter left out, doubled, changed, or two letters swapped; the first letter must be
right. Words that are none of ours but right as they are stand in `common_words.txt`. German
compounds of an organ and a finding are parted.
"""

import re
from collections.abc import Iterator
from functools import cache
from importlib import resources

from tumorchain_jax.engine.text.cues import cue_phrases
from tumorchain_jax.engine.text.vocabulary import known_words
from tumorchain_jax.engine.text.wording import BROKEN, even

_WORD = re.compile(r"[^\W\d_\u3400-\u9fff]{3,}")
_LEAST, _MOST = 5, 24
# Words that the rules for sizes, depth, time and sections look for besides the terms and cues.
_RULES = re.findall(
    r"\w+",
    """
    measures measuring measured measure diameter dimension largest maximum approximately confined
    limited extends extending reaches reaching invades infiltrates infiltrating growing beyond
    through surface serosa surrounding perigastric pericolic muscularis mucosa submucosa
    previously formerly currently unchanged stable increased decreased larger smaller enlarged
    suspicious consistent compatible several multiple another second further additional findings
    impression conclusion history technique comparison recommendation pathology located within
    involving arising adjacent near around between segment section density attenuation contrast
    shows there stage staging
    """,
)
_SHORT_DENIALS = ("not", "none", "seen", "free")
_NO_SLIPS = frozenset({"non", "noe", "one", "see", "fee", "een"})
_BEFORE_HYPHEN = frozenset(
    {"left", "right", "well", "ill", "low", "high", "mid", "soft", "post", "pre", "non", "multi"}
    | {"thin", "thick", "contrast", "long", "short"}
)
_GLUED = ("no", "not", "without", "ohne", "keine", "kein")
_GLUED_LAST = ("in", "of", "is", "are")
_ENDINGS = "sderyn"
_PREFIXES = (
    *("leber", "pankreaskopf", "pankreasschwanz", "pankreaskörper", "pankreaskorpus", "pankreas"),
    *("magenantrum", "magenkorpus", "magenfundus", "magen", "antrum", "kolon", "colon", "sigma"),
    *("dickdarm", "rektum", "zökum", "coecum", "ösophagus", "oesophagus", "milz", "nieren"),
    *("lungen", "nebennieren", "peritoneal"),
)
_HEADS = (
    *("zyste", "zysten", "läsion", "läsionen", "metastase", "metastasen", "tumor", "tumoren"),
    *("tumors", "karzinom", "karzinome", "karzinoms", "raumforderung", "raumforderungen", "herd"),
    *("herde", "rundherd", "rundherde", "hämangiom", "hämangiome", "knoten", "granulom"),
    *("wandverdickung", "neoplasie", "abszess", "adenom", "filiae", "verkalkung"),
)


def corrections(text: str) -> dict[str, str]:
    """Return misspelt word -> word, and compound -> its parts with a space between them."""
    known = _known()
    found = _spoken_signs(text) | dict(_rejoined(text))
    for word in set(_WORD.findall(even(text))):
        if word not in known and len(word) <= _MOST:
            right = _parts(word) or _right(word)
            if right:
                found[word] = right
    return found


def _rejoined(text: str) -> Iterator[tuple[str, str]]:
    """Yield the words that the end of a line parts: `le-`, `sion`. Compounds keep their hyphen."""
    known = _known()
    for match in BROKEN.finditer(even(text)):
        first, last = (piece.strip() for piece in match.group().split("-"))
        kept = first in _BEFORE_HYPHEN or {first, last} <= known
        if first + last in known or not kept:
            yield match.group(), first + last


def _spoken_signs(text: str) -> dict[str, str]:
    """Return the signs that a dictated text spells out; one word alone may be meant as a word."""
    said = {word: len(re.findall(rf"\b{word}\b", even(text))) for word in ("comma", "period")}
    signs = {"comma": ",", "period": "."}
    return {word: signs[word] for word, times in said.items() if times > 1 or min(said.values())}


def _parts(word: str) -> str | None:
    """Return the words of a compound, or of two that no space parts: "noevidence"."""
    if word in _compounds():
        return _compounds()[word]
    for first in _GLUED:
        rest = word.removeprefix(first)
        if rest != word and len(rest) > 3 and rest in _targets():
            return f"{first} {rest}"
    for last in _GLUED_LAST:
        rest = word.removesuffix(last)
        if rest != word and len(rest) > 3 and rest in _targets():
            return f"{rest} {last}"
    return None


def _right(word: str) -> str | None:
    """Return the only known word that is one slip away."""
    if short := _short_slips().get(word):
        return short
    if len(word) < 4:
        return None
    if len(word) < _LEAST:
        candidates = {
            right for right in _swaps(word) if right in _targets() and len(right) == len(word)
        }
    else:
        index = _index()
        keys = {word, *_deletions(word)}
        candidates = {
            right
            for key in keys
            for right in index.get(key, ())
            if right[0] == word[0] and _is_one_slip(word, right)
        }
    # The forms of one word count as one.
    if len({right.rstrip("s") for right in candidates}) != 1:
        stem = _right(word.removesuffix("es")) if word.endswith("es") else None
        return f"{stem}es" if stem and not candidates else None
    return min(candidates, key=lambda right: (abs(len(right) - len(word)), right))


def _is_one_slip(word: str, right: str) -> bool:
    if word[:-1] == right[:-1] or (word[:-1] == right and word[-1] in _ENDINGS):
        return False  # rather another form of the word: infiltrates, infiltrated
    if abs(len(word) - len(right)) > 1:
        return False
    if len(word) == len(right):
        wrong = [k for k in range(len(word)) if word[k] != right[k]]
        if len(wrong) == 2 and wrong[1] == wrong[0] + 1:
            return word[wrong[0]] == right[wrong[1]] and word[wrong[1]] == right[wrong[0]]
        return len(wrong) == 1
    longer, shorter = (word, right) if len(word) > len(right) else (right, word)
    return shorter in set(_deletions(longer))


def _deletions(word: str) -> Iterator[str]:
    for k in range(len(word)):
        yield word[:k] + word[k + 1 :]


def _swaps(word: str) -> Iterator[str]:
    for k in range(1, len(word) - 1):
        yield word[:k] + word[k + 1] + word[k] + word[k + 2 :]


@cache
def _short_slips() -> dict[str, str]:
    """Short words that deny, misspelt: a letter doubled, two swapped, one of four left out."""
    slips: dict[str, str] = {}
    for word in _SHORT_DENIALS:
        wrong = {word[:k] + word[k] + word[k:] for k in range(len(word))}
        wrong |= {word[:k] + word[k + 1] + word[k] + word[k + 2 :] for k in range(1, len(word) - 1)}
        if len(word) > 3:
            wrong |= {word[:k] + word[k + 1 :] for k in range(1, len(word))}
        slips |= {slip: word for slip in wrong if slip != word and slip not in _NO_SLIPS}
    return slips


@cache
def _targets() -> frozenset[str]:
    words = {word for phrase in cue_phrases() for word in _WORD.findall(phrase)}
    return frozenset(word for word in words | known_words() | set(_RULES) if _WORD.fullmatch(word))


@cache
def _known() -> frozenset[str]:
    text = resources.files(__package__).joinpath("common_words.txt").read_text(encoding="utf-8")
    words = _targets() | set(text.split())
    return words | {f"{word}s" for word in words} | {f"{word}es" for word in words}


@cache
def _index() -> dict[str, tuple[str, ...]]:
    index: dict[str, list[str]] = {}
    for word in sorted(_targets()):
        if len(word) >= _LEAST:
            for key in {word, *_deletions(word)}:
                index.setdefault(key, []).append(word)
    return {key: tuple(words) for key, words in index.items()}


@cache
def _compounds() -> dict[str, str]:
    return {f"{organ}{head}": f"{organ} {head}" for organ in _PREFIXES for head in _HEADS}
