"""The lesions and impressions that a sentence names: where they are, and which are meant."""

import re
from collections.abc import Iterable, Sequence

from tumorchain_jax.engine.text.context import Context
from tumorchain_jax.engine.text.depth import find_depths
from tumorchain_jax.engine.text.judgement import judge_name
from tumorchain_jax.engine.text.lesions import GENERIC, Lesion, are_compatible
from tumorchain_jax.engine.text.meaning import MEANS, NEW, interpreted, meant_next
from tumorchain_jax.engine.text.nodes import read_node
from tumorchain_jax.engine.text.notes import CARRIERS, FIVE, NODES, Mention, Notes, tumours
from tumorchain_jax.engine.text.numbering import draft_count
from tumorchain_jax.engine.text.places import Locus, Place, locate
from tumorchain_jax.engine.text.setting import Setting
from tumorchain_jax.engine.text.sides import on_its_side
from tumorchain_jax.engine.text.sizes import find_sizes
from tumorchain_jax.engine.text.vocabulary import Term

_SPECIFIC_IMPRESSION = {
    ("cyst", "liver"): "hepatic cyst",
    ("haemangioma", "liver"): "hepatic haemangioma",
}
_SEPARATE = re.compile(NEW.pattern.replace("|new|", "|"))
_DEFINITE = re.compile(
    r"(?:\b(?:the|this|that|said|known|its|these|those|above|described|same|die|der|das|diese\w*)"
    r"\s+(?:(?!(?:is|are|was|were|there|in|of|on|at|shows?|has|have|contains?|and|with|a|an)\b)"
    r"[\w.-]+\s+){0,4}|^\W*)$"
)
_PRIMARIES = FIVE - {"liver"}
_SEEN = re.compile(
    r"\b(?:can be|appreciated|apparent|evident|persist\w*|remains?|unchanged|stable|again|"
    r"there (?:is|are)|shows?|is seen|are seen|located|demonstrates?|contains?|lies|present|"
    r"identified|visible|noted|visuali[sz]ed|detected|found|measur\w+|holds?|occupies|arises|"
    r"it is|infiltrat\w+|invad\w+|reaches|keeps|extends|confined|with a|segment|"
    r"zeigt|sichtbar|nachweisbar|lokalisiert)\b"
)
_NAMES_ORGAN = re.compile(
    r"gastric|stomach|magen|pan[ck]rea|colo|kolo|rectal|o?esoph|ösoph|hepat|leber|liver|hcc|pdac|"
    r"cholangio"
)
_NEEDS_PLACE = re.compile(
    r"lymphomas?|abscess(?:es)?|adenomas?|lipomas?|leiomyomas?|adenocarcinomas?|carcinomas?|"
    r"cancers?|squamous (?:cell )?(?:carcinoma|cancer)s?|nets?"
)
_FURTHER = re.compile(
    r"\b(?:other|further|additional|second|another|more|weitere\w*|sonstige\w*|extra\w+|"
    r"recurrent|residual|new)\b"
    r"(?: \w+){0,3} ?$"
)
_ELSEWHERE = re.compile(r"[^.;,]{0,20}\b(?:elsewhere|otherwise|besides|anderswo|sonst)\b")
_A_GROWTH = re.compile(
    r"\b(?:an?|another|two|three|exophytic|polypoid|abnormal|malignant|new)\s(?:[\w-]+\s){0,3}$"
)
_LARGEST = re.compile(
    r"\b(?:largest|biggest|dominant|one of (?:them|which|these)|for example|e\.g\.|for instance|"
    r"including one|of which|davon|darunter|größte[rns]?)\b"
)
# Sites that are no organs here: what is told of them is not in the organ told of before.
_FOREIGN = re.compile(
    r"(?:pelvi[sc]\w*|(?:surgical|resection|operative|tumou?r|gallbladder) bed|retroperitone\w+|"
    r"mesenter\w+|thigh|groin|inguinal|chest|thorax|thoracic|mediastin\w+|neck|cervical|brain|"
    r"head and neck|breasts?|thyroid|muscles?|muscular|psoas|subcutaneous\w*|skin|cutaneous|"
    r"(?:abdominal|chest|body|thoracic) wall|axilla\w*|spine|spinal|vertebra\w*|ribs?|sacr\w+|"
    r"ili\w+|femur|femoral|hips?|uter\w+|prostat\w+|vagin\w+|ovar\w+|appendi\w+|test[ei]\w*|"
    r"aort\w+|veins?|vena|arter(?:y|ies)|hernia\w*|parotid|pleura\w*|pericardi\w+|heart|bladder|"
    r"urinary|duoden\w+|jejun\w+|ile(?:um|al)|small (?:bowel|intestine)|bowel|anastomo\w+|stump|"
    r"port|stoma|perine\w+|becken\w*|bauchwand|schilddrüse|mamma|loge|anastomose)"
)
_IN_FOREIGN = re.compile(
    rf"\s+(?:in|within|of|at|along|around|near|on|im|in der|der|des)\s+(?:\w+\s+){{0,2}}?"
    rf"{_FOREIGN.pattern}\b"
)
_FOREIGN_BEFORE = re.compile(rf"\b{_FOREIGN.pattern}\s+(?:\w+\s+)?$")


