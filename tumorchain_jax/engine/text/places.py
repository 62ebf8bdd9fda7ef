"""Where a sentence says that something is: organs, their parts, and which of them is meant."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tumorchain_jax.engine.text.vocabulary import Entry, Term

# What follows these is not where the thing is, but what it touches, leaves or is compared with.
_BESIDE = re.compile(
    r"\b(?:abut\w*|adjacent to|adjoin\w*|next to|near(?: to)?|close to|contiguous with|contact\w*|"
    r"in contact with|touch\w*|displac\w+|compress\w+|indent\w*|imprint\w*|push\w*|encas\w+|"
    r"invad\w+|invasion (?:of|into)|infiltrat\w+(?: of| into)?|extend\w* (?:in)?to(?:wards?)?|"
    r"extension (?:in)?to|reach\w*(?: into)?|grow\w* (?:in)?to|toward\w*|separate\w* from|"
    r"distinct from|anterior to|posterior to|medial to|lateral to|inferior to|superior to|behind|"
    r"beneath|below|above|beside|relative to|than|compared? (?:to|with)|in comparison (?:to|with)|"
    r"isodense to|hypodense to|hyperdense to|similar to|versus|away from|from|border\w* on|"
    r"neighbou?ring|cross\w*|involv\w+ of|fat plane (?:with|to)|plane (?:with|to)|spar\w+|"
    r"origin in|"
    r"primary (?:in|of)|origin\w* outside|as the|like the|"
    r"(?:from|of a|by) (?:[^\W\d]\w+ ){0,3}(?:tumou?r|cancer|carcinoma) (?:of|in)|"
    r"angrenzend an|neben|benachbart|zu|gegenüber|im vergleich zu|infiltriert|grenzt an|bis in)\W+"
    r"(?:(?:the|a|an|its|both|adjacent|surrounding|nearby|neighbou?ring|normal|healthy|fat|wall|"
    r"of|around|anterior|posterior|der|die|das|den|dem|dorsal|caudal|cranial|rest)\W+){0,4}$"
)
_ORIGIN = re.compile(
    r"\b(?:aris\w+|originat\w+|emanat\w+|spring\w*|ausgehend|centred|centered)\W+(?:from|out of|"
    r"von)"
    r"\W+(?:(?:the|der|dem|wall|of)\W+){0,3}$"
)
# What a tumour that was told of before "involves" is a neighbour, if it is another organ.
_INVOLVES = re.compile(
    r"\b(?:it|(?:the|this|that) (?:[\w-]+ ){0,3}?(?:tumou?r|mass|lesion|cancer|carcinoma|"
    r"neoplasm|growth|"
    r"process)) (?:(?:now|also|then) )*(?:involves?|affects?)\W+(?:(?:the|its|adjacent|"
    r"both) ){0,3}$"
)
_AROUND = re.compile(
    r"\b(?:near(?: to)?|adjacent to|next to|around|along|beside|close to|alongside|surrounding|"
    r"neben|um)\W+(?:(?:the|der|die|das)\W+){0,2}$"
)
_IN = re.compile(
    r"\b(?:in|of|within|at|on|inside|involving|affecting|occupying|throughout|from|to|into|over|"
    r"centered (?:in|on|at)|centred (?:in|on|at)|im|in der|des|der|am|an der|aus|innerhalb)\W+"
    r"(?:(?:the|both|either|each|a|an|his|her|this|proximal|distal|mid|middle|upper|lower|medial|"
    r"lateral|anterior|posterior|superior|inferior|entire|whole|den|dem|der|das|die|left|right|"
    r"region of|area of|wall of|level of|junction of|parenchyma of|visualized|visible|"
    r"known)\W+){0,4}$"
)
_JOIN = re.compile(
    r"[\s,/()&+-]*(?:(?:and|or|nor|as well as|plus|und|oder|sowie)\b\s*(?:also |in |of |to |"
    r"within )?)?(?:(?:the|both|in|of|its|der|die|das|den|dem|im)\s+)*[\s(]*"
)
_LIST_JOIN = re.compile(r"[\s,/]*(?:(?:and|or|nor|und|oder|no|noch)\s+)*(?:\w+\s+){0,2}")
_AND = re.compile(r"\b(?:and|or|nor|as well as|plus|und|oder|sowie)\b|&|\+")
_BREAK = re.compile(
    r";|\.\s|\bbut\b(?! for\b)|\bwhile\b|\bwhereas\b|\bhowever\b|\baber\b|\bjedoch\b"
)
# "The left lobe" of an abdomen is the liver's, unless another organ with lobes is spoken of.
_LOBES = ("left lobe of the liver", "right lobe of the liver")
_OTHER_LOBES = re.compile(r"\b(?:thyroid|thymus|prostat\w*|lungs?|pulmonary|brain|schilddrüse)\b")
LOCATING = ("organ", "part", "weak part", "nodal organ")


@dataclass(frozen=True, slots=True)
class Place:
    """An organ, and a part of it or an empty text."""

    organ: str
    part: str = ""


@dataclass(frozen=True, slots=True)
class Locus:
    """A place as named in a sentence.

    Attributes:
        places: what it names; several for `both kidneys`.
        start, end: its characters in `Wording.text`.
        beside: it is named as a neighbour, an origin or for comparison.
        around: it is named as what something lies near to.
    """

    places: tuple[Place, ...]
    start: int
    end: int
    beside: bool = False
    around: bool = False


def find_loci(text: str, start: int, terms: Sequence[Term], near: Iterable[str]) -> list[Locus]:
    """Return the places that a sentence names.

    Args:
        text: of the report.
        start: of the sentence.
        terms: of the sentence.
        near: organs that are spoken of around it, the nearest first; "the tail" alone is one of
            the pancreas only among these.
    """
    strong = [term for term in terms if term.kind in ("organ", "part")]
    loci = []
    near = tuple(near)
    lobed = _OTHER_LOBES.search(text, max(0, start - 80), start + 200)
    for term in terms:
        liver = ("liver",) if term.value in _LOBES and not lobed else ()
        places = _places(term, strong, (*near, *liver))
        if places:
            before = text[max(start, term.start - 70) : term.start]
            beside = bool(_BESIDE.search(before)) and not _ORIGIN.search(before)
            elsewhere = bool(near) and not {place.organ for place in places} & {*near}
            beside |= elsewhere and bool(_INVOLVES.search(before))
            around = beside and bool(_AROUND.search(before))
            loci.append(Locus(places, term.start, term.end, beside, around))
    return _pass_on(text, loci)


def _places(term: Term, strong: Sequence[Term], near: Iterable[str]) -> tuple[Place, ...]:
    if term.kind == "organ":
        return tuple(Place(organ) for organ in term.value.split("+"))
    if term.kind == "part":
        return (Place(term.entries[0].organ, term.value),)
    if term.kind == "nodal organ":
        return (Place(term.entries[0].organ),)
    if term.kind == "weak part":
        by_distance = sorted(strong, key=lambda other: abs(other.start - term.start))
        named = [_organ_of(other.entries[0]) for other in by_distance]
        for organ in (*named, *near):
            if entry := term.meaning(organ):
                return (Place(organ, entry.value),)
    return ()


def _organ_of(entry: Entry) -> str:
    return entry.organ if entry.kind == "part" else entry.value


def _pass_on(text: str, loci: list[Locus]) -> list[Locus]:
    """Let what is joined to a neighbour by `and` be a neighbour too."""
    passed: list[Locus] = []
    for locus in loci:
        last = passed[-1] if passed else None
        if last and last.beside and not locus.beside and _are_joined(text, last, locus):
            locus = Locus(locus.places, locus.start, locus.end, True, last.around)
        passed.append(locus)
    return passed


def _are_joined(text: str, first: Locus, second: Locus) -> bool:
    return bool(_JOIN.fullmatch(text, first.end, second.start))


def locate(
    text: str,
    start: int,
    end: int,
    loci: Sequence[Locus],
    others: Sequence[tuple[int, int]],
    node: bool = False,
    listed: bool = False,
) -> tuple[Place, ...]:
    """Return where the thing at the characters `start` to `end` is; nothing if it is not said.

    Args:
        text: of the report.
        loci: of the sentence.
        others: characters of the other things that the sentence names.
        node: lymph nodes are near to organs, other things in them.
        listed: a list of places without `and` counts as a whole, as after `no`.
    """
    usable = [
        locus
        for locus in loci
        if not locus.beside or (node and locus.around) or _is_adjective(text, locus, start)
    ]
    after = [locus for locus in usable if locus.start >= end]
    before = [locus for locus in usable if locus.end <= start]
    ranked: list[Locus] = []
    for locus in after:
        lead = text[end : locus.start]
        if _BREAK.search(lead) or _is_blocked(text, end, locus.start, others):
            break
        if _IN.search(text[max(end - 3, locus.start - 60) : locus.start]) or locus.around:
            ranked.append(locus)
            break
        if node:
            break
    if before and not _BREAK.search(text[before[-1].end : start]):
        ranked.append(before[-1])
        # "Pancreas: in the tail a mass": what stands before may be named in two steps.
        ranked += [locus for locus in before[:-1] if _leads(text, locus, before[-1])]
    inside = [locus for locus in usable if locus.start < end and start < locus.end]
    if not ranked:
        ranked = inside or [
            locus for locus in after if not _BREAK.search(text[end : locus.start])
            and not _is_blocked(text, end, locus.start, others)
        ][:1]  # fmt: skip
    if not ranked:
        return ()
    chosen = ranked[0]
    if not chosen.places[0].part:
        for locus in ranked[1:]:
            if locus.places[0].part and locus.places[0].organ == chosen.places[0].organ:
                chosen = locus
                break
    # The tail that follows the organ: "pancreatic mass in the tail", "pancreas, mass, tail".
    if not chosen.places[0].part and len(chosen.places) == 1:
        for locus in after:
            place = locus.places[0]
            if place.part and place.organ == chosen.places[0].organ and not _BREAK.search(
                text[end : locus.start]
            ) and not _is_blocked(text, end, locus.start, others):  # fmt: skip
                chosen = locus
                break
    # "Kidneys: a cyst, left kidney".
    for locus in after:
        if _narrows(locus, chosen) and not _is_blocked(text, end, locus.start, others):
            chosen = locus
            break
    return _with_joined(text, chosen, usable, listed)


def _narrows(locus: Locus, chosen: Locus) -> bool:
    """Whether a place is one of a pair that is chosen, or a part of one of them."""
    organs, pair = ({place.organ for place in each.places} for each in (locus, chosen))
    if len(chosen.places) > 1:
        return organs < pair
    sides = {organ.removesuffix("s") for organ in pair}
    return {organ.split(" ", 1)[-1] for organ in organs} == sides and organs != pair


def _is_adjective(text: str, locus: Locus, start: int) -> bool:
    """Whether a place stands right before its noun: "from colon [cancer]"."""
    return locus.end <= start and not text[locus.end : start].strip(" -\n")


def _leads(text: str, first: Locus, second: Locus) -> bool:
    return not _BREAK.search(text[first.end : second.start])


def _is_blocked(text: str, end: int, start: int, others: Sequence[tuple[int, int]]) -> bool:
    """Whether another thing stands between and is not merely joined by `and` or a comma."""
    for span in sorted(others):
        if end <= span[0] and span[1] <= start:
            if not _LIST_JOIN.fullmatch(text, end, span[0]):
                return True
            end = span[1]
    return False


def _with_joined(
    text: str, chosen: Locus, usable: Sequence[Locus], listed: bool
) -> tuple[Place, ...]:
    """Add the places that a list joins to the chosen one."""
    k = usable.index(chosen)
    first, last = k, k
    while first > 0 and _are_joined(text, usable[first - 1], usable[first]):
        first -= 1
    while last + 1 < len(usable) and _are_joined(text, usable[last], usable[last + 1]):
        last += 1
    chain = usable[first : last + 1]
    gaps = [text[a.end : b.start] for a, b in pairwise(chain)]
    if gaps and (listed or any(map(_AND.search, gaps))):
        places = [place for locus in chain for place in locus.places]
    else:
        places = list(chosen.places)
    return tuple(dict.fromkeys(exact_places(places)))


def exact_places(places: Sequence[Place]) -> list[Place]:
    """Leave out an organ of which a part is named as well."""
    parted = {place.organ for place in places if place.part}
    return [place for place in places if place.part or place.organ not in parted]
