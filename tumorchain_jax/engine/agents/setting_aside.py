"""What nothing is made of: reports that contradict or correct themselves, or are another patient's.

A contradiction about whether something is there, or where, sets the organ aside; one about a value
of a lesion leaves out both values (`reasoner.py`).
"""

from collections.abc import Iterable, Mapping, Sequence

from tumorchain_jax.engine.agents.statements import SUSPICIOUS, signs
from tumorchain_jax.engine.case import Case
from tumorchain_jax.engine.facts import Fact
from tumorchain_jax.engine.graph.load import KnowledgeGraph
from tumorchain_jax.engine.text.conflicts import Conflict, conflicts
from tumorchain_jax.engine.text.corrections import find_correction
from tumorchain_jax.engine.text.dictation import find_reference, find_unpunctuated

WHOLE = ""
"""Stands for the whole case in place of an organ."""
_GRAVE = ("polarity", "organ", "side", "part", "kind")
_YEARS = 1
"""Ages of the list and the report may differ by a birthday."""
_LEAST_SIGNS = 2


def set_aside(case: Case, ct: Sequence[Fact], graph: KnowledgeGraph) -> dict[str, str]:
    """Return the organs that nothing is made of, with the reason of each.

    Args:
        case: with its reports, and the sex and age that the list of cases gives.
        ct: facts of its CT reports and masks.
        graph: for what signs speak of.

    Returns:
        Organ -> reason in one line; `WHOLE` where it is the whole case.
    """
    told = [fact for fact in ct if fact.source.kind == "radiology"]
    if reason := _of_case(case, told):
        return {WHOLE: reason}
    found: dict[str, str] = {}
    for conflict in conflicts(told):
        if conflict.reason in _GRAVE:
            for organ in _organs(conflict):
                found.setdefault(organ, f"the report contradicts itself: {said(conflict)}")
    for organ in {fact.organ for fact in told}:
        if reason := discordance(told, organ, graph):
            found.setdefault(organ, reason)
    return found


def _of_case(case: Case, told: Sequence[Fact]) -> str:
    for document in case.documents:
        if document.kind != "radiology":
            continue
        if span := find_correction(document.text):
            words = " ".join(document.text[slice(*span)].split())
            return f"corrected text is not understood: {words!r}"
        if span := find_unpunctuated(document.text):
            words = " ".join(document.text[slice(*span)].split()[:6])
            return f"text without punctuation is not understood: {words!r} ..."
        if span := find_reference(document.text):
            return f"which one it means is not understood: {document.text[slice(*span)]!r}"
    patients = [c for c in conflicts(told) if c.reason == "patient"]
    if patients:
        return f"the report speaks of two patients: {said(patients[0])}"
    for fact in told:
        age = int(fact.value) if fact.attribute == "age" and fact.value.isdigit() else None
        if age is not None and case.age is not None and abs(age - case.age) > _YEARS:
            return f"the list says age {case.age}, the report {age}"
        if fact.attribute == "sex" and case.sex and fact.value != case.sex:
            return f"the list says {case.sex}, the report {fact.value}"
    return ""


def said(conflict: Conflict) -> str:
    """Write both sides of a contradiction: `liver: mass, against no mass`."""
    first, second = (
        f"{'no ' if fact.polarity == 'absent' else ''}{fact.value}"
        f"{f' in {fact.part}' if fact.part else ''}"
        for fact in (conflict.first, conflict.second)
    )
    organ = conflict.first.organ or conflict.second.organ
    return f"{organ + ': ' if organ else ''}{first}, against {second}"


def _organs(conflict: Conflict) -> set[str]:
    """Return the organs of both sides; a denial for the whole body is no organ's."""
    organs = {conflict.first.organ, conflict.second.organ}
    return organs - {""} or {WHOLE}


def discordance(facts: Iterable[Fact], organ: str, graph: KnowledgeGraph) -> str:
    """Return where the signs of an organ speak for a tumour, and the conclusion for none.

    Returns:
        One line; empty where there is no such discordance.
    """
    facts = [fact for fact in facts if fact.organ == organ]
    shown = signs(facts, organ)
    concluded = {
        f.value for f in facts
        if f.attribute == "impression" and f.is_current and f.certainty != "possible"
    }  # fmt: skip
    benign = [i for i in sorted(concluded) if "benign" in graph.objects(i, "behaves_as")]
    others = [i for i in concluded if "malignant" in graph.objects(i, "behaves_as")]
    if not benign or others or "tumour" in concluded:
        return ""
    for impression in graph.subjects("arises_in", organ):
        if "malignant" not in graph.objects(impression, "behaves_as"):
            continue
        named = [sign for sign in shown if impression in graph.objects(sign, "suggests")]
        named = [sign for sign in named if not {*benign} & {*graph.objects(sign, "suggests")}]
        if len(named) >= _LEAST_SIGNS:
            signs_ = " and ".join(sorted(named))
            return f"discordant: {signs_} suggest {impression}, the report concludes {benign[0]}"
    return ""


def unplaced(facts: Iterable[Fact]) -> bool:
    """Whether something to suspect is told of, and not where it is."""
    return any(
        fact.is_current and fact.attribute == "finding" and fact.value in SUSPICIOUS
        and not fact.organ and fact.source.kind == "radiology"
        for fact in facts
    )  # fmt: skip


def left_out(facts: Iterable[Fact]) -> Mapping[str, Conflict]:
    """Return the ids of the facts of CT reports that contradict others, with one contradiction."""
    found: dict[str, Conflict] = {}
    for conflict in conflicts(fact for fact in facts if fact.source.kind == "radiology"):
        for fact in (conflict.first, conflict.second):
            found.setdefault(fact.id, conflict)
    return found
