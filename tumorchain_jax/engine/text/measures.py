"""Lengths in a text, in mm: one, several, or those of two or three axes.

A number without a unit is none: `1.2 x 0.8` may be anything. Where a list or a product names the
unit once, at its end, it holds for all. `text` is in small letters, as `Wording.text`.
"""

import re
from dataclasses import dataclass

_NUMBER = r"\d{1,5}(?:[.,]\d{1,3})?"
_UNIT = (
    r"(?:mm|cm|millimet(?:er|re)s?|centimet(?:er|re)s?|millimeter[ns]?|zentimeter[ns]?|毫米|厘米)"
)
_TIMES = r"[ \t]{0,3}(?:x|\*|by|mal)[ \t]{0,3}"
_AXES = rf"{_NUMBER}(?:[ \t-]{{0,2}}{_UNIT})?(?:[ \t]*\((?:ap|tr|cc|transverse|[a-z]{{2}})\))?"
_SIZE = rf"{_AXES}(?:{_TIMES}{_AXES}){{0,3}}"
_AND = (
    r"(?:[ \t]*,[ \t]*(?:and[ \t]+|und[ \t]+)?|[ \t]+(?:and|und|&|resp\.|bzw\.)[ \t]+|"
    r"[ \t]*/[ \t]*)"
)
_BEGIN = r"(?<![a-z0-9_äöüß.,/])"
_LETTER = r"[a-z0-9_äöüß]"
_MEASURE = re.compile(
    rf"{_BEGIN}(?<!\d \. )(?:{_SIZE}{_AND}){{0,11}}{_SIZE}[ \t-]{{0,2}}(?P<unit>{_UNIT})?"
    rf"(?!{_LETTER}|[ \t]?[/%])"
)
_RANGE = re.compile(
    rf"{_BEGIN}({_NUMBER})[ \t]?({_UNIT})?[ \t]?(?:-{{1,2}}>|=>|\u2192|-|to|"
    rf"bis)[ \t]?({_NUMBER})[ \t-]{{0,2}}({_UNIT})"
    rf"(?!{_LETTER})"
)
_ONE = re.compile(rf"({_NUMBER})(?:[ \t-]{{0,2}}({_UNIT}))?")
_PARTS = re.compile(_SIZE)
_CHANGE = re.compile(r"(?<!rang)(?<!ranging)(?<!sizes)(?<!vary)(?<!varying) (?:from|von)\s$")
_BY = re.compile(r"\b(?:by|um)\s$")
_UNIT_WORD = re.compile(_UNIT)
# A number after these is a name: "segment 7, 3 cm".
_LABEL = re.compile(
    r"(?<![a-z])(?:segments?|segm?\.?|levels?|images?|series|slices?|phase|grade|type|lesions?|"
    r"nodes?|no\.?|number|nr\.?|#|station|stage|category|s|couinaud|class|score|row|figure|bild|"
    r"serie)[ \t]{0,2}$"
)
_UNITS = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
_UNITS += "fifteen sixteen seventeen eighteen nineteen"
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_SMALL = {word: n for n, word in enumerate(_UNITS.split())}
_LARGE = {word: 10 * n for n, word in enumerate(_TENS.split(), 2)}
_SPOKEN_NUMBER = (
    rf"(?:(?:{'|'.join(_LARGE)})(?:[ -](?:{'|'.join(list(_SMALL)[1:10])}))?|{'|'.join(_SMALL)})"
)
_SPOKEN = re.compile(
    rf"\b({_SPOKEN_NUMBER})((?: point(?: (?:{'|'.join(list(_SMALL)[:10])}))+)?)[ -]({_UNIT})"
    r"(?![a-z])"
)
LEAST_MM, MOST_MM = 0.5, 400.0
"""Sizes of lesions beyond these are taken for a slip of the pen and left out."""


@dataclass(frozen=True)
class Measure:
    """A length.

    Attributes:
        mm: the largest axis.
        start, end: its characters, unit included where it stands there.
        upper: it is the upper end of a range.
    """

    mm: float
    start: int
    end: int
    upper: bool = False

    @property
    def is_plausible(self) -> bool:
        """Whether a lesion can be of this size."""
        return LEAST_MM <= self.mm <= MOST_MM


