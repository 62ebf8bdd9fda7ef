"""What the engine is given of a patient, and what it makes of it."""

import hashlib
from dataclasses import dataclass
from functools import cached_property

from tumorchain_jax.data.schema import Record
from tumorchain_jax.engine.facts import Fact, SourceKind


@dataclass(frozen=True)
class Document:
    """A report.

    Attributes:
        kind: `radiology` or `pathology`.
        text: as read, decoded and otherwise unchanged; spans of facts are characters of it.
        language: `en`, `de`, ...; empty where it is not said.
    """

    kind: SourceKind
    text: str
    language: str = ""

    @cached_property
    def sha256(self) -> str:
        """Hash of the text in UTF-8."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class Case:
    """Scans, reports and measurements of one examination.

    Attributes:
        id: unique in a run.
        patient: splits go by it.
        scans: names of its scans, as `prepare` knows them; at least one.
        documents: its reports.
        measurements: facts of its masks, from the Segmentation Expert; `source.kind` is `mask`.
        sex: `female`, `male` or empty.
        age: in years, or None.
    """

    id: str
    patient: str
    scans: tuple[str, ...]
    documents: tuple[Document, ...]
    measurements: tuple[Fact, ...] = ()
    sex: str = ""
    age: int | None = None


@dataclass(frozen=True)
class Rejected:
    """A chain that was set aside.

    Attributes:
        organ: that the chain is about.
        reason: in one line.
        attempts: how often it was tried.
    """

    organ: str
    reason: str
    attempts: int


@dataclass(frozen=True)
class CaseResult:
    """What the agents made of a case; a function of the case, the settings and the replies alone.

    Attributes:
        facts: of its documents and masks.
        records: accepted records; `Record.scan` is the position of the scan in `Case.scans`.
        traces: of the records, in their order: what each claim of a record rests on.
        rejected: chains set aside.
        discordant: where CT and pathology differ, or CT reports and masks, in one line each; kept,
            never reconciled.
    """

    facts: tuple[Fact, ...]
    records: tuple[Record, ...]
    traces: tuple["Trace", ...]
    rejected: tuple[Rejected, ...] = ()
    discordant: tuple[str, ...] = ()


@dataclass(frozen=True)
class Claim:
    """One statement of a chain.

    Attributes:
        subject, relation, object: the statement as a triple.
        facts: ids of the facts that it rests on.
        edges: ids of edges of the graph that it rests on.
    """

    subject: str
    relation: str
    object: str
    facts: tuple[str, ...]
    edges: tuple[str, ...] = ()


@dataclass(frozen=True)
class Step:
    """One sentence of a chain.

    Attributes:
        level: `finding`, `impression` or `reasoning` (the paper's three chains).
        text: as it stands in the record.
        claims: what the text claims.
    """

    level: str
    text: str
    claims: tuple[Claim, ...]


@dataclass(frozen=True)
class Review:
    """A verdict of an agent on a draft.

    Attributes:
        agent: `calibrator` or `summarizer`.
        issue: what was wrong; empty if nothing was.
        strategy: `widen_region` or `suspected_cause`, of the next attempt; empty if none followed.
        attempt: from 1.
    """

    agent: str
    issue: str
    strategy: str
    attempt: int


@dataclass(frozen=True)
class Trace:
    """The chain of custody of one record.

    Attributes:
        record: id of the record (hash of its content).
        case: id of the case.
        form: `open`, `choice` or `box`.
        steps: of the chain.
        answer_facts: ids of the facts that the answer rests on.
        answer_edges: ids of the graph's edges that it rests on.
        reviews: verdicts on the drafts of its chain.
        agents: agent -> backend, such as `rules` or an endpoint's model and prompt hash.
        graph: version of the knowledge graph.
    """

    record: str
    case: str
    form: str
    steps: tuple[Step, ...]
    answer_facts: tuple[str, ...]
    answer_edges: tuple[str, ...]
    reviews: tuple[Review, ...]
    agents: tuple[tuple[str, str], ...]
    graph: str
