"""The agents measured: records against the truth, and faults planted in chains of known facts."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random

from tumorchain_jax.data.schema import Record
from tumorchain_jax.engine.agents.calibrator import calibrate
from tumorchain_jax.engine.agents.pipeline import RULES, Settings, process
from tumorchain_jax.engine.agents.protocol import Chain, View
from tumorchain_jax.engine.agents.reasoner import reason
from tumorchain_jax.engine.agents.traces import record_id, record_line, record_problems
from tumorchain_jax.engine.case import Case, CaseResult, Claim, Step, Trace
from tumorchain_jax.engine.facts import Fact, Source, SourceKind
from tumorchain_jax.engine.graph.load import shipped_graph
from tumorchain_jax.engine.measure.faults import FAULTS, plantings
from tumorchain_jax.engine.measure.matching import Comparison
from tumorchain_jax.phantoms.reports.statements import Statement

STAGE = "stage"
"""The fault that is planted in records: T, N and M are no part of the Reasoner's chains."""
YES_OR_NO = "answer of yes or no about a stage"
FAULT_KINDS = (*FAULTS, STAGE, YES_OR_NO)
_STAGES = {
    "tumor": ("T1b", "T2", "T3", "T4"),
    "node": ("N0", "N1", "N2"),
    "metastasis": ("M0", "M1"),
}

_OPPOSITES = {"yes": "no", "no": "yes"}


@dataclass(frozen=True)
class RecordCounts:
    """What is true of the records of a case.

    Attributes:
        records: how many there are.
        entailed: those whose every claim the truth entails.
        claims: of all records.
        untraced: claims that name neither a fact nor an edge.
        false: `relation` of each claim that the truth does not entail.
        rejected, discordant: of the case.
    """

    records: int
    entailed: int
    claims: int
    untraced: int
    false: Counter[str]
    rejected: int
    discordant: int


def judge_records(result: CaseResult, truth: Comparison) -> RecordCounts:
    """Compare every claim of a case's records with the truth."""
    entailed = claims = untraced = 0
    false: Counter[str] = Counter()
    facts = {fact.id: fact for fact in result.facts}
    for trace in result.traces:
        good = True
        for claim in (claim for step in trace.steps for claim in step.claims):
            claims += 1
            untraced += not claim.facts and not claim.edges
            if not _is_entailed(claim, facts, truth):
                false[claim.relation] += 1
                good = False
        good &= all(id in truth.true for id in trace.answer_facts)
        entailed += good
    return RecordCounts(len(result.records), entailed, claims, untraced, false,
                        len(result.rejected), len(result.discordant))  # fmt: skip


def _is_entailed(claim: Claim, facts: dict[str, Fact], truth: Comparison) -> bool:
    if any(id not in facts or id not in truth.true for id in claim.facts):
        return False
    if claim.relation == "location":
        return all(id in truth.placed for id in claim.facts)
    # What the claim says must be what one of its facts says, in whichever wording; conclusions
    # (a stage, a tumour) rest on edges as well.
    words = claim.object.split()
    said = [facts[id] for id in claim.facts if facts[id].attribute == claim.relation]
    return not said or all(fact.value.split()[0] in words for fact in said) or bool(claim.edges)


def known_facts(case: Case, truth: Sequence[Statement]) -> tuple[Fact, ...]:
    """Return facts as an extractor without a fault would read them."""
    documents = {document.kind: document.sha256 for document in case.documents}
    facts = []
    for number, said in enumerate(truth):
        kind: SourceKind = "pathology" if said.source == "pathology" else "radiology"
        source = Source(kind, documents.get(kind, ""), number, number + 1, said.value)
        fields = {**said.as_dict(), "case": case.id, "source": source}
        facts.append(Fact(**fields))
    return tuple(facts)


@dataclass(frozen=True)
class FaultCounts:
    """What became of planted faults.

    Attributes:
        caught, planted: kind -> how many.
        alarms, clean: chains and records without a fault: those refused, and all of them.
    """

    caught: Counter[str]
    planted: Counter[str]
    alarms: int
    clean: int


def plant_faults(case: Case, truth: Sequence[Statement], seed: int) -> FaultCounts:
    """Plant a fault of each kind in each chain of a case whose facts are known."""
    rng = Random(f"faults {seed}")
    facts = known_facts(case, truth)
    drafts: list[tuple[View, Chain]] = []

    def noted(view: View) -> Chain:
        chain = reason(view)
        if view.attempt == 1:
            drafts.append((view, chain))
        return chain

    agents = replace(RULES, extractor=lambda _: facts, reasoner=noted)
    result = process(case, Settings(agents=agents))
    caught: Counter[str] = Counter()
    planted: Counter[str] = Counter()
    alarms = 0
    for view, chain in drafts:
        if calibrate(view, chain):
            alarms += 1
            continue
        for kind, faulty in plantings(rng, view, chain):
            planted[kind] += 1
            caught[kind] += bool(calibrate(view, faulty))
    clean = len(drafts)
    known = {fact.id: fact for fact in result.facts}
    for record, trace in zip(result.records, result.traces, strict=True):
        if record.subtask in _STAGES:
            clean += 1
            alarms += _refused(record, trace, case, known)
            value = _OPPOSITES.get(record.answer) or rng.choice(
                [v for v in _STAGES[record.subtask] if v[:2] != record.answer[:2]]
            )
            wrong, traced = _restaged(record, trace, value, case)
            kind = YES_OR_NO if record.answer in _OPPOSITES else STAGE
            planted[kind] += 1
            caught[kind] += _refused(wrong, traced, case, known)
    return FaultCounts(caught, planted, alarms, clean)


def _refused(record: Record, trace: Trace, case: Case, facts: dict[str, Fact]) -> bool:
    problems = record_problems(record, trace, case, facts, shipped_graph())
    return next(problems, None) is not None


def _restaged(record: Record, trace: Trace, value: str, case: Case) -> tuple[Record, Trace]:
    """Put another category in a record's answer, words and claims, with an id of its own."""
    old = record.answer

    def put(text: str) -> str:
        if old in _OPPOSITES:  # a word of other sentences too
            return text.replace(f"the answer is {old}", f"the answer is {value}")
        return text.replace(old, value)

    def claims(step: Step) -> Iterable[Claim]:
        return (replace(c, object=value) if c.object == old else c for c in step.claims)

    rounds = tuple(replace(each, text=put(each.text)) for each in record.rounds)
    choices = (
        record.choices and tuple(dict.fromkeys((value, *record.choices)))[: len(record.choices)]
    )
    wrong = replace(record, rounds=rounds, choices=choices, answer=value,
                    reasoning=put(record.reasoning))  # fmt: skip
    steps = tuple(
        replace(step, text=put(step.text), claims=tuple(claims(step))) for step in trace.steps
    )
    traced = replace(trace, record=record_id(record_line(wrong, case.scans)), steps=steps)
    return wrong, traced
