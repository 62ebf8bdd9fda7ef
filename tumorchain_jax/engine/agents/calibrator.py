"""The Calibrator by rules: is each step entailed by the facts, allowed by the graph, and in order?

It sees what the Reasoner sees, and nothing of how the Reasoner writes: claims are compared with
the statements of the facts, sentences with their claims (`wording_check.py`), impressions with the
graph's edges, and the whole with what CT says and the chain leaves out.
"""

from collections.abc import Iterator, Mapping

from tumorchain_jax.engine.agents.protocol import Chain, View
from tumorchain_jax.engine.agents.setting_aside import left_out, said
from tumorchain_jax.engine.agents.statements import (
    GENERAL,
    LESIONS,
    NO_TUMOUR,
    TUMOUR,
    denials,
    is_said,
    is_sure,
    is_tumour,
    may_be_suspicious,
    object_of,
    signs,
    subject_of,
)
from tumorchain_jax.engine.agents.wording_check import wording_issue
from tumorchain_jax.engine.case import Claim, Step
from tumorchain_jax.engine.facts import Fact
from tumorchain_jax.engine.graph.load import Edge

LEVELS = ("finding", "impression", "reasoning")
_REPORTED = ("finding", "size", "density", "shape", "boundary", "depth", "others", "nodes")
"""Attributes that a chain must tell of."""


def calibrate(view: View, chain: Chain) -> str:
    """Return the first thing that is wrong with a draft; empty if nothing is."""
    return next(_issues(view, chain), "")


def _issues(view: View, chain: Chain) -> Iterator[str]:
    facts, edges = view.by_id, {edge.id: edge for edge in view.edges}
    for number, step in enumerate(chain, 1):
        for issue in step_issues(view, step, facts, edges):
            yield f"step {number}: {issue}"
    yield from _order(chain)
    yield from _contradictions(view, chain)
    yield from _left_out(view, chain)


def step_issues(
    view: View, step: Step, facts: Mapping[str, Fact], edges: Mapping[str, Edge]
) -> Iterator[str]:
    """Yield what is wrong with one step by itself."""
    if step.level not in LEVELS:
        yield f"level {step.level!r} is none of {', '.join(LEVELS)}"
    if not step.claims:
        yield "it claims nothing"
    for claim in step.claims:
        what = f"{claim.subject} {claim.relation} {claim.object}"
        unknown = [id for id in claim.facts if id not in facts]
        unknown += [id for id in claim.edges if id not in edges]
        if unknown:
            yield f"{what}: {unknown[0]} is neither a fact nor an edge that was shown"
            continue
        issue = claim_issue(
            view,
            claim,
            step.level,
            [facts[i] for i in claim.facts],
            [edges[i] for i in claim.edges],
        )
        if issue:
            yield f"{what}: {issue}"
    if step.level == "impression" and "suggest" not in step.text:
        yield "an impression that is not put as what the findings suggest"
    if issue := wording_issue(step):
        yield issue


def claim_issue(view: View, claim: Claim, level: str, facts: list[Fact], edges: list[Edge]) -> str:
    """Return why a claim does not follow from its facts and edges; empty if it does."""
    if level == "reasoning":
        triple = claim.subject, claim.relation, claim.object
        if not edges or any((e.subject, e.relation, e.object) != triple for e in edges):
            return "no edge of the graph says so"
        if claim.relation == "suggests":
            shown = signs(view.facts, view.organ)
            if claim.subject not in shown or not set(claim.facts) <= {*shown[claim.subject]}:
                return "this sign was not found"
        return ""
    if not facts:
        return "it rests on no fact"
    if claim.subject.split(" lesion ")[0] not in (view.organ, GENERAL):
        return f"it is not about the {view.organ}"
    if any(not fact.is_current and fact.polarity == "present" for fact in facts):
        return "it is not of this examination"
    if claim.relation != "impression":
        return "" if is_said(claim, facts) else "its facts do not say so"
    if level != "impression":
        return "an impression among the findings"
    return _impression_issue(view, claim, facts, edges)


