"""evaluation.json: a model's scores, by domain and subtask, beside its weights."""

from collections.abc import Mapping
from dataclasses import dataclass

from tumorchain_jax.core.json_fields import Fields
from tumorchain_jax.weights.seeds import Seeds, read_seeds

DIGITAL, REAL = "digital patients", "real CT"
REALISTIC_DIGITAL = "realistic digital patients"
CONSPICUOUS_DIGITAL = "digital patients with conspicuous tumours"
MIXED_DIGITAL = "mixed digital patients"
DOMAINS = (DIGITAL, REALISTIC_DIGITAL, CONSPICUOUS_DIGITAL, MIXED_DIGITAL, REAL)
"""Kinds of scans; a real CT with a painted tumour is a real CT."""


@dataclass(frozen=True)
class Score:
    """How well a model answered the questions of a subtask, in percent.

    Attributes:
        ci95: 95 % interval of the accuracy.
        majority: accuracy of always giving the most frequent answer.
        text_only: accuracy of the answers about a mismatched image; None if not asked.
    """

    accuracy: float
    ci95: tuple[float, float]
    n: int
    majority: float
    text_only: float | None = None

    @property
    def baseline(self) -> float:
        """The better of the two baselines, neither of which sees the patient's image."""
        return max(self.majority, self.text_only or 0.0)

    @property
    def above_baseline(self) -> bool:
        """Whether the accuracy is above the better baseline."""
        return self.accuracy > self.baseline


@dataclass(frozen=True)
class DomainScores:
    """Scores on scans of one domain.

    Attributes:
        source: the patients, for people.
        patients: how many there were.
        seeds: first seed and number, where they are digital patients; None otherwise.
        subtasks: Table 1's name -> score.
    """

    source: str
    patients: int
    seeds: Seeds | None
    subtasks: Mapping[str, Score]


def read_domain(fields: Fields) -> DomainScores:
    """Read the scores of a domain.

    Raises:
        InputError: a field is missing or cannot be.
    """
    subtasks = fields.mapping("subtasks")
    return DomainScores(
        fields.text("source"),
        fields.integer("patients", least=1),
        read_seeds(fields, "seeds"),
        {name: _score(subtasks.mapping(name)) for name in subtasks.values},
    )


def _score(fields: Fields) -> Score:
    low, high = fields.numbers("ci95", 2)
    text_only = None if fields.anything("text_only") is None else fields.number("text_only")
    accuracy, majority = fields.number("accuracy"), fields.number("majority")
    return Score(accuracy, (low, high), fields.integer("n", least=1), majority, text_only)
