"""The Summarizer by rules: chains and pathology -> T, N, M, and where the two differ.

It is the only agent that is shown pathology. What imaging alone gives by the staging criteria is
said where the findings settle it; what pathology states is said as such. Where they differ both
stay, and the difference is reported: no finding is invented to make them agree.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import get_args

from tumorchain_jax.anatomy.organs import COLORECTUM, ESOPHAGUS, STOMACH
from tumorchain_jax.anatomy.staging import Depth, Extent
from tumorchain_jax.engine.agents.protocol import Chain, Stage, Summary, View
from tumorchain_jax.engine.agents.statements import (
    LESIONS,
    NO_TUMOUR,
    SUSPICIOUS,
    TUMOUR,
    claim_of,
    is_sure,
    is_tumour,
    labels_of,
)
from tumorchain_jax.engine.case import Claim, Step
from tumorchain_jax.engine.facts import Fact
from tumorchain_jax.engine.graph.criteria import holds
from tumorchain_jax.engine.graph.load import Edge

HOLLOW = (STOMACH, ESOPHAGUS, COLORECTUM)
LETTERS = ("T", "N", "M")
_DEPTHS: tuple[Depth, ...] = get_args(Depth)
_IMAGING = "from these findings imaging alone gives {value}"
_PATHOLOGY = "pathology states {value}"
_STATED = "imaging is stated as {value}"
_CONFIRMS = "pathology shows {value}"


def summarize(view: View, chain: Chain, pathology: tuple[Fact, ...]) -> Summary:
    """Join a chain with the pathology of its organ."""
    impressions = {c.object for step in chain for c in step.claims if c.relation == "impression"}
    suspected = suspects(view.organ, view.facts, view.edges)
    stages = tuple(_stages(view, pathology))
    stated = [s for s in stages if any(f.id in s.facts for f in pathology)]
    discordant = [*_differences(view, stages, pathology)]
    issue = ""
    if stated and not suspected:
        issue = f"look again at the impression of the {view.organ}"
        discordant.append(f"{view.organ}: pathology stages a tumour that CT does not show")
    denied = [f for f in pathology if _denies_tumour(f)]
    if denied and not stated and suspected:
        issue = f"look again at the impression of the {view.organ}"
        discordant.append(f"{view.organ}: CT suspects a tumour that pathology does not confirm")
    discordant += _other_tumour(view, impressions, pathology)
    if not suspected:
        stages = ()
    return Summary(tuple(_confirmed(view, pathology)), stages, tuple(discordant), issue)


def suspects(organ: str, facts: Iterable[Fact], edges: Iterable[Edge]) -> bool:
    """Tell whether CT gives a tumour of the organ for sure enough to stage it.

    A mass of which the report says that it is benign is none.

    Args:
        organ: in question.
        facts: of CT.
        edges: of the graph, among them how impressions behave.
    """
    here = [f for f in facts if f.organ == organ and f.source.kind == "radiology"]
    here = [f for f in here if f.is_current and f.certainty != "possible"]
    edges = list(edges)
    kinds = {edge.subject for edge in edges if is_tumour(edge, edge.subject)} | {TUMOUR}
    benign = {e.subject for e in edges if (e.relation, e.object) == ("behaves_as", "benign")}
    if any(f.attribute == "impression" and f.value in kinds for f in here):
        return True
    harmless = {
        f.lesion
        for f in here
        if (f.attribute == "finding" and f.value in LESIONS and f.value not in SUSPICIOUS)
        or (f.attribute == "impression" and f.value in benign)
    }
    return any(
        f.attribute == "finding"
        and (f.value == TUMOUR or (f.value == "mass" and f.lesion not in harmless))
        for f in here
        if is_sure(f)
    )


def category(fact: Fact) -> str:
    """Return a category with its letter: `T3`."""
    return fact.value if fact.value.startswith(fact.attribute) else fact.attribute + fact.value


def _denies_tumour(fact: Fact) -> bool:
    denied = fact.polarity == "absent" and fact.value == TUMOUR
    return fact.attribute in ("finding", "impression") and (denied or fact.value == NO_TUMOUR)


def _stages(view: View, pathology: Sequence[Fact]) -> Iterator[Stage]:
    for letter in LETTERS:
        seen = by_imaging(view.organ, letter, (*view.facts, *view.around), view.edges)
        steps = () if seen is None else (seen[1],)
        stated = _one(pathology, letter)
        how = _PATHOLOGY
        if not stated:
            stated, how = _one([*view.facts], letter), _STATED
        if stated:
            value = category(stated[0])
            text = how.format(value=value)
            claim = Claim(view.organ, letter, value, tuple(f.id for f in stated))
            yield Stage(letter, value, (*steps, Step("reasoning", text, (claim,))), claim.facts, ())
        elif seen is not None:
            value, step = seen
            yield Stage(letter, value, steps, step.claims[0].facts, step.claims[0].edges)


def _one(facts: Iterable[Fact], letter: str) -> list[Fact]:
    """Return the facts that state the one category of a letter; none where they state several."""
    found = [f for f in facts if f.attribute == letter and is_sure(f) and not f.value.endswith("X")]
    values = {category(fact) for fact in found}
    finer = {v for v in values if not any(w != v and w.startswith(v) for w in values)}
    if len(finer) != 1:
        return []
    return [fact for fact in found if category(fact) in finer]


def by_imaging(
    organ: str, letter: str, facts: Sequence[Fact], edges: Sequence[Edge]
) -> tuple[str, Step] | None:
    """Stage by what CT says, where that settles it.

    T of a hollow organ by the depth of its lesions, N by the nodes that CT counts or denies, M by
    metastases that it names, or denies for the whole body.

    Returns:
        The category and the step that says it; None where CT leaves it open.
    """
    labels = labels_of(organ)
    if len(labels) != 1:
        return None
    label = labels[0]
    if letter == "T":
        found = _depth(label, organ, facts)
    elif letter == "N":
        found = _nodes(label, organ, facts)
    else:
        found = _metastases(label, organ, facts)
    if found is None:
        return None
    extent, rested = found
    met = [
        edge
        for edge in edges
        if edge.relation == "staged_as"
        and edge.object.startswith(f"{organ} {letter}")
        and holds(edge.subject, extent)
    ]
    values = {edge.object.removeprefix(f"{organ} ") for edge in met}
    if len(values) != 1:
        return None
    value = values.pop()
    ids = tuple(dict.fromkeys(fact.id for fact in rested))
    claim = Claim(organ, f"imaging {letter}", value, ids, tuple(edge.id for edge in met))
    return value, Step("reasoning", _IMAGING.format(value=value), (claim,))


Found = tuple[Extent, list[Fact]] | None


def _depth(label: int, organ: str, facts: Sequence[Fact]) -> Found:
    said = [f for f in facts if f.organ == organ and f.attribute == "depth" and is_sure(f)]
    said = [f for f in said if f.value in _DEPTHS]
    if label not in HOLLOW or not said:
        return None
    lesions = {f.lesion for f in said}
    if any(len({f.value for f in said if f.lesion == n}) > 1 for n in lesions):
        return None
    values = [fact.value for fact in said]
    deepest = max(depth for depth in range(len(_DEPTHS)) if _DEPTHS[depth] in values)
    return Extent(label, (10.0,), _DEPTHS[deepest]), said


def _nodes(label: int, organ: str, facts: Sequence[Fact]) -> Found:
    near = [f for f in facts if f.organ in (organ, "") and f.time == "current"]
    near = [f for f in near if f.source.kind == "radiology" and f.certainty == "definite"]
    counted = [f for f in near if f.attribute == "nodes" and f.value.isdigit()]
    counted += [f for f in near if f.attribute == "nodes" and f.polarity == "absent"]
    present = [
        f
        for f in near
        if (f.attribute, f.value, f.polarity) == ("finding", "lymph node", "present")
    ]
    absent = [
        f for f in near if (f.attribute, f.value, f.polarity) == ("finding", "lymph node", "absent")
    ]
    numbers = {0 if f.polarity == "absent" else int(f.value) for f in counted}
    if len(numbers) == 1 and not (absent and numbers != {0}) and not (present and numbers == {0}):
        (number,) = numbers
        return Extent(label, (10.0,), nodes=number), counted
    if absent and not present and not counted:
        return Extent(label, (10.0,), nodes=0), absent
    return None


def _metastases(label: int, organ: str, facts: Sequence[Fact]) -> Found:
    named = [f for f in facts if f.attribute == "finding" and f.value == "metastasis"]
    named = [f for f in named if f.time == "current" and f.source.kind == "radiology"]
    if any(f.certainty != "definite" for f in named):
        return None
    there = [f for f in named if f.polarity == "present" and f.organ not in (organ, "")]
    if there:
        peritoneum = any(f.organ == "peritoneum" for f in there)
        sites = {labels_of(f.organ)[0] for f in there if labels_of(f.organ)}
        if not peritoneum and len(sites) < len({f.organ for f in there}):
            return None
        return Extent(label, (10.0,), metastases=frozenset(sites), peritoneum=peritoneum), there
    denied = [f for f in named if f.polarity == "absent" and not f.organ]
    present = [f for f in named if f.polarity == "present"]
    if denied and not present:
        return Extent(label, (10.0,)), denied
    return None


def _differences(view: View, stages: Iterable[Stage], pathology: Sequence[Fact]) -> Iterator[str]:
    ids = {fact.id for fact in pathology}
    for stage in stages:
        if not ids & set(stage.facts):
            continue
        for step in stage.steps:
            claim = step.claims[0]
            if claim.relation.startswith("imaging "):
                coarse, fine = sorted((claim.object, stage.value), key=len)
                if not fine.startswith(coarse):
                    yield f"{view.organ}: CT gives {claim.object}, pathology {stage.value}"


def _other_tumour(
    view: View, impressions: Iterable[str], pathology: Sequence[Fact]
) -> Iterator[str]:
    kinds = {i for i in impressions if i not in (TUMOUR, NO_TUMOUR) and " " in i}
    named = {f.value for f in pathology if f.attribute == "impression" and is_sure(f)}
    named -= {TUMOUR, NO_TUMOUR}
    if kinds and named and not kinds & named:
        kind, name = sorted(kinds)[0], sorted(named)[0]
        yield f"{view.organ}: CT suggests {kind}, pathology {name}"


def _confirmed(view: View, pathology: Sequence[Fact]) -> Iterator[Step]:
    """Write what pathology says of the kind of tumour."""
    said: set[str] = set()
    for fact in pathology:
        if fact.attribute not in ("histology", "impression") or not is_sure(fact):
            continue
        if fact.value in said | {TUMOUR, NO_TUMOUR} or fact.organ != view.organ:
            continue
        said.add(fact.value)
        yield Step("reasoning", _CONFIRMS.format(value=fact.value), (claim_of(fact),))
