"""What the agents hand each other, and the one function that each of them is.

An agent by rules and an agent by a language model are the same function; `Agents` says which is
which. None of them keeps a state, so that a case's result is a function of the case, the settings
and the replies alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tumorchain_jax.engine.case import Case, Step
from tumorchain_jax.engine.facts import Fact
from tumorchain_jax.engine.graph.load import Edge

Strategy = Literal["", "widen_region", "suspected_cause"]
STRATEGIES: tuple[Strategy, ...] = ("widen_region", "suspected_cause")
"""The paper's two (2.2): show more of the body, or say what may be wrong."""

Chain = tuple[Step, ...]
"""What is said of one organ: findings, then impressions, then reasoning."""


@dataclass(frozen=True)
class View:
    """What Reasoner and Calibrator are shown of a case: one organ, and never pathology.

    Attributes:
        case: id of the case.
        organ: display name of the organ that the chain is about.
        facts: of CT reports and masks, about the organ or about none in particular.
        around: of CT reports and masks, about other organs; shown to widen the region.
        edges: of the knowledge graph, as many as `KnowledgeGraph.for_case` gives.
        attempt: from 1.
        strategy: of this attempt; empty in the first.
        issue: what was wrong with the last attempt; empty in the first.

    Raises:
        ValueError: a fact is of pathology.
    """

    case: str
    organ: str
    facts: tuple[Fact, ...]
    around: tuple[Fact, ...]
    edges: tuple[Edge, ...]
    attempt: int = 1
    strategy: Strategy = ""
    issue: str = ""

    def __post_init__(self) -> None:
        if any(fact.source.kind == "pathology" for fact in (*self.facts, *self.around)):
            raise ValueError("pathology is fenced off from Reasoner and Calibrator")

    @property
    def by_id(self) -> dict[str, Fact]:
        """Id -> fact, of all that is shown."""
        return {fact.id: fact for fact in (*self.facts, *self.around)}


@dataclass(frozen=True)
class Stage:
    """A category of a tumour.

    Attributes:
        letter: `T`, `N` or `M`.
        value: such as `T2`.
        steps: what the answer is drawn from, beyond the chain of the organ.
        facts, edges: ids that the answer rests on.
    """

    letter: str
    value: str
    steps: Chain
    facts: tuple[str, ...]
    edges: tuple[str, ...]

    @property
    def is_stated(self) -> bool:
        """Whether a report states it, rather than that it follows from findings."""
        return not self.edges


@dataclass(frozen=True)
class Summary:
    """What the Summarizer makes of an organ's chain and the pathology.

    Attributes:
        steps: of pathology, to follow the chain in a report.
        stages: T, N and M, as far as they are known.
        discordant: where CT and pathology differ, one line each.
        issue: what the Reasoner should look at again; it says nothing of pathology. Empty if
            nothing is to be done.
    """

    steps: Chain = ()
    stages: tuple[Stage, ...] = ()
    discordant: tuple[str, ...] = ()
    issue: str = ""


Extractor = Callable[[Case], tuple[Fact, ...]]
"""Finds the facts in the documents of a case; they come in the order of the documents."""
Reasoner = Callable[[View], Chain]
"""Writes a draft of an organ's chain; every claim names the facts and edges that it rests on."""
Calibrator = Callable[[View, Chain], str]
"""Reviews a draft: what is wrong with it, in one line; empty if nothing is."""
Summarizer = Callable[[View, Chain, tuple[Fact, ...]], Summary]
"""Joins a chain that was found right with pathology, or says what to look at again."""


@dataclass(frozen=True)
class Agents:
    """The agents of a run.

    Attributes:
        names: agent -> backend: `rules`, or an endpoint's model and the hash of its prompt.
    """

    extractor: Extractor
    reasoner: Reasoner
    calibrator: Calibrator
    summarizer: Summarizer
    names: tuple[tuple[str, str], ...]
