"""Left or right: on which side of a paired organ a report puts a thing."""

import re
from collections.abc import Sequence
from dataclasses import replace

from tumorchain_jax.engine.text.places import Place

_PAIRED = {"kidney": "kidneys", "adrenal gland": "adrenal glands", "lung": "lungs"}
"""Paired organs, and what they are called where the side is not said."""
_EITHER = {name: single for single, name in _PAIRED.items()}
_BOTH = re.compile(
    r"\b(?:both|bilateral\w*|each|either|on each side|on both sides|beide\w*|beidseit\w*|bds|"
    r"beiderseits)\b|双"
)
_SIDES = {
    "left": re.compile(r"\b(?:left(?:[- ]sided)?|lt|links|linke[rnsm]?|linksseitig\w*|l)\b"),
    "right": re.compile(r"\b(?:right(?:[- ]sided)?|rt|rechts|rechte[rnsm]?|rechtsseitig\w*|r)\b"),
}
_PIECE = re.compile(r"[,;]|\b(?:and|but|while|whereas|und|aber)\b|\.\s")


def side_of(text: str, start: int, end: int) -> str:
    """Return the side whose word stands right before or after a size, or an empty text."""
    before, after = text[max(0, start - 16) : start], text[end : end + 16]
    for side, pattern in _SIDES.items():
        if re.search(rf"(?:{pattern.pattern})\W*$", before):
            return side
    for side, pattern in _SIDES.items():
        if re.match(rf"\s*\(?(?:on the |at the )?(?:{pattern.pattern})", after):
            return side
    return ""


def on_its_side(
    text: str,
    span: tuple[int, int],
    start: int,
    end: int,
    places: Sequence[Place],
    absent: bool = False,
) -> tuple[Place, ...]:
    """Return the places of a thing with the side that its words give.

    "Adrenals: a nodule on the left" is about one of them, and a nodule of which no side is said
    is on neither: then the pair is named. What is denied without a side is denied on both.

    Args:
        text: of the report.
        span: of the sentence.
        start, end: of the thing.
        places: as the words for the organ alone give them.
        absent: the thing is denied.
    """
    found: list[Place] = []
    for place in places:
        side, _, single = place.organ.partition(" ")
        twins = [p for p in places if p.organ in (f"left {single}", f"right {single}")]
        if single in _PAIRED and side in _SIDES and len({p.organ for p in twins}) == 2:
            organs = _sided(text, span, start, end, single, absent)
        elif absent:
            organs = (place.organ,)
        elif place.organ in _EITHER:
            organs = _sided(text, span, start, end, _EITHER[place.organ], absent)
        else:
            organs = (place.organ,)
        found += (replace(place, organ=organ) for organ in organs)
    return tuple(dict.fromkeys(found))


def _sided(
    text: str, span: tuple[int, int], start: int, end: int, single: str, absent: bool
) -> tuple[str, ...]:
    pair = f"left {single}", f"right {single}"
    edges = [match.span() for match in _PIECE.finditer(text, *span)]
    first = max([span[0], *(b for _, b in edges if b <= start)])
    last = min([span[1], *(a for a, _ in edges if a >= end)])
    for begin, stop in ((first, last), (first, last) if absent else span):
        words = text[begin:stop]
        if _BOTH.search(words):
            return pair
        named = [side for side, pattern in _SIDES.items() if pattern.search(words)]
        if len(named) == 1:
            return (f"{named[0]} {single}",)
        if named:
            break
    if absent or (len(named) == 2 and (first, last) == span):
        return pair
    return (_PAIRED[single],)
