"""Check that a run's files are as they were written, and that every claim rests on something."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.splits import read_split
from tumorchain_jax.engine.agents.traces import record_id, record_problems
from tumorchain_jax.engine.case import Case, Document, Trace
from tumorchain_jax.engine.graph.load import KnowledgeGraph, shipped_graph
from tumorchain_jax.engine.run.outputs import FILES, SUMS, sha256_of
from tumorchain_jax.engine.run.reading import Kept, StoredCase, check_complete, read_stored
from tumorchain_jax.engine.run.screen import asked_text, fault

MOST_SHOWN = 20


@dataclass(frozen=True)
class Verified:
    """What was checked, and what is wrong.

    Attributes:
        cases, records, claims, facts: how many were checked.
        problems: how many there are.
        shown: the first of them, one line each.
    """

    cases: int
    records: int
    claims: int
    facts: int
    problems: int
    shown: tuple[str, ...]


def verify(folder: Path) -> Verified:
    """Check all of a run.

    Raises:
        InputError: the outputs are not complete.
    """
    check_complete(folder)
    counts: Counter[str] = Counter()
    shown: list[str] = []

    def note(problem: str) -> None:
        counts["problems"] += 1
        if len(shown) < MOST_SHOWN:
            shown.append(problem)

    for problem in file_problems(folder):
        note(problem)
    graph = shipped_graph()
    try:
        split = read_split(folder)
        patients = split["train"] | split["test"]
        seen: set[str] = set()
        for case in read_stored(folder):
            counts.update(cases=1, records=len(case.records), facts=len(case.facts))
            for problem in case_problems(case, graph):
                note(f"{case.id}: {problem}")
            for kept in case.records:
                counts["claims"] += sum(len(step.claims) for step in kept.trace.steps)
                if kept.record.patient not in patients:
                    note(f"{kept.trace.record}: patient {kept.record.patient} on no side")
                if kept.trace.record in seen:
                    note(f"{kept.trace.record}: there twice")
                seen.add(kept.trace.record)
    except InputError as error:  # a line that cannot be read ends what can be checked
        note(str(error))
    totals = {name: counts[name] for name in ("cases", "records", "claims", "facts", "problems")}
    return Verified(**totals, shown=tuple(shown))


def file_problems(folder: Path) -> Iterator[str]:
    """Yield which files of a run are missing, or are not what it wrote."""
    try:
        lines = (folder / SUMS).read_text("utf-8").splitlines()
    except UnicodeDecodeError:
        lines = []
    sums = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    for name in FILES:
        path = folder / name
        if not path.is_file():
            yield f"{name}: missing"
        elif sums.get(name) != sha256_of(path):
            yield f"{name}: changed since it was written"


def case_problems(case: StoredCase, graph: KnowledgeGraph) -> Iterator[str]:
    """Yield what is wrong with a case, its facts and its records."""
    for sha256, document in case.documents.items():
        if Document(document["kind"], document["text"]).sha256 != sha256:
            yield f"document {sha256[:16]}: another text"
    for id, fact in case.facts.items():
        if fact.id != id or fact.case != case.id:
            yield f"fact {id}: changed"
        source = fact.source
        document = case.documents.get(source.document, {"text": "", "kind": ""})
        if source.kind == "mask":
            continue
        # A CT report may end with a section of pathology.
        if document["kind"] not in ("radiology", source.kind):
            yield f"fact {id}: of a document that is not there"
        elif document["text"][source.start : source.end] != source.quote or not source.quote:
            yield f"fact {id}: its quote does not stand where it says"
    asked: set[tuple[str, str]] = set()
    for kept in case.records:
        for problem in _record_problems(case, kept, graph):
            yield f"{kept.trace.record}: {problem}"
        question = kept.scan, asked_text(kept.record)
        if question in asked:
            yield f"{kept.trace.record}: its question is there twice"
        asked.add(question)


def _record_problems(case: StoredCase, kept: Kept, graph: KnowledgeGraph) -> Iterator[str]:
    trace, record = kept.trace, kept.record
    if record_id(kept.line) != trace.record:
        yield "changed since its id was given"
        return
    if reason := fault(record):
        yield reason
    of = Case(case.id, record.patient, (kept.scan,), ())
    yield from record_problems(record, trace, of, case.facts, graph)
    for step in trace.steps:
        if step.level == "impression" and not any(claim.edges for claim in step.claims):
            yield f"an impression without an edge of the graph: {step.text[:80]}"


def cited(trace: Trace) -> tuple[set[str], set[str]]:
    """Collect the facts and the edges that a record rests on."""
    claims = [claim for step in trace.steps for claim in step.claims]
    facts = {id for claim in claims for id in claim.facts} | {*trace.answer_facts}
    edges = {id for claim in claims for id in claim.edges} | {*trace.answer_edges}
    return facts, edges
