"""Scores of a binary classifier that gives probabilities, with intervals over clusters.

The values are scikit-learn's, ties included: area under the ROC curve, average precision,
sensitivity at a specificity, accuracy, Brier score. Intervals are percentiles of a bootstrap whose
unit is the cluster (a patient with all pictures), since pictures of one patient are not
independent; DeLong's test compares two classifiers on the same pictures as if they were.

Shape letters: N pictures, D draws (row 0 is the sample itself), U distinct scores.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import stats

from tumorchain_jax.evaluation.bootstrap import interval, patient_rows, resampled

Labels = Bool[np.ndarray, " N"]
Scores = Float[np.ndarray, " N"]
Weights = Float[np.ndarray, "D N"]
Draws = Float[np.ndarray, " D"]
CHUNK = 2_000_000
"""Weights that are summed at once."""
SPECIFICITIES = (0.90, 0.95)
BINS = 10
_resampled = lru_cache(maxsize=2)(resampled)  # a table takes a hundred estimates of the same draws


class _Cumulated(NamedTuple):
    """Weights of positives and negatives at and above each distinct score, from the highest on."""

    positive: Float[np.ndarray, "D U"]
    negative: Float[np.ndarray, "D U"]


def _cumulated(labels: Labels, scores: Scores, weights: Weights) -> _Cumulated:
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    last = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
    positive = np.cumsum(weights[:, order] * labels[order], axis=1)[:, last]
    negative = np.cumsum(weights[:, order] * ~labels[order], axis=1)[:, last]
    return _Cumulated(positive, negative)


def auroc(labels: Labels, scores: Scores, weights: Weights) -> Draws:
    """Area under the ROC curve; not a number for a draw with one label alone."""
    positive, negative = _cumulated(labels, scores, weights)
    with np.errstate(invalid="ignore", divide="ignore"):
        x, y = negative / negative[:, -1:], positive / positive[:, -1:]
    x, y = (np.pad(each, ((0, 0), (1, 0))) for each in (x, y))
    return np.trapezoid(y, x, axis=1)


def average_precision(labels: Labels, scores: Scores, weights: Weights) -> Draws:
    """Area under the precision-recall curve as the sum of steps."""
    positive, negative = _cumulated(labels, scores, weights)
    with np.errstate(invalid="ignore", divide="ignore"):
        precision = np.where(positive > 0, positive / (positive + negative), 0.0)
        recall = positive / positive[:, -1:]
    return (np.diff(recall, prepend=0.0) * precision).sum(axis=1)


def sensitivity_at(specificity: float) -> Callable[[Labels, Scores, Weights], Draws]:
    """The highest sensitivity of a threshold whose specificity is at least this."""

    def score(labels: Labels, scores: Scores, weights: Weights) -> Draws:
        positive, negative = _cumulated(labels, scores, weights)
        with np.errstate(invalid="ignore", divide="ignore"):
            false = negative / negative[:, -1:]
            allowed = np.where(false <= 1 - specificity + 1e-12, positive / positive[:, -1:], 0.0)
        return allowed.max(axis=1)

    return score


def accuracy(labels: Labels, scores: Scores, weights: Weights) -> Draws:
    """Share of the pictures on the right side of a probability of one half."""
    return weights @ ((scores >= 0.5) == labels) / weights.sum(axis=1)


def brier(labels: Labels, scores: Scores, weights: Weights) -> Draws:
    """Mean squared difference of probability and truth."""
    return weights @ (scores - labels) ** 2 / weights.sum(axis=1)


def calibration_error(labels: Labels, scores: Scores, weights: Weights) -> Draws:
    """Mean difference of confidence and frequency over bins of equal width."""
    bins = np.minimum((scores * BINS).astype(int), BINS - 1)
    gaps = np.stack([weights @ ((scores - labels) * (bins == each)) for each in range(BINS)])
    return np.abs(gaps).sum(axis=0) / weights.sum(axis=1)


METRICS: Mapping[str, Callable[[Labels, Scores, Weights], Draws]] = {
    "auroc": auroc,
    "auprc": average_precision,
    "accuracy": accuracy,
    **{f"sensitivity_at_{round(100 * each)}": sensitivity_at(each) for each in SPECIFICITIES},
    "brier": brier,
    "calibration_error": calibration_error,
}


class Estimate(NamedTuple):
    """A value with its 95 % interval."""

    value: float
    ci95: tuple[float, float]


def estimates(
    labels: Labels,
    scores: Scores,
    clusters: Sequence[str],
    metrics: Mapping[str, Callable[[Labels, Scores, Weights], Draws]] = METRICS,
) -> dict[str, Estimate]:
    """Each metric with its interval over clusters."""
    found = {}
    for name, metric in metrics.items():
        draws = _draws(metric, labels, scores, clusters)
        low, high = interval(draws)
        found[name] = Estimate(float(draws[0]), (low, high))
    return found


def difference(
    labels: Labels,
    one: Scores,
    other: Scores,
    clusters: Sequence[str],
    metric: Callable[[Labels, Scores, Weights], Draws] = auroc,
) -> Estimate:
    """A metric of `one` less that of `other` on the same draws of clusters."""
    draws = _draws(metric, labels, one, clusters) - _draws(metric, labels, other, clusters)
    low, high = interval(draws)
    return Estimate(float(draws[0]), (low, high))


def _draws(
    metric: Callable[[Labels, Scores, Weights], Draws],
    labels: Labels,
    scores: Scores,
    clusters: Sequence[str],
) -> Draws:
    rows = patient_rows(clusters)
    drawn = _resampled(int(rows.max()) + 1)
    step = max(1, CHUNK // len(scores))
    parts = [
        metric(labels, scores, drawn[start : start + step][:, rows])
        for start in range(0, len(drawn), step)
    ]
    return np.concatenate(parts)


class DeLong(NamedTuple):
    """Two areas under the ROC curve on the same pictures (DeLong et al. 1988).

    Attributes:
        covariance: of the two areas.
        p: two-sided, of no difference.
    """

    areas: tuple[float, float]
    covariance: Float[np.ndarray, "2 2"]
    p: float


def delong(labels: Labels, one: Scores, other: Scores) -> DeLong:
    """Compare two classifiers by the placements of their scores."""
    placements = [_placements(labels, scores) for scores in (one, other)]
    of_positives = np.stack([each[0] for each in placements])
    of_negatives = np.stack([each[1] for each in placements])
    covariance = np.cov(of_positives) / of_positives.shape[1]
    covariance = covariance + np.cov(of_negatives) / of_negatives.shape[1]
    areas = of_positives.mean(axis=1)
    variance = covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
    gap = areas[0] - areas[1]
    if variance <= 0:
        p = 1.0 if gap == 0 else 0.0
    else:
        p = float(2 * stats.norm.sf(abs(gap) / np.sqrt(variance)))
    return DeLong((float(areas[0]), float(areas[1])), covariance, p)


def _placements(labels: Labels, scores: Scores) -> tuple[np.ndarray, np.ndarray]:
    """Of each positive the share of negatives below it, of each negative that of positives above.

    Ties count half. By ranks: those among all less those among its own kind.
    """
    positives, negatives = scores[labels], scores[~labels]
    ranks = stats.rankdata(np.concatenate([positives, negatives]))
    of_positives = (ranks[: len(positives)] - stats.rankdata(positives)) / len(negatives)
    of_negatives = (ranks[len(positives) :] - stats.rankdata(negatives)) / len(positives)
    return of_positives, 1 - of_negatives


def reliability(
    labels: Labels, scores: Scores
) -> tuple[Float[np.ndarray, " B"], Float[np.ndarray, " B"], Int[np.ndarray, " B"]]:
    """Mean score, share of positives and count of each filled bin of equal width."""
    bins = np.minimum((scores * BINS).astype(int), BINS - 1)
    filled = [each for each in range(BINS) if (bins == each).any()]
    means = np.array([scores[bins == each].mean() for each in filled])
    shares = np.array([labels[bins == each].mean() for each in filled])
    return means, shares, np.array([(bins == each).sum() for each in filled])
