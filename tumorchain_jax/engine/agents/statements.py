"""Facts as statements: the one triple that a fact says, and what several facts say together.

A claim is entailed if its triple is the statement of every fact that it names, or one of the few
conclusions of `concluded`.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from tumorchain_jax.anatomy.organs import labels_named
from tumorchain_jax.engine.case import Claim
from tumorchain_jax.engine.facts import Fact
from tumorchain_jax.engine.graph.load import Edge

LESIONS = (
    "mass", "tumour", "cyst", "haemangioma", "metastasis", "granuloma", "fatty area",
    "accessory spleen", "diverticulum", "gallstone", "kidney stone", "polyp", "infarct",
)  # fmt: skip
"""Findings that can be counted and have attributes of their own."""
SUSPICIOUS = ("mass", "tumour", "metastasis", "polyp")
TUMOUR, NO_TUMOUR = "tumour", "no tumour"
NOTHING = ("abnormality", "lesion", "mass", "tumour")
"""Findings whose absence from a whole organ leaves nothing to suspect."""
GENERAL = "patient"
"""Subject of statements that are about no organ in particular."""
_OF_LESIONS = ("finding", "shape", "boundary", "density", "count", "size", "depth", "others")
_CERTAINTY = {"definite": "", "probable": "probable ", "possible": "possible "}
_DOUBTFUL_ABSENCE = {"definite": "", "probable": "probably ", "possible": "possibly "}
_TIME = {"current": "", "prior": "earlier ", "hypothetical": "questioned "}


def subject_of(fact: Fact) -> str:
    """Return what a fact is about: `liver`, `liver lesion 2`, `patient`."""
    return subject(fact.organ, fact.lesion if fact.attribute in _OF_LESIONS else 0)


def subject(organ: str, lesion: int = 0) -> str:
    """Name an organ or one of its lesions."""
    return f"{organ or GENERAL} lesion {lesion}" if lesion else organ or GENERAL


def object_of(fact: Fact) -> str:
    """Return what a fact says: `hypodense`, `35 mm`, `no mass`, `possible cyst`, `earlier mass`."""
    certainty = fact.certainty
    absent = fact.polarity == "absent"
    if (fact.attribute, certainty) == ("impression", "probable"):
        certainty = "definite"  # an impression is put as what findings suggest anyway
    negation = "no " if absent else ""
    value = f"{fact.value} {fact.unit}".strip() if fact.unit not in ("grid",) else fact.value
    doubt = (_DOUBTFUL_ABSENCE if absent else _CERTAINTY)[certainty]
    return f"{_TIME[fact.time]}{doubt}{negation}{value}"


def claim_of(fact: Fact, *same: Fact, edges: tuple[str, ...] = ()) -> Claim:
    """Return the claim that a fact makes, and others that say the same."""
    ids = tuple(dict.fromkeys(each.id for each in (fact, *same)))
    return Claim(subject_of(fact), fact.attribute, object_of(fact), ids, edges)


def located(fact: Fact) -> Claim:
    """Return the claim where a finding lies."""
    return Claim(subject_of(fact), "location", fact.part, (fact.id,))


def is_said(claim: Claim, facts: Sequence[Fact]) -> bool:
    """Tell whether each of the facts says what a claim does."""
    if claim.relation == "location":
        return bool(claim.object) and all(
            (subject_of(fact), fact.part, fact.time) == (claim.subject, claim.object, "current")
            for fact in facts
        )
    said = claim.subject, claim.relation, claim.object
    return all((subject_of(fact), fact.attribute, object_of(fact)) == said for fact in facts)


def is_sure(fact: Fact) -> bool:
    """Tell whether a fact says that something is there now, without a doubt."""
    return fact.is_current and fact.certainty == "definite"


def lesion_findings(facts: Iterable[Fact]) -> dict[tuple[str, int], Fact]:
    """Return the first finding of each lesion that is surely there, by organ and number."""
    found: dict[tuple[str, int], Fact] = {}
    for fact in facts:
        if fact.lesion and fact.attribute == "finding" and is_sure(fact) and fact.value in LESIONS:
            known = found.setdefault((fact.organ, fact.lesion), fact)
            if not known.part and fact.part and fact.value == known.value:
                found[fact.organ, fact.lesion] = fact
    return found


def denials(facts: Iterable[Fact], organ: str) -> list[Fact]:
    """Return the facts that say that an organ holds no tumour.

    Where a suspicious finding has no place, what is denied of the body says nothing of an organ.
    """
    facts = list(facts)
    placed = not any(
        f.is_current and f.attribute == "finding" and f.value in SUSPICIOUS and not f.organ
        for f in facts
    )
    return [
        fact
        for fact in facts
        if fact.organ in (organ, "")
        and not fact.lesion
        and not fact.part
        and fact.time == "current"
        and fact.certainty == "definite"
        and fact.source.kind == "radiology"
        and (
            (fact.polarity == "absent" and fact.value in NOTHING)
            or (fact.attribute == "impression" and fact.value == NO_TUMOUR)
        )
        and fact.attribute in ("finding", "impression")
        and (fact.organ == organ or (placed and fact.value in (TUMOUR, NO_TUMOUR)))
    ]


def is_tumour(edge: Edge, impression: str) -> bool:
    """Tell whether an edge says that an impression is a kind of tumour."""
    behaviours = ("malignant", "of uncertain behaviour")
    return (edge.subject, edge.relation) == (impression, "behaves_as") and edge.object in behaviours


def may_be_suspicious(facts: Iterable[Fact]) -> bool:
    """Tell whether any fact says, surely or not, that there is something to suspect."""
    return any(
        fact.is_current and fact.attribute == "finding" and fact.value in SUSPICIOUS
        for fact in facts
    )


@cache
def labels_of(organ: str) -> tuple[int, ...]:
    """Return the merged labels that an organ's name stands for; none for `peritoneum`."""
    return tuple(dict.fromkeys(label for each in labels_named(organ) for label in each.labels))


