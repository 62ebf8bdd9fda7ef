"""Traces of records, and the check that every claim of a record rests on what it names.

`verify` trusts nothing that it can work out: ids are hashed again, spans cut out of the documents
again, claims compared with their facts, sentences with their claims.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence

from tumorchain_jax.anatomy.organs import DIGESTIVE, display_name
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.schema import Record
from tumorchain_jax.engine.agents.answer_check import answer_issue
from tumorchain_jax.engine.agents.ask import FENCES, is_within
from tumorchain_jax.engine.agents.calibrator import LEVELS, claim_issue
from tumorchain_jax.engine.agents.protocol import View
from tumorchain_jax.engine.agents.statements import is_said
from tumorchain_jax.engine.agents.summarizer import by_imaging, category
from tumorchain_jax.engine.agents.wording_check import wording_issue
from tumorchain_jax.engine.case import Case, CaseResult, Claim, Step, Trace
from tumorchain_jax.engine.facts import Fact
from tumorchain_jax.engine.graph.load import KnowledgeGraph, shipped_graph
from tumorchain_jax.evaluation.answers import judge

# A step is a whole sentence of the chain, or of what a search found so far.
_AROUND = [(before, after) for before in (", ", "; ", ": ") for after in (".", ";")]
_ORGANS = frozenset(map(display_name, DIGESTIVE))
_STAGES = re.compile(r"(?:imaging )?[TNM]")


def record_line(record: Record, scans: Sequence[str]) -> str:
    """A record as `prepare` takes it: the scan by its name."""
    rounds = [vars(each) for each in record.rounds]
    values = {**vars(record), "rounds": rounds, "scan": scans[record.scan]}
    return json.dumps(values, ensure_ascii=False)


def record_id(line: str) -> str:
    """Sixteen hexadecimal digits that a record's line alone decides."""
    return hashlib.sha256(line.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def verify(result: CaseResult, case: Case) -> tuple[str, ...]:
    """Check a case's facts and records; empty if all of it holds.

    Returns:
        What is wrong, a line each: a fact whose quote is not where it says, a record that is not
        what its id was given for, a claim or an answer that its facts and edges do not give.
    """
    return tuple(_problems(result, case, shipped_graph()))


def _problems(result: CaseResult, case: Case, graph: KnowledgeGraph) -> Iterator[str]:
    documents = {document.sha256: document for document in case.documents}
    measured = {fact.id for fact in case.measurements}
    facts = {fact.id: fact for fact in result.facts}
    for fact in result.facts:
        source = fact.source
        if fact.case != case.id:
            yield f"fact {fact.id}: of case {fact.case}"
        if source.kind == "mask":
            if fact.id not in measured:
                yield f"fact {fact.id}: was not measured"
            continue
        document = documents.get(source.document)
        if document is None or document.kind != source.kind:
            yield f"fact {fact.id}: of a document that is not there"
        elif document.text[source.start : source.end] != source.quote or not source.quote:
            yield f"fact {fact.id}: its quote does not stand where it says"
    if len(result.records) != len(result.traces):
        yield f"{len(result.records)} records and {len(result.traces)} traces"
    for record, trace in zip(result.records, result.traces, strict=False):
        for problem in record_problems(record, trace, case, facts, graph):
            yield f"record {trace.record}: {problem}"


def record_problems(
    record: Record, trace: Trace, case: Case, facts: Mapping[str, Fact], graph: KnowledgeGraph
) -> Iterator[str]:
    """Yield what is wrong with a record and its trace."""
    if not 0 <= record.scan < len(case.scans) or record.patient != case.patient:
        yield "of another patient or scan"
    elif record_id(record_line(record, case.scans)) != trace.record:
        yield "changed since its id was given"
    if trace.case != case.id:
        yield f"of case {trace.case}"
    if trace.graph != graph.version:
        yield f"of another knowledge graph, {trace.graph}"
    if issue := _answer_issue(record):
        yield issue
    cited = [id for step in trace.steps for claim in step.claims for id in claim.facts]
    unknown = [id for id in (*cited, *trace.answer_facts) if id not in facts]
    edges = [id for step in trace.steps for claim in step.claims for id in claim.edges]
    unknown += [id for id in (*edges, *trace.answer_edges) if id not in graph.by_id]
    if unknown:
        yield f"{unknown[0]} is neither a fact nor an edge"
        return
    if issue := answer_issue(record, trace.steps, graph):
        yield issue
    if not (trace.answer_facts or trace.answer_edges):
        yield "its answer rests on nothing"
    text = " ".join(each.text for each in record.rounds if not each.given)
    known = tuple(fact for fact in facts.values() if fact.source.kind != "pathology")
    for number, step in enumerate(trace.steps, 1):
        if not any(f"{before}{step.text}{after}" in text for before, after in _AROUND):
            yield f"step {number} is not in its chain"
        for issue in step_problems(record.subtask, step, known, facts, graph):
            yield f"step {number}: {issue}"


def _answer_issue(record: Record) -> str:
    try:
        right = judge(record, record.rounds[-1].text).right
    except InputError as error:
        return str(error)
    return "" if right else "its text does not end with its answer"


def step_problems(
    subtask: str,
    step: Step,
    known: tuple[Fact, ...],
    facts: Mapping[str, Fact],
    graph: KnowledgeGraph,
) -> Iterator[str]:
    """Yield what is wrong with a step of an accepted record.

    Args:
        known: facts of CT and masks.
        facts: all of them by id.
    """
    if step.level not in LEVELS or not step.claims:
        yield f"level {step.level!r} with {len(step.claims)} claims"
    fence = FENCES.get(subtask)
    for claim in step.claims:
        if fence is not None and not is_within(claim, fence):
            yield f"{claim.relation} is beyond {subtask}"
        if issue := _claim_problem(claim, step.level, known, facts, graph):
            yield f"{claim.subject} {claim.relation} {claim.object}: {issue}"
    if issue := wording_issue(step):
        yield issue


def _claim_problem(
    claim: Claim,
    level: str,
    known: tuple[Fact, ...],
    facts: Mapping[str, Fact],
    graph: KnowledgeGraph,
) -> str:
    own = [facts[id] for id in claim.facts]
    organ = claim.subject.split(" lesion ")[0]
    if claim.relation.startswith("imaging "):
        edges = [edge for edge in graph.edges if edge.relation == "staged_as"]
        seen = by_imaging(organ, claim.relation.removeprefix("imaging "), known, edges)
        same = seen is not None and seen[1].claims[0] == claim
        return "" if same else "the staging criteria do not give it"
    if _STAGES.fullmatch(claim.relation):
        stated = own and all(
            (f.attribute, category(f)) == (claim.relation, claim.object)
            and f.is_current
            and f.organ in (claim.subject, "")
            and claim.subject in _ORGANS
            for f in own
        )
        return "" if stated else "its facts do not state it"
    if any(fact.source.kind == "pathology" for fact in own):
        same = level == "reasoning" and is_said(claim, own) and all(f.is_current for f in own)
        return "" if same else "pathology does not say so"
    if any(fact.source.kind == "mask" for fact in own):
        return "" if is_said(claim, own) else "its measurement is another"
    if organ == "patient" or level == "reasoning":
        organ = next((fact.organ for fact in own if fact.organ), organ)
    view = View("", organ, known, (), ())
    return claim_issue(view, claim, level, own, [graph.by_id[id] for id in claim.edges])