def _impression_issue(view: View, claim: Claim, facts: list[Fact], edges: list[Edge]) -> str:
    if claim.subject != view.organ:
        return f"it is not about the {view.organ}"
    if claim.object == NO_TUMOUR:
        if any(fact not in denials(view.facts, view.organ) for fact in facts):
            return "its facts do not deny a tumour"
        signs_of = {(e.relation, e.object) for e in edges}
        return "" if signs_of == {("suggests", TUMOUR)} else "no sign of a tumour is cited"
    concluded = claim.object == TUMOUR and all(_is_tumour(view, f, edges) for f in facts)
    if not concluded and not is_said(claim, facts):
        return "its facts do not say so"
    value = TUMOUR if concluded else facts[0].value
    shown = signs(view.facts, view.organ)
    for edge in edges:
        if (edge.relation, edge.object) == ("suggests", value) and edge.subject in shown:
            continue
        if (edge.subject, edge.relation, edge.object) == (value, "arises_in", view.organ):
            continue
        if concluded and is_tumour(edge, facts[0].value):
            continue
        return f"the edge {edge.subject} {edge.relation} {edge.object} does not lead to it"
    return "" if edges else "it cites no edge of the graph"


def _is_tumour(view: View, fact: Fact, edges: list[Edge]) -> bool:
    """Whether a fact says that the organ holds a tumour, or by one of the edges a kind of it."""
    if fact.organ != view.organ or not fact.is_current or fact.certainty == "possible":
        return False
    if fact.attribute == "finding":
        return fact.value == TUMOUR and is_sure(fact)
    return fact.attribute == "impression" and any(is_tumour(edge, fact.value) for edge in edges)


def _order(chain: Chain) -> Iterator[str]:
    ranks = [LEVELS.index(step.level) for step in chain if step.level in LEVELS]
    if ranks != sorted(ranks):
        yield "findings, impressions and reasoning are not in this order"
    current = ""
    for number, step in enumerate(chain, 1):
        for claim in step.claims:
            if step.level != "finding" or " lesion " not in claim.subject:
                continue
            if claim.relation == "finding" and claim.object.split()[-1] in _LAST_WORDS:
                if claim.subject != current:
                    current = claim.subject
            elif claim.subject != current:
                yield f"step {number}: a step is missing: what {claim.subject} is"
                return


_LAST_WORDS = frozenset(name.split()[-1] for name in LESIONS)


def _contradictions(view: View, chain: Chain) -> Iterator[str]:
    claimed = [claim for step in chain for claim in step.claims]
    ids = {id for claim in claimed for id in claim.facts}
    told = [fact for fact in view.facts if fact.id in ids]
    against = left_out(view.facts)
    for fact in told:
        if fact.id in against:
            yield f"conflict: the report says two things: {said(against[fact.id])}"
    concluded = {c.object for c in claimed if c.relation == "impression"}
    here = [fact for fact in view.facts if fact.organ == view.organ]
    if NO_TUMOUR in concluded and (len(concluded) > 1 or may_be_suspicious(here)):
        yield "the conclusion is against the findings: no tumour, with something to suspect"


def _left_out(view: View, chain: Chain) -> Iterator[str]:
    """Find what CT says of the organ and the chain does not."""
    claimed = {
        (claim.subject, claim.relation, claim.object) for step in chain for claim in step.claims
    }
    against = left_out(view.facts)
    named = {
        f.lesion
        for f in view.facts
        if f.attribute == "finding" and f.value in LESIONS and f.time == "current"
        and f.id not in against
    }  # fmt: skip
    concluded = False
    for fact in view.facts:
        if fact.time != "current" or fact.source.kind != "radiology" or fact.organ != view.organ:
            continue
        if fact.id in against:
            continue
        concluded |= fact.attribute == "finding" and fact.value == TUMOUR and is_sure(fact)
        triple = subject_of(fact), fact.attribute, object_of(fact)
        told = fact.attribute in _REPORTED and (not fact.lesion or fact.lesion in named)
        if triple not in claimed and (told or _leads(view, fact)):
            yield f"a step is missing: {' '.join(triple)}"
    levels = {step.level for step in chain}
    needed = concluded or (
        denials(view.facts, view.organ)
        and not may_be_suspicious(f for f in view.facts if f.organ == view.organ)
    )
    if needed and "impression" not in levels:
        yield "a step is missing: the impression"


def _leads(view: View, fact: Fact) -> bool:
    """Whether a fact is an impression that edges lead to; others cannot be told of."""
    if fact.attribute != "impression" or not fact.is_current or fact.value == NO_TUMOUR:
        return False
    shown = signs(view.facts, view.organ)
    return any(
        (e.object == fact.value and e.relation == "suggests" and e.subject in shown)
        or (e.subject, e.relation, e.object) == (fact.value, "arises_in", view.organ)
        for e in view.edges
    )