# Signs: what the knowledge graph calls findings that facts say.

_SIGNS: Mapping[tuple[str, str], str] = {
    ("boundary", "ill-defined"): "ill-defined margin",
    ("boundary", "well-defined"): "sharp margin",
    ("density", "cystic"): "water density",
    ("others", "calcification"): "calcification",
    ("others", "rim enhancement"): "peripheral rim enhancement",
    ("others", "wall thickening"): "focal wall thickening",
    ("others", "necrosis"): "necrosis",
    ("finding", "mass"): "mass",
    ("finding", "tumour"): "mass",
    ("finding", "polyp"): "mass",
    ("finding", "wall thickening"): "focal wall thickening",
    ("finding", "rim enhancement"): "peripheral rim enhancement",
    ("finding", "diverticulum"): "diverticula",
    ("shape", "lobulated"): "lobulated contour",
}
_SOLID = ("mass", TUMOUR)
_DUCTS = {
    "pancreas": "pancreatic duct dilatation",
    "liver": "bile duct dilatation beyond the tumour",
}


def signs(facts: Iterable[Fact], organ: str) -> dict[str, tuple[str, ...]]:
    """Return the graph's findings that an organ shows for sure, with the ids of the facts."""
    found: dict[str, tuple[str, ...]] = {}
    by_lesion: dict[int, dict[str, Fact]] = defaultdict(dict)
    for fact in facts:
        if fact.organ != organ or not is_sure(fact) or fact.source.kind != "radiology":
            continue
        by_lesion[fact.lesion].setdefault(fact.attribute, fact)
        name = _SIGNS.get((fact.attribute, fact.value), "")
        if fact.value == "ductal dilatation":
            name = _DUCTS.get(organ, "")
        if not name and fact.attribute in ("finding", "others"):
            name = fact.value
        if name:
            found.setdefault(name, (fact.id,))
    for lesion in by_lesion.values():
        finding, density = lesion.get("finding"), lesion.get("density")
        if finding and density and density.value == "hypodense" and finding.value in _SOLID:
            found.setdefault("hypodense mass", (finding.id, density.id))
    return found


_PLURALS = {"metastasis": "metastases", "diverticulum": "diverticula", "mass": "masses"}


def plural(name: str) -> str:
    """Return the plural of a finding."""
    return _PLURALS.get(name, f"{name}s")


def article(words: str) -> str:
    """Put the indefinite article before words."""
    return f"{'an' if re.match('[aeiou]', words) else 'a'} {words}"


def the(part: str) -> str:
    """Put the article before a part, unless it bears a number like a name."""
    return part if re.search(r"\b(?:segment|[IVX]+[ab]?)\b", part) else f"the {part}"