def name_lesions(notes: Notes, setting: Setting) -> list[Mention]:
    """Draft the lesions, impressions and nodes of a sentence; return how it names them."""
    carriers = [term for term in setting.terms if term.kind in (*CARRIERS, "state")]
    spans = [(term.start, term.end) for term in carriers]
    signs = [(term.start, term.end) for term in setting.terms if term.kind == "sign"]
    mentions: list[Mention] = []
    for term in carriers:
        if _is_change(notes, term):
            continue
        context = judge_name(setting, term)
        if context is None or not context.patient:
            continue
        others = [span for span in spans if span != (term.start, term.end)]
        if context.polarity == "absent":
            others = sorted(others + signs)
        if term.kind in NODES:
            read_node(notes, setting, term, context, others)
            mentions.append(Mention(term, context, []))
            continue
        told = setting.section == "impression" and term.value == "tumour"
        if context.polarity == "absent" and not told and _is_rest(notes, setting, term):
            continue
        listed = context.polarity == "absent"
        loci = [x for x in setting.loci if not _is_of_one(notes, term, x)]
        own = locate(notes.text, term.start, term.end, loci, others, listed=listed)
        lesions = _name(notes, setting, term, context, own, mentions)
        mentions.append(Mention(term, context, lesions))
    if group := [lesion for mention in mentions for lesion in mention.lesions]:
        notes.group = group
    return mentions


def _is_change(notes: Notes, term: Term) -> bool:
    """Whether "growth" is what a lesion did, rather than a thing: "a growth is seen"."""
    if not notes.text.startswith("growth", term.start):
        return False
    return not _A_GROWTH.search(notes.text, max(0, term.start - 40), term.start)


def _is_of_one(notes: Notes, term: Term, locus: Locus) -> bool:
    """Whether a place is that of one of several: "metastases, the largest in segment VIII"."""
    return term.plural and bool(_LARGEST.search(notes.text, term.end, max(term.end, locus.start)))


def _is_rest(notes: Notes, setting: Setting, term: Term) -> bool:
    """Whether what is denied is only further things: "no other lesion", "no tumour elsewhere"."""
    start, end = setting.sentence.start, setting.sentence.end
    before = notes.text[max(start, term.start - 40) : term.start]
    after = notes.text[term.end : min(end, term.end + 40)]
    return bool(_FURTHER.search(before) or _ELSEWHERE.match(after))


def _name(
    notes: Notes,
    setting: Setting,
    term: Term,
    context: Context,
    own: tuple[Place, ...],
    mentions: Sequence[Mention],
) -> list[Lesion]:
    """Draft the finding or impression of a mention; return the lesions that it speaks of."""
    meant = interpreted(notes, setting, term, mentions)
    implied = _implied(notes, term)
    named = _NAMES_ORGAN.search(notes.text, term.start, term.end)
    if term.kind == "impression" and named and implied and implied[0].organ not in {
        place.organ for place in own
    }:  # fmt: skip
        own = implied  # "gastric carcinoma with liver metastases"
    places = own or implied or _carried(notes, setting, term, context)
    span = setting.sentence.start, setting.sentence.end
    denied = context.polarity == "absent"
    places = on_its_side(notes.text, span, term.start, term.end, places, denied)
    if meant and (not own or {p.organ for p in own} <= {x.place.organ for x in meant.lesions}):
        places = tuple(lesion.place for lesion in meant.lesions) or places
    if context.polarity == "present" and not term.plural and len(places) > 1:
        # "A mass in segments V and VIII" is one lesion, in no part alone.
        places = tuple(
            {p.organ: p if _is_only(p, places) else Place(p.organ) for p in places}.values()
        )
    organ = places[0].organ if places else ""
    meaning = term.meaning(organ)
    many = len(term.entries) > 1 and all(entry.organ for entry in term.entries)
    if meaning is None and many and term.kind == "lesion":
        return []  # a stone of an organ that is not known
    entry = meaning or term.entries[0]
    attribute, value = _named(notes, setting, term, entry.kind, entry.value, entry.organ, organ)
    if context.polarity == "absent" and value == "mass" and entry.value != "mass":
        return []  # "no abscess in the colon" denies no mass
    exists = context.polarity == "present" and context.time == "current"
    lesions: list[Lesion] = []
    if exists and entry.kind != "state":
        if meant and meant.lesions:
            lesions = meant.lesions
            _merge(notes, setting, meant, term, value, attribute, context)
        else:
            for place in places or (Place(""),):
                lesions.append(_find(notes, setting, term, place, value, context))
    drafted: Iterable[tuple[Place, Lesion | None]] = (
        [(place, None) for place in places or (Place(""),)]
        if not lesions
        else [(lesion.place, lesion) for lesion in lesions]
    )
    if own and len(places) == len(lesions):
        drafted = list(zip(places, lesions, strict=True))
    for place, lesion in drafted:
        notes.draft(setting, attribute, value, term.start, term.end, context, place, lesion)
        concludes = attribute == "finding" and exists and (setting.section == "impression" or meant)
        specific = _SPECIFIC_IMPRESSION.get((value, place.organ))
        if concludes and specific:
            notes.draft(
                setting, "impression", specific, term.start, term.end, context, place, lesion
            )
    if exists and entry.kind != "state":
        draft_count(notes, setting, term, context, places, lesions)
    return lesions


