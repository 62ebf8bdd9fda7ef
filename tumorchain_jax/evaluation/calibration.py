"""Fit a model's confidence to answers whose truth is known, and measure the fit.

The log-probability that a model gives to the words of its conclusion becomes, kind by kind of
question, the probability that the conclusion is right. What is reported of the fit is cross-fitted:
the confidence of each patient's answers comes from a fit to the other patients.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import compress

import numpy as np
from jaxtyping import Bool, Float
from scipy.optimize import minimize

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.bootstrap import patient_rows
from tumorchain_jax.evaluation.items import Item
from tumorchain_jax.evaluation.selective import reliability, selective
from tumorchain_jax.reasoning.prompt import with_choices
from tumorchain_jax.reasoning.question_kind import question_kind
from tumorchain_jax.weights.calibration import Calibration, Interval, KindCalibration, log_odds
from tumorchain_jax.weights.seeds import Seeds

THRESHOLD = 0.5
FOLDS = 5
LEAST = 20
"""Answers of a kind, with fewer of which it stays uncalibrated."""
LEAST_SLOPE, LARGEST_SLOPE = 1e-3, 1.0
"""Bounds of 1 / temperature: a higher probability never lowers the confidence, and differences
between probabilities near 1, which rounding decides, do not grow."""


def fit_kind(
    log_probability: Float[np.ndarray, " N"], right: Bool[np.ndarray, " N"]
) -> KindCalibration:
    """Fit temperature and bias by maximum likelihood, with Platt's smoothed targets.

    The smoothing ((N+ + 1) / (N+ + 2) and 1 / (N- + 2) for 1 and 0) keeps the fit finite where all
    answers are right, or all wrong.
    """
    x, hits = log_odds(log_probability), int(right.sum())
    target = np.where(right, (hits + 1) / (hits + 2), 1 / (len(right) - hits + 2))

    def loss(values: Float[np.ndarray, " 2"]) -> tuple[float, Float[np.ndarray, " 2"]]:
        z = values[0] * x + values[1]
        gradient = 1 / (1 + np.exp(-z)) - target
        cost = np.logaddexp(0, z) - target * z
        return float(cost.mean()), np.array([(gradient * x).mean(), gradient.mean()])

    bounds = [(LEAST_SLOPE, LARGEST_SLOPE), (None, None)]
    slope, bias = minimize(loss, [1.0, 0.0], jac=True, bounds=bounds, method="L-BFGS-B").x
    return KindCalibration(float(1 / slope), float(bias), len(right))


def fit(items: Sequence[Item]) -> dict[str, KindCalibration]:
    """Fit each kind of question that has at least `LEAST` answers with a conclusion."""
    by_kind: dict[str, list[Item]] = defaultdict(list)
    for item in items:
        if item.log_probability is not None:
            by_kind[kind_of(item)].append(item)
    return {
        kind: fit_kind(_log_probabilities(of_kind), _right(of_kind))
        for kind, of_kind in sorted(by_kind.items())
        if len(of_kind) >= LEAST
    }


def confidences(
    kinds: Mapping[str, KindCalibration], items: Sequence[Item]
) -> Float[np.ndarray, " N"]:
    """Return the confidence of each answer; NaN without a conclusion or a calibration."""
    found = np.full(len(items), np.nan)
    for number, item in enumerate(items):
        of_kind = kinds.get(kind_of(item))
        if of_kind and item.log_probability is not None:
            found[number] = of_kind.confidence(np.array([item.log_probability]))[0]
    return found


def fit_calibration(
    items: Sequence[Item], seeds: Seeds, threshold: float = THRESHOLD
) -> Calibration:
    """Fit the confidence of a model, and measure the fit on patients it was not fitted on.

    Args:
        items: the model's answers about the patients.
        seeds: of these patients.
        threshold: answers of a lower confidence are withheld.

    Raises:
        InputError: there are fewer patients than folds, or no kind of question has enough answers.
    """
    rows = patient_rows([item.patient for item in items])
    kinds = fit(items)
    if not kinds or len({*rows}) < FOLDS:
        found = f"{len({*rows})} patients, {len(items)} answers"
        expected = f"at least {FOLDS} patients, and {LEAST} answers of a kind"
        raise InputError("calibration", "patients", found, expected, "take more patients")
    confidence = np.full(len(items), np.nan)
    for fold in range(FOLDS):
        held_out = rows % FOLDS == fold
        kinds_of_others = fit([*compress(items, ~held_out)])
        confidence[held_out] = confidences(kinds_of_others, [*compress(items, held_out)])
    right, patients = _right(items), [item.patient for item in items]
    plain = np.where(np.isnan(confidence), np.nan, np.exp(_log_probabilities(items)))
    before = selective(patients, plain, right, ~(plain >= threshold))
    after = selective(patients, confidence, right, ~(confidence >= threshold))
    return Calibration(
        seeds=seeds,
        n=len(items),
        abstained=int(np.isnan(confidence).sum()),
        threshold=threshold,
        kinds=kinds,
        ece_before=_interval(before["ece"]),
        ece_after=_interval(after["ece"]),
        accuracy=_interval(after["accuracy"]),
        accuracy_at_80=_interval(after["accuracy_at_80"]),
        coverage=_interval(after["coverage"]),
        accuracy_answered=_interval(after["accuracy_answered"] or (0.0, 0.0, 0.0)),
        bins=reliability(confidence, right),
    )


def calibration_text(calibration: Calibration) -> str:
    """Format what was measured of a calibration, for people."""
    rows = (
        ("expected calibration error before", calibration.ece_before),
        ("expected calibration error after", calibration.ece_after),
        ("accuracy", calibration.accuracy),
        ("accuracy at 80 % coverage", calibration.accuracy_at_80),
        (f"coverage at confidence >= {calibration.threshold:g}", calibration.coverage),
        ("accuracy of these", calibration.accuracy_answered),
    )
    head = f"{calibration.n} answers, {calibration.abstained} of them without a confidence; percent"
    lines = [f"{name:<36}{value:6.1f} [{low:.1f}, {high:.1f}]" for name, (value, low, high) in rows]
    kinds = [
        f"{name:<12}{each.temperature:>12.2f}{each.bias:>8.2f}{each.n:>7}"
        for name, each in calibration.kinds.items()
    ]
    return "\n".join(
        [head, *lines, "", f"{'kind':<12}{'temperature':>12}{'bias':>8}{'n':>7}", *kinds]
    )


def kind_of(item: Item) -> str:
    """The kind of answer that an item's question asks for."""
    return question_kind(with_choices(item.question, item.choices)).kind


def _log_probabilities(items: Sequence[Item]) -> Float[np.ndarray, " N"]:
    values = [np.nan if i.log_probability is None else i.log_probability for i in items]
    return np.array(values, float)


def _right(items: Sequence[Item]) -> Bool[np.ndarray, " N"]:
    return np.array([item.right for item in items], bool)


def _interval(values: Sequence[float]) -> Interval:
    value, low, high = (round(each, 2) for each in values)
    return value, low, high
