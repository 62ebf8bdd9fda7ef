"""The score that is tied to the truth: precision, recall and F1 of triples, weighted by harm."""

from collections.abc import Collection
from dataclasses import dataclass

from tumorchain_jax.evaluation.chain.triples import Triple
from tumorchain_jax.evaluation.chain.truth import Truth, same_statement


@dataclass(frozen=True)
class Harm:
    """Weights of statements: right ones, wrong ones, and true ones that are missing."""

    right: float
    wrong: float
    missing: float

    @property
    def precision(self) -> float | None:
        """Share of what is said, in percent; None where nothing weighs."""
        return _percent(self.right, self.right + self.wrong)

    @property
    def recall(self) -> float | None:
        """Share of what should be said, in percent."""
        return _percent(self.right, self.right + self.missing)

    @property
    def f1(self) -> float | None:
        """Harmonic mean of the two, in percent."""
        return _percent(2 * self.right, 2 * self.right + self.wrong + self.missing)


def weigh(said: Collection[Triple], truth: Truth) -> Harm:
    """Weigh what is said against the truth; what cannot be verified counts neither way."""
    found = [t for t in truth.required if any(same_statement(t, s) for s in said)]
    missing = [t for t in truth.required if t not in found]
    wrong = [s for s in said if truth.worth(s) == "wrong"]
    return Harm(
        sum((t.harm for t in found), 0.0),
        sum(map(truth.harm_if_wrong, wrong), 0.0),
        sum((t.harm for t in missing), 0.0),
    )


def _percent(part: float, whole: float) -> float | None:
    return 100 * part / whole if whole else None
