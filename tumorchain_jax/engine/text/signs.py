"""Findings that are no lesions of their own, and organs that the report calls normal."""

import re
from collections.abc import Sequence

from tumorchain_jax.engine.text.context import Context
from tumorchain_jax.engine.text.judgement import judge
from tumorchain_jax.engine.text.linking import find_carrier
from tumorchain_jax.engine.text.notes import NODES, OTHERS, Mention, Notes, is_tumour
from tumorchain_jax.engine.text.places import Place, locate
from tumorchain_jax.engine.text.setting import Setting
from tumorchain_jax.engine.text.sides import on_its_side
from tumorchain_jax.engine.text.vocabulary import Entry, Term

_NO_OTHERS = re.compile(
    r"\b(?:others?|additional|associated|accompanying|secondary|ancillary|further)\s*"
    r"(?:features?|findings?|signs?|changes?|characteristics?)?\s*[:=|]\s*(?:none|no|nil|-)(?!\w)|"
    r"\bno (?:associated|accompanying|ancillary|secondary) (?:features?|findings?|signs?|"
    r"changes?)\b|"
    r"\bwithout (?:associated|accompanying|ancillary|secondary) (?:features?|findings?|signs?|"
    r"changes?)\b"
)
_LARGE = re.compile(
    r"\b(?:not |nicht )?(?:enlarged|enlargement|too (?:large|big)|increased in size|vergrößert)\b"
)
_TWO_WORDS = re.compile(r"(?:\w+ ){1,2}$")
_DUCT = "ductal dilatation"
_DUCTS = (
    ("pancreas", re.compile(r"pancrea|wirsung|\bmpd\b|pankreas|胰")),
    ("liver", re.compile(r"bil(?:e|iary)|hepat|\bcbd\b|choledoch|cholest|gallen")),
)
"""What words for ducts say of their organ."""
# What may be normal beside an organ: laboratory values, vessels, ducts.
_NO_ORGAN = re.compile(
    r"\b(?:afp|cea|ca ?19\S*|psa|lfts?|bilirubin|lipase|amylase|lab(?:s|oratory)?|markers?|"
    r"vessels?|veins?|vena|arter(?:y|ies)|ducts?|vasculature|perfusion|blood|doppler|function|"
    r"tumou?rmarker\w*|laborwerte|gefäße|gang|gallenwege)\b[^.;,]{0,30}$"
)
_EXCEPT = re.compile(
    r"[\s,]*(?:but for|apart from|aside from|except(?:ing)?|save for|other than|"
    r"with the exception of|"
    r"bis auf|abgesehen von|außer)\b"
)
_NOWHERE = frozenset({"ascites", "pleural effusion"})


def read_signs(notes: Notes, setting: Setting, mentions: Sequence[Mention]) -> None:
    """Draft the signs of a sentence, with the organ or the lesion that they belong to."""
    signs = [term for term in setting.terms if term.kind == "sign"]
    signs += _large_spleen(notes, setting, signs)
    spans = [(m.term.start, m.term.end) for m in mentions]
    for term in signs:
        context = judge(setting, term.start, term.end)
        if context is None or not context.patient:
            continue
        carrier = find_carrier(notes, setting, term.start, term.end, mentions)
        home = term.entries[0].organ or _home_of_duct(notes, term)
        lesion = carrier.lesions[0] if carrier and carrier.lesions else None
        if carrier and carrier.term.kind in NODES:
            if context.polarity == "present" and not home and term.value not in _NOWHERE:
                continue
            carrier = None
        places: tuple[Place, ...]
        own = locate(notes.text, term.start, term.end, setting.loci, spans)
        inner = [x for x in setting.loci if term.start <= x.start and x.end <= term.end]
        if term.value in _NOWHERE:
            places, lesion = (Place(""),), None
        elif term.value == _DUCT and home:
            # Ducts are not within the part of the organ where a lesion is.
            places = (Place(home),)
            last = lesion or (notes.lesions.last if _goes_on(notes, setting, context) else None)
            lesion = last if last and last.place.organ == home and is_tumour(last) else None
        elif home:
            places = tuple(p for p in own if p.organ == home) or (Place(home),)
            lesion = None
        elif lesion and not is_tumour(lesion) and term.value in OTHERS and not own:
            places, lesion = (Place(""),), None
        elif (
            lesion
            and context.polarity == (carrier.context.polarity if carrier else "")
            and not inner
        ):
            places = (lesion.place,)
        elif own:
            places = own
            lesion = None
        elif carrier and carrier.context.polarity == "absent" and context.polarity == "present":
            continue
        elif lesion:
            places = (lesion.place,)
        elif _goes_on(notes, setting, context):
            lesion = notes.lesions.last
            places = (lesion.place,) if lesion else ()
            if lesion and not is_tumour(lesion) and term.value in OTHERS:
                places, lesion = (Place(lesion.place.organ),), None
        elif notes.heading or setting.denied:
            places = notes.heading or notes.near or (Place(""),)
        elif context.polarity == "present":
            organs = tuple(dict.fromkeys(Place(place.organ) for place in notes.near))
            places = organs if len(organs) == 1 else (Place(""),)
        else:
            places = (Place(""),)
        if term.value == "tumour in the portal vein" and {p.organ for p in places} - {"liver"}:
            continue  # thrombus in the veins of another organ
        if context.polarity == "present":
            span = setting.sentence.start, setting.sentence.end
            places = on_its_side(notes.text, span, term.start, term.end, places)
        for place in places:
            notes.draft(
                setting, "finding", term.value, term.start, term.end, context, place, lesion,
                about="sign",
            )  # fmt: skip
    if match := _NO_OTHERS.search(setting.words):
        lesion = notes.lesions.last
        if lesion:
            start = setting.sentence.start + match.start()
            end = setting.sentence.start + match.end()
            notes.draft(setting, "others", "none", start, end, Context(), lesion.place, lesion)