def _is_only(place: Place, places: Sequence[Place]) -> bool:
    return sum(other.organ == place.organ for other in places) == 1


def _named(
    notes: Notes, setting: Setting, term: Term, kind: str, value: str, home: str, organ: str
) -> tuple[str, str]:
    """Return the attribute and value of a mention."""
    if kind in ("impression", "state"):
        if home != organ and (organ or _NEEDS_PLACE.fullmatch(notes.text, term.start, term.end)):
            if value not in tumours():
                return "finding", "mass"
            value = "tumour"
        if setting.section == "pathology":
            return "histology", value
        return "impression", value
    if value != "tumour":
        return "finding", value
    if setting.section == "pathology":
        return "histology", "tumour"
    if setting.section == "impression" or _is_conclusion(notes, setting, term):
        return "impression", value
    return "finding", value


def _is_conclusion(notes: Notes, setting: Setting, term: Term) -> bool:
    before = notes.text[setting.sentence.start : term.start]
    if MEANS.search(before):
        return True
    if setting.section != "open" or _SEEN.search(setting.words):
        return False
    start, end = setting.sentence.start, setting.sentence.end
    told = find_sizes(notes.text, start, end)
    described = any(t.kind in ("density", "shape", "boundary") for t in notes.between(start, end))
    described |= any(True for _ in find_depths(notes.text, start, end))
    return not told and not described


def _merge(
    notes: Notes,
    setting: Setting,
    meant: Mention,
    term: Term,
    value: str,
    attribute: str,
    context: Context,
) -> None:
    """Let a specific name take the place of "mass" for the same lesion."""
    if attribute != "finding" or value in GENERIC or context.certainty == "possible":
        return
    for lesion in meant.lesions:
        if lesion.value in GENERIC:
            lesion.value = value
    notes.drafts = [
        draft for draft in notes.drafts
        if not (draft.lesion in meant.lesions and draft.attribute == "finding"
                and draft.value in GENERIC and draft.start == meant.term.start)
    ]  # fmt: skip


def _implied(notes: Notes, term: Term) -> tuple[Place, ...]:
    if _NEEDS_PLACE.fullmatch(notes.text, term.start, term.end):
        return ()
    organs = {entry.organ for entry in term.entries if entry.organ}
    if len(organs) == 1 and len(term.entries) == 1:
        return (Place(organs.pop()),)
    return ()


def _carried(notes: Notes, setting: Setting, term: Term, context: Context) -> tuple[Place, ...]:
    """Return the place of the heading, or of the sentence before.

    A thing that is there has one place: where the heading names several organs, or the sentence
    another organ than the one before, its place is not known.
    """
    text, sentence = notes.text, setting.sentence
    if _IN_FOREIGN.match(text, term.end, sentence.end) or _FOREIGN_BEFORE.search(
        text, max(sentence.start, term.start - 40), term.start
    ):
        return ()
    carried = _from_before(notes, setting, term, context)
    if context.polarity == "absent":
        return carried
    named = {p.organ for locus in setting.loci if not locus.beside for p in locus.places}
    organs = {place.organ for place in carried}
    if (named and not named & organs) or len({o.split(" ", 1)[-1] for o in organs}) > 1:
        return ()
    return carried


