"""Numbers of things: before the noun, after it, or after a key."""

import re
from dataclasses import dataclass

from tumorchain_jax.engine.text.measures import count_of

_COUNT_KEY = re.compile(
    r"\b(?:counts?|numbers?(?: of (?:the )?(?:\w+ ){0,2}(?:lesions?|masses|tumou?rs?|nodules?|foci|"
    r"metastases|nodes|cysts))?|no\. of (?:lesions|nodes)|anzahl(?: der (?:herde|läsionen))?|"
    r"lesion count|multiplicity|how many)"
    r"\s*[:=|]\s*(?P<count>\d{1,2}\b(?![.,]\d|\s?(?:mm|cm))|[a-zäöü]+)"
)
_CHINESE_COUNT = re.compile(r"(\d{1,2}|[一二三四五六七八九十两]) ?[枚个处][^,;.。]*$")
_SKIPPED = re.compile(
    r"[^\S\n]*(?:[-,]|\b(?:and|or|of|the|hypo\w*|hyper\w*|iso\w*|\w+ly|\w+ed|\w+ing|\w+al|\w+ic|"
    r"\w+ous|\w+ar|\w+ac|left|right|upper|lower|\w+ent|\w+ant|\w+ive|\w+ior|small|large|largest|big|further|other|more|new|"
    r"separate|distinct|sharp|liver|low|high|density|attenuation|tiny|round|oval|dense|ill|well|"
    r"soft|tissue|lymph|short|axis|similar|mixed|vague|known|lung|bowel|adjacent|sized|"
    r"positive|subtle|dark|bright|deep|additional|discrete|possible|suspected|mm|cm|x|"
    r"\d+(?:[.,]\d+)?|weitere\w*|neue\w*|runde\w*|scharf|unscharf|begrenzte\w*|vergrößerte\w*|"
    r"\w+dense\w*|"
    r"große\w*|kleine\w*|pathologische\w*|\w+ige\w*|\w+iche\w*|\w+äre\w*|leber))[^\S\n]*$"
)


SEVERAL = "several"
"""The number of things that a report names in the plural and does not count."""
# "At least three", "two or three", "3-4", "up to five": no number that is known.
_ABOUT = re.compile(
    r"(?:^\s*of\s|\b(?:up to|at least|at most|more than|over|fewer than|less than|some|maybe|"
    r"perhaps|possibly|probably|mindestens|über|mehr als|bis zu|wenigstens|höchstens|"
    r"vermutlich)\s{1,2}|[<>\u2264\u2265]\s?|\b\d{1,2}-|\b(?:\d{1,2}|one|two|three|four|five|six|"
    r"seven|eight|nine|ein|zwei|drei|vier|fünf|sechs|sieben|acht|neun)\s(?:to|or|bis|oder)\s)$"
)
# "One more lesion" says how many were not told of yet.
_FURTHER = re.compile(r"\s+(?:more|further|additional|other|weitere\w*)\b")
_ROUGHLY = re.compile(
    r"(?:\b(?:about|approximately|approx|around|circa|ca|roughly|nearly|almost|etwa|rund|"
    r"ungefähr)\.?\s{1,2}|~\s?)$"
)
_OF = re.compile(
    r"(?<![\w.,])(\d{1,2}|[a-zäöü]{2,9})\s+(?:out of|of|von)\s+(?:(?:the|these|those|all|his|her|"
    r"its|den|diesen|insgesamt|known|previous\w*|prior|former\w*|total of|a total of)\s+){0,3}$|"
    r"(?<![\w.,])(\d{1,2}|[a-zäöü]{3,9})\s+(?:der|dieser)\s+$"
)
_OF_WORDS = frozenset({"of", "von", "der", "dieser"})
_AMONG = _OF_WORDS | {"the", "these", "those", "den", "diesen", "his", "her", "its", "all"}


@dataclass(frozen=True)
class Counted:
    """A number of things, and the characters that say it.

    Attributes:
        count: the number.
        start, end: its characters.
        share: it is of some among several: "two of the three nodes".
        rough: it is not exact: "about nine nodes".
    """

    count: int
    start: int
    end: int
    share: bool = False
    rough: bool = False


def count_before(text: str, begin: int, start: int) -> Counted | None:
    """Return the number before a noun with the characters that say it: "two hypodense [lesions]".

    A number that is only a bound or one of two, as "at least three", is none.

    Args:
        text: of the report.
        begin: of the sentence.
        start: of the noun.
    """
    if chinese := _CHINESE_COUNT.search(text, max(begin, start - 16), start):
        count = count_of(chinese[1])
        return None if count is None else Counted(count, *chinese.span(1))
    position, share = start, False
    for _ in range(12):
        before = text[max(begin, position - 40) : position].rstrip(" \t-\n(")
        position_end = max(begin, position - 40) + len(before)
        word = re.search(r"[\w.]+$", before)
        if not word:
            if before.endswith(","):
                position = position_end - 1
                continue
            return None
        at = position_end - len(word.group())
        count = count_of(word.group())
        lead = text[max(begin, at - 40) : at]
        if count is not None and not _is_label(lead[-14:], text[at:start]):
            part = _OF.search(lead)
            some = count_of(part[1] or part[2]) if part else None
            if part and some is not None:
                return Counted(some, at - len(lead) + part.start(), position_end, True)
            if _ABOUT.search(lead) or _FURTHER.match(text, position_end):
                return None
            return Counted(count, at, position_end, share, bool(_ROUGHLY.search(lead)))
        share |= word.group() in _OF_WORDS
        if word.group() not in _AMONG and not _SKIPPED.search(" " + word.group()):
            return None
        position = at
    return None


_COUNT_AFTER = re.compile(
    r"\s*(?:\((?:n ?= ?)?(?P<bracket>\d{1,2})\)|[x*] ?(?P<times>\d{1,2})\b(?!\s?(?:mm|cm|x))|"
    r"[:=|]\s*(?P<key>\d{1,2}|[a-zäöü]{3,8})\b(?!\s?(?:mm|cm|[.,]\d|x\b))|n ?= ?(?P<n>\d{1,2})\b|"
    r"(?P<bare>\d{1,2})(?=\s*(?:,|;|enlarged|\(|$|up to|with)))"
)


def count_after(text: str, start: int, end: int) -> Counted | None:
    """Return the number right after a noun: "nodes: 3", "nodes x 5", "nodes (n=4)"."""
    match = _COUNT_AFTER.match(text, start, end)
    if not match:
        return None
    name = next(name for name, found in match.groupdict().items() if found)
    count = count_of(match[name])
    return None if count is None else Counted(count, *match.span(name))


def _is_label(before: str, rest: str) -> bool:
    """Whether a number belongs to a length or a name: "3 cm", "segment 7"."""
    if re.match(r"\d+(?:[.,]\d+)?[\s-]*(?:mm|cm|x|%|/|\.\d)", rest):
        return True
    if rest[0].isdigit() and re.search(r"[.,/]\s*$", before):
        return True
    return bool(
        re.search(
            r"(?:(?:segments?|seg\.?|level|image|series|grade|stage|x|type|no\.?)\s*|[.,/])$",
            before,
        )
    )


def count_key(text: str, start: int, end: int) -> Counted | None:
    """Return the number that a key such as `Number of lesions:` gives, with its characters."""
    match = _COUNT_KEY.search(text, start, end)
    count = count_of(match["count"]) if match else None
    return Counted(count, *match.span("count")) if match and count is not None else None
