"""Which of the things that a sentence names an attribute belongs to."""

import re
from collections.abc import Sequence

from tumorchain_jax.engine.text.context import Context
from tumorchain_jax.engine.text.lesions import Lesion
from tumorchain_jax.engine.text.notes import NODES, Mention, Notes
from tumorchain_jax.engine.text.setting import Setting

_ALL = re.compile(
    r"\W*(?:both|all|each|they|these|the (?:lesions|masses|tumou?rs|nodules)|beide|alle)\b"
)
_PLAIN_LEAD = re.compile(
    r"^(?:[\s,/()\"*-]|\b(?:and|or|but|yet|also|very|rather|somewhat|slightly|mildly|markedly|"
    r"soft|tissue|solid|focal|small|large|big|huge|tiny|sized|enhancing|single|solitary|in|"
    r"diameter|size|max|maximum|largest|long|short|axis|approximately|about|ca|subtle|new|known|"
    r"density|attenuation|sharp|shaped|contour|margin|margins|borders|bordered|outline|hepatic|"
    r"liver|pancreatic|gastric|colonic|esophageal|primary|malignant|benign|simple|sub|intramural|"
    r"exophytic|polypoid|suspicious|partly|predominantly|more|less|relatively|\w+ly|mm|cm|the|"
    r"lesions?|tail|head|body|segment|[ivx]+|und|oder|große\w*|kleine\w*|eher|ca\.|messende\w*|"
    r"durchmessende\w*|runde\w*|ovale\w*)\b)*$"
)
_GOVERNED = re.compile(
    r"\s+(?:of|measuring|measures?|von|sized|at|mit einem durchmesser von|"
    r"with a (?:size|diameter) of)"
    r"(?:\s+(?:about|approximately|approx|ca|up to|max|maximum|some|only|low|high|ca\.))*\s+"
)
_GENERAL = re.compile(r"\b(?:is|are|shows?|appears?|ist|sind|has)\b")


def find_target(
    notes: Notes, setting: Setting, start: int, end: int, mentions: Sequence[Mention]
) -> tuple[list[Lesion], Context] | None:
    """Return the lesions that an attribute tells of, and what is said of them; None if none."""
    carrier = find_carrier(notes, setting, start, end, mentions)
    if carrier:
        if carrier.term.kind in NODES:
            return None
        if not carrier.lesions and carrier.context.polarity == "present":
            return ([], carrier.context) if carrier.context.time == "prior" else None
        return _at_place(notes, setting, start, carrier), carrier.context
    past = setting.section in ("history", "comparison", "previous")
    last = None if past else notes.told_last()
    if last is None:
        return None
    last = _next_of_several(notes, setting, last, start)
    if _ALL.match(setting.words) and last in notes.group:
        return notes.group, Context()
    named = [
        p
        for locus in setting.loci
        if not locus.beside and locus.start < start
        for p in locus.places
    ]
    if any(place.organ != last.place.organ for place in named) and last.place.organ:
        return None
    whole = [place for place in named if not place.part]
    if whole and last.place.part and _GENERAL.search(notes.text[setting.sentence.start : start]):
        return None
    if (
        notes.heading
        and last.place.organ not in {p.organ for p in notes.heading}
        and last.place.organ
    ):
        return None
    return [last], Context()


def _next_of_several(notes: Notes, setting: Setting, last: Lesion, start: int) -> Lesion:
    """Return the lesion that a sentence without a noun tells of: "One is in the cecum, 4 cm"."""
    parts = [x for x in setting.loci if x.places[0].part and not x.beside]
    if len(parts) != 1 or parts[0].places[0].organ != last.place.organ or parts[0].start > start:
        return last
    place, locus = parts[0].places[0], parts[0]
    if last.several and not last.place.part and not last.sizes:
        last.several, last.listed, last.place = False, True, place
        return last
    if not last.listed or place == last.place:
        return last
    if not last.place.part and not last.sizes:
        last.place = place
        return last
    lesion = notes.lesions.add(Lesion(place, last.value, listed=True))
    notes.draft(
        setting, "finding", last.value or "mass", locus.start, locus.end, Context(), place, lesion
    )
    return lesion


def _at_place(notes: Notes, setting: Setting, start: int, carrier: Mention) -> list[Lesion]:
    """Return the lesions of a mention; of several the one whose place was named last.

    "Two tumours: one in the cecum (35 mm, round), the other in the rectum (28 mm, irregular)".
    """
    several = len(carrier.lesions) > 1 or any(lesion.several for lesion in carrier.lesions)
    told = [x for x in setting.loci if carrier.term.end <= x.start and x.end <= start and x.places]
    if several and told and len(notes.group) > 1:
        there = [x for x in notes.group if x.place == told[-1].places[0]]
        return there if len(there) == 1 else carrier.lesions
    return carrier.lesions


def find_carrier(
    notes: Notes, setting: Setting, start: int, end: int, mentions: Sequence[Mention]
) -> Mention | None:
    """Return the mention that an attribute at `start` to `end` belongs to."""
    after = [m for m in mentions if m.term.start >= end]
    before = [m for m in mentions if m.term.end <= start]
    if before and _GOVERNED.fullmatch(notes.text, before[-1].term.end, start):
        return before[-1]
    if after and leads_to(notes, end, after[0]):
        return after[0]
    if before:
        between = notes.text[before[-1].term.end : start]
        if after and re.search(r";|\.\s", between):
            return after[0]
        # What a sentence says last of a lesion and its nature holds for the lesion.
        return before[-1]
    return after[0] if after else None


def leads_to(notes: Notes, end: int, mention: Mention) -> bool:
    """Whether what ends at `end` stands before a noun like an adjective."""
    start = mention.term.start
    return start >= end and bool(_PLAIN_LEAD.match(_without_terms(notes, end, start)))


def _without_terms(notes: Notes, start: int, end: int) -> str:
    pieces, done = [], start
    for term in notes.between(start, end):
        if term.kind in ("density", "shape", "boundary", "part", "organ", "weak part", "sign"):
            pieces.append(notes.text[done : term.start])
            done = term.end
    pieces.append(notes.text[done:end])
    return re.sub(r"\d+(?:[.,]\d+)?(?:\s?x)?", " ", " ".join(pieces))