def _home_of_duct(notes: Notes, term: Term) -> str:
    """Return the organ whose ducts a sign is about; an empty text where it is not said."""
    if term.value != _DUCT:
        return ""
    lead = _TWO_WORDS.search(notes.text, max(0, term.start - 30), term.start)
    words = (lead.group() if lead else "") + notes.text[term.start : term.end]
    return next((organ for organ, pattern in _DUCTS if pattern.search(words)), "")


def _large_spleen(notes: Notes, setting: Setting, signs: Sequence[Term]) -> list[Term]:
    """Read "the spleen measures 15 cm and is enlarged"."""
    if any(sign.value == "splenomegaly" for sign in signs):
        return []
    for locus in setting.loci:
        if locus.places == (Place("spleen"),) and not locus.beside:
            match = _LARGE.search(notes.text, locus.end, setting.sentence.end)
            if match and not any(
                locus.end <= other.start < match.start() for other in setting.loci
            ):
                entry = Entry("sign", "splenomegaly", "spleen")
                return [Term((entry,), *match.span(), False)]
    if notes.heading == (Place("spleen"),) and not setting.loci:
        match = _LARGE.search(notes.text, setting.sentence.start, setting.sentence.end)
        if match:
            return [Term((Entry("sign", "splenomegaly", "spleen"),), *match.span(), False)]
    return []


def _goes_on(notes: Notes, setting: Setting, context: Context) -> bool:
    """Whether a sentence that names no place goes on telling of the last lesion."""
    last = notes.told_last()
    if last is None or context.time != "current" or setting.section == "history":
        return False
    return not notes.heading or last.place.organ in {place.organ for place in notes.heading}


def read_normal(notes: Notes, setting: Setting, mentions: Sequence[Mention]) -> None:
    """Draft that an organ has no mass where the report calls it normal."""
    if any(term.kind == "rest" for term in setting.terms) or setting.section in (
        "history",
        "comparison",
        "previous",
    ):
        return
    for term in setting.terms:
        if term.kind != "normal":
            continue
        context = judge(setting, term.start, term.end)
        text = notes.text[term.start : term.end]
        if context is None or context.time != "current":
            continue
        if context.polarity == "absent" and not text.startswith(("no", "without", "nil")):
            continue
        if _EXCEPT.match(notes.text, term.end, setting.sentence.end):
            continue
        clause = _clause(notes, setting, term)
        if any(
            m.context.polarity == "present" and m.term.kind not in NODES
            and clause[0] <= m.term.start < clause[1] for m in mentions
        ):  # fmt: skip
            continue
        if _NO_ORGAN.search(notes.text, clause[0], term.start):
            continue
        inside = [x for x in setting.loci if clause[0] <= x.start < clause[1] and not x.beside]
        before = [x for x in inside if x.end <= term.start]
        if notes.text[clause[0] : term.start].rstrip().endswith("("):
            before = before[-1:]  # "liver (no metastases), spleen (normal)"
        named = before or inside
        places = [p for x in named for p in x.places] or list(notes.heading)
        if any(m.term.kind in NODES and clause[0] <= m.term.start for m in mentions):
            continue
        span = setting.sentence.start, setting.sentence.end
        for place in on_its_side(notes.text, span, term.start, term.end, places, absent=True):
            absent = Context(polarity="absent")
            notes.draft(setting, "finding", "mass", term.start, term.end, absent, place, None)


def _clause(notes: Notes, setting: Setting, term: Term) -> tuple[int, int]:
    sentence = setting.sentence
    breaks = [
        m.end()
        for m in re.finditer(r";|\bbut\b|\bwhile\b|\bexcept\b|\bwhereas\b|\baber\b", setting.words)
    ]
    edges = [sentence.start, *(sentence.start + b for b in breaks), sentence.end]
    start = max(edge for edge in edges if edge <= term.start)
    return start, min(edge for edge in edges if edge > term.start)