def _from_before(notes: Notes, setting: Setting, term: Term, context: Context) -> tuple[Place, ...]:
    if term.value == "metastasis" and context.polarity == "absent":
        # Of the organ of a primary tumour, the denial is about all others.
        return () if {place.organ for place in notes.heading} & _PRIMARIES else notes.heading
    if notes.stray_key:
        return ()
    if notes.heading or setting.denied:
        return notes.heading or notes.near
    if context.polarity == "absent" or context.time != "current":
        return ()
    last = notes.lesions.last
    if setting.section in ("impression", "pathology") or _is_conclusion(notes, setting, term):
        if term.value == "metastasis":
            return ()
        main = notes.lesions.main_organ()
        if last and last.place.organ == main:
            return (Place(main, last.place.part if not _is_several(notes, main) else ""),)
        return (Place(main),) if main else ()
    if term.value == "metastasis":
        primary = notes.lesions.main_organ()
        return tuple(place for place in notes.near if place.organ != primary)
    if len({place.organ for place in notes.near}) == 1:
        return notes.near[:1]
    return (last.place,) if last and not notes.near else ()


def _is_several(notes: Notes, organ: str) -> bool:
    return len({x.place.part for x in notes.lesions if x.place.organ == organ}) > 1


def _find(
    notes: Notes, setting: Setting, term: Term, place: Place, value: str, context: Context
) -> Lesion:
    """Return the lesion that a mention means: one told of before, or a new one."""
    sentence = setting.sentence
    before = notes.text[max(sentence.start, term.start - 60) : term.start]
    sizes = [s.measure.mm for s in find_sizes(notes.text, sentence.start, sentence.end)]
    later = setting.section in ("impression", "pathology")
    known = None
    # In a conclusion, "new" tells of what the findings told of.
    new = (_SEPARATE if later else NEW).search(before)
    if not new:
        if later or _is_conclusion(notes, setting, term):
            meant = meant_next(notes, setting, term) if value in GENERIC else value
            known = notes.lesions.match(place, meant or value, sizes, later=True)
            if known and not later and place.part and _is_another(known, place, value):
                known = None  # "possible cyst in segment IVb" after a mass in IV
        elif _DEFINITE.search(before) or context.time != "current":
            known = notes.lesions.match(place, value, sizes, later=False)
            begins = not re.search(r"\w", before)
            if known and begins and _is_another(known, place, value):
                known = None  # "Haemangioma in segment VI" begins anew what is told
            last = notes.lesions.last
            if last and last.place.organ == place.organ and known and are_compatible(
                last.place.part, place.part
            ) and (value in GENERIC or last.value == value):  # fmt: skip
                known = last
    if known is None and not later and not new:
        known = notes.lesions.concluded(place, value, sizes)
    if known and not later and place.part not in ("", known.place.part) and sizes and known.sizes:
        near = any(abs(a - b) <= 2 for a in sizes for b in known.sizes)
        known = known if near else None  # another place and another size
    if known is None and not term.plural and not new:
        known = notes.lesions.only_named(place, value)
        if known is None and term.kind == "impression":
            told = notes.lesions.alike(place.organ, value)
            known = next((x for x in told if {*x.sizes} & {*sizes} and not place.part), None)
    if known is None and term.plural and not sizes and not place.part:
        told = notes.lesions.alike(place.organ, value)
        if len(told) > 1:
            notes.lesions.last = told[0]
            return told[0]
    if known is None and not term.plural and not later:
        known = notes.lesions.claim(place, value)
    if known and (known.several == term.plural or later or term.plural is False):
        notes.lesions.last = known
        if place.part and not known.place.part and known.place.organ == place.organ:
            known.place = place
        return known
    notes.pending = None
    lesion = Lesion(place, value, term.plural, sizes, later, context.certainty == "possible")
    return notes.lesions.add(lesion)


def _is_another(known: Lesion, place: Place, value: str) -> bool:
    """Whether a name of its own in a place of its own is not the lesion that it may be."""
    return value not in (*GENERIC, known.value) and place != known.place


def _are_told(notes: Notes, term: Term, lesions: Sequence[Lesion]) -> bool:
    """Whether what a plural names was told of one by one before."""
    organs = {lesion.place.organ for lesion in lesions}
    same = [x for x in notes.lesions if x.place.organ in organs]
    same = [x for x in same if x.value in (term.value, *GENERIC) or term.value in GENERIC]
    return len(same) > len(organs)
