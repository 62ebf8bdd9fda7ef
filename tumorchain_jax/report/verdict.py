"""What a reader may take from an answer: the headline of a report, and what stands behind it."""

from dataclasses import asdict, dataclass
from typing import Any

from tumorchain_jax.weights.scores import Score


@dataclass(frozen=True)
class Confidence:
    """The probability that an answer is right.

    Attributes:
        value: calibrated; None where that is not possible.
        threshold: below it the answer is withheld; None without a calibration.
        log_probability: that the model gives to the words of its conclusion after its own chain,
            uncalibrated; None without a conclusion.
        text: for people, in a few words.
    """

    value: float | None
    threshold: float | None
    log_probability: float | None
    text: str

    @property
    def low(self) -> bool:
        """Whether the answer is withheld."""
        if self.value is None or self.threshold is None:
            return False
        return self.value < self.threshold


@dataclass(frozen=True)
class Verdict:
    """Whether a question was answered, and how far the answer can be relied on.

    Attributes:
        answer_kind: what the question asks for: `organ`, `yes/no`, `choice`, `number`, ...
        reason: why there is no answer, as the headline says it; "" if it was answered.
        domain: the kind of scan, `digital patients` or `real CT`.
        score: the model's on questions of this kind on scans of this kind; None if unknown.
        measured: the same in words.
    """

    answer_kind: str
    reason: str
    confidence: Confidence
    domain: str
    score: Score | None
    measured: str

    @property
    def answered(self) -> bool:
        """Whether the model's conclusion may stand as the headline."""
        return not self.reason

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that it adds to `report.json`."""
        score = None if self.score is None else asdict(self.score)
        return {
            "answer_kind": self.answer_kind,
            "answered": self.answered,
            "reason": self.reason,
            "confidence": asdict(self.confidence),
            "evaluation": {"domain": self.domain, "text": self.measured, "score": score},
        }
