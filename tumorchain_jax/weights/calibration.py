"""calibration.json: from the probability of an answer to the probability that it is right.

The probability that a model gives to the words of its own conclusion is not that of their being
right. For each kind of question a temperature and a bias map one to the other (Platt scaling; Platt
1999, "Probabilistic outputs for support vector machines"; temperature alone: Guo et al. 2017).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tumorchain_jax.core.json_fields import Fields
from tumorchain_jax.weights.seeds import Seeds, read_seeds

LARGEST_LOG_ODDS = 15.0
"""In float32 a probability near 1 is 1: log-odds are cut off here."""
AGAIN = "calibrate again"
Interval = tuple[float, float, float]
"""A value, and the two ends of its 95 % interval."""


@dataclass(frozen=True)
class KindCalibration:
    """Map of an answer's probability to that of its being right, for one kind of question.

    Attributes:
        temperature: divides the log-odds; a large one says that they tell nothing.
        bias: is added to them.
        n: answers it was fitted on.
    """

    temperature: float
    bias: float
    n: int

    def confidence(self, log_probability: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
        """Return the probability that answers of these log-probabilities are right."""
        return 1 / (1 + np.exp(-log_odds(log_probability) / self.temperature - self.bias))


@dataclass(frozen=True)
class Bin:
    """A bin of the reliability curve.

    Attributes:
        confidence: mean of the answers in it.
        accuracy: share of them that is right.
        n: how many they are.
    """

    confidence: float
    accuracy: float
    n: int


@dataclass(frozen=True)
class Calibration:
    """Calibration of a model's answers to digital patients.

    What is measured of it is cross-fitted: each patient by a fit to other patients.

    Attributes:
        seeds: of the patients.
        n: answers, and `abstained` those without a conclusion, which have no confidence.
        threshold: answers of a lower confidence are withheld ("cannot tell").
        kinds: of question.
        ece_before: expected calibration error of the plain probabilities, in percent.
        ece_after: the same of the calibrated ones.
        accuracy: of all answers, in percent.
        accuracy_at_80: of the 80 % of all answers with the highest confidence.
        coverage: percent of all answers that the threshold lets pass.
        accuracy_answered: of these.
        bins: the reliability curve of the calibrated ones.
    """

    seeds: Seeds
    n: int
    abstained: int
    threshold: float
    kinds: Mapping[str, KindCalibration]
    ece_before: Interval
    ece_after: Interval
    accuracy: Interval
    accuracy_at_80: Interval
    coverage: Interval
    accuracy_answered: Interval
    bins: Sequence[Bin]


def log_odds(log_probability: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """Turn log-probabilities into log-odds within +-`LARGEST_LOG_ODDS`."""
    bounded = np.clip(np.asarray(log_probability, float), -LARGEST_LOG_ODDS, -1e-12)
    return np.clip(bounded - np.log(-np.expm1(bounded)), -LARGEST_LOG_ODDS, LARGEST_LOG_ODDS)


def read_calibration(fields: Fields) -> Calibration:
    """Read a calibration.

    Raises:
        InputError: a field is missing or cannot be.
    """
    seeds, threshold = read_seeds(fields, "seeds"), fields.number("threshold")
    if seeds is None:
        fields.refuse("seeds", "the first seed and their number", AGAIN)
    if not 0 <= threshold <= 1:
        fields.refuse("threshold", "0 to 1", AGAIN)
    kinds = fields.mapping("kinds")
    n, abstained = fields.integer("n", least=1), fields.integer("abstained")
    return Calibration(
        seeds=seeds,
        n=n,
        abstained=abstained,
        threshold=threshold,
        kinds={name: _kind(kinds.mapping(name)) for name in kinds.values},
        ece_before=_interval(fields, "ece_before"),
        ece_after=_interval(fields, "ece_after"),
        accuracy=_interval(fields, "accuracy"),
        accuracy_at_80=_interval(fields, "accuracy_at_80"),
        coverage=_interval(fields, "coverage"),
        accuracy_answered=_interval(fields, "accuracy_answered"),
        bins=[_bin(fields, number) for number in range(len(fields.sequence("bins")))],
    )


def _kind(fields: Fields) -> KindCalibration:
    temperature = fields.number("temperature")
    if temperature <= 0:
        fields.refuse("temperature", "more than 0", AGAIN)
    return KindCalibration(temperature, fields.number("bias"), fields.integer("n", least=1))


def _interval(fields: Fields, name: str) -> Interval:
    value, low, high = fields.numbers(name, 3)
    return value, low, high


def _bin(fields: Fields, number: int) -> Bin:
    values = fields.sequence("bins")[number]
    if not isinstance(values, dict):
        fields.refuse("bins", "objects", AGAIN)
    each = Fields(fields.path, f"{fields.where}bins[{number}].", values)
    return Bin(each.number("confidence"), each.number("accuracy"), each.integer("n", least=1))