def find_measures(text: str, start: int, end: int, unit: str = "") -> list[Measure]:
    """Return the lengths in `text[start:end]`, from left to right.

    Args:
        text: in small letters.
        start, end: of a sentence.
        unit: what numbers without a unit are in, where the head of a table says so.
    """
    found: list[Measure] = []
    taken = start
    spans = []
    for match in _RANGE.finditer(text, start, end):
        mm = _mm(match[3], match[4])
        low = _mm(match[1], match[2] or match[4])
        lead = max(start, match.start() - 16), match.start()
        if _BY.search(text, *lead):
            continue
        arrow = text[match.start() : match.end()].find(">") > 0 or "\u2192" in match.group()
        if arrow or _CHANGE.search(text, *lead):
            # "Grown from 3 to 4 cm": two sizes, one of an earlier time.
            found.append(Measure(low, match.start(), match.end(2) if match[2] else match.end(1)))
            found.append(Measure(mm, match.start(3), match.end()))
            spans.append(match.span())
        elif low < mm:
            found.append(Measure(mm, *match.span(), upper=True))
            spans.append(match.span())
    for match in _MEASURE.finditer(text, start, end):
        if match.start() < taken or any(a < match.end() and match.start() < b for a, b in spans):
            continue
        taken = match.end()
        found += _of_list(match, unit)
    for match in _SPOKEN.finditer(text, start, end):
        found.append(Measure(_mm(_spoken(match[1], match[2]), match[3]), *match.span()))
    return sorted(found, key=lambda measure: measure.start)


def _spoken(whole: str, decimals: str) -> str:
    """Write a spoken number in digits: `four`, ` point two` as `4.2`."""
    number = sum(_LARGE.get(word, _SMALL.get(word, 0)) for word in re.split("[ -]", whole))
    return f"{number}." + "".join(str(_SMALL[word]) for word in decimals.split()[1:]) + "0"


def _of_list(match: re.Match[str], unit: str) -> list[Measure]:
    """Return the sizes of a list; those before the first unit take the next one's."""
    sizes: list[Measure] = []
    following = match["unit"] or unit
    parts = list(_PARTS.finditer(match.string, match.start(), match.end()))
    if _LABEL.search(match.string, max(0, match.start() - 12), match.start()):
        parts = [part for part in parts if part is parts[-1] or _UNIT_WORD.search(part.group())]
    for part in reversed(parts):
        own = _UNIT_WORD.search(part.group())
        following = own.group() if own else following
        if not following:
            continue
        axes = _ONE.findall(re.sub(r"\([^)]*\)", "", part.group()))
        last_unit = following
        lengths = []
        for number, axis_unit in reversed(axes):
            last_unit = axis_unit or last_unit
            lengths.append(_mm(number, last_unit))
        end = match.end() if part is parts[-1] else part.start() + len(part.group().rstrip())
        sizes.append(Measure(max(lengths), part.start(), end))
    return sizes[::-1]


def _mm(number: str, unit: str) -> float:
    scale = 1 if unit.startswith(("mm", "mill", "毫")) else 10
    return round(float(number.replace(",", ".")) * scale, 3)


_GERMAN = "ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf"
_ONES = (
    *("a", "an", "single", "solitary", "only", "lone", "eine", "einen", "einer", "einzelne"),
    *("einzelner", "einzelnen", "solitäre", "solitärer", "solitären", "singulär", "singuläre"),
)
_COUNTS = {
    **{word: number for word, number in _SMALL.items() if number},
    "twenty": 20,
    **{word: number for number, word in enumerate(_GERMAN.split(), 1)},
    **{word: number for number, word in enumerate("一二三四五六七八九十", 1)},
    **dict.fromkeys(_ONES, 1),
    **dict.fromkeys(("pair", "both", "couple", "beide", "两"), 2),
}


def count_of(word: str) -> int | None:
    """Return the whole number that a word or a numeral of at most two digits says."""
    if word.isdigit():
        return int(word) if len(word) <= 2 else None
    return _COUNTS.get(word)
