"""Scores of binary classifiers against scikit-learn's, with ties; DeLong against its definition."""

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from tumorchain_jax.evaluation import auc
from tumorchain_jax.evaluation.bootstrap import patient_rows, resampled


def sample(seed: int, count: int = 200, ties: bool = True) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.random(count) < 0.4
    scores = np.clip(0.5 + 0.2 * (labels - 0.5) + rng.normal(0, 0.2, count), 0, 1)
    return labels, np.round(scores, 1) if ties else scores


def once(labels: np.ndarray) -> np.ndarray:
    return np.ones((1, len(labels)))


def sensitivity(labels: np.ndarray, scores: np.ndarray, specificity: float) -> float:
    false, true, _ = sklearn_metrics.roc_curve(labels, scores, drop_intermediate=False)
    return max(true[false <= 1 - specificity + 1e-12])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("ties", [True, False])
def test_values_are_those_of_scikit_learn(seed: int, ties: bool) -> None:
    labels, scores = sample(seed, ties=ties)
    expected = {
        "auroc": sklearn_metrics.roc_auc_score(labels, scores),
        "auprc": sklearn_metrics.average_precision_score(labels, scores),
        "accuracy": sklearn_metrics.accuracy_score(labels, scores >= 0.5),
        "sensitivity_at_90": sensitivity(labels, scores, 0.9),
        "sensitivity_at_95": sensitivity(labels, scores, 0.95),
        "brier": sklearn_metrics.brier_score_loss(labels, scores),
    }
    for name, value in expected.items():
        assert abs(auc.METRICS[name](labels, scores, once(labels))[0] - value) <= 1e-12, name


def test_draws_are_scikit_learns_with_sample_weights() -> None:
    labels, scores = sample(7)
    patients = [str(number // 3) for number in range(len(labels))]
    rows = patient_rows(patients)
    weights = resampled(int(rows.max()) + 1)[:500][:, rows]
    for name, reference in (
        ("auroc", sklearn_metrics.roc_auc_score),
        ("auprc", sklearn_metrics.average_precision_score),
    ):
        ours = auc.METRICS[name](labels, scores, weights)
        theirs = [reference(labels, scores, sample_weight=row) for row in weights]
        np.testing.assert_allclose(ours, theirs, atol=1e-12)


def test_interval_covers_the_value_and_one_label_gives_no_number() -> None:
    labels, scores = sample(3)
    found = auc.estimates(labels, scores, [str(number) for number in range(len(labels))])
    for name in ("auroc", "auprc", "accuracy", "brier"):
        low, high = found[name].ci95
        assert low < found[name].value < high
    alone = auc.auroc(np.ones(4, bool), scores[:4], once(scores[:4]))
    assert np.isnan(alone[0])


def test_perfect_and_inverted_scores() -> None:
    labels = np.arange(10) >= 5
    scores = np.linspace(0, 1, 10)
    assert auc.auroc(labels, scores, once(labels))[0] == 1
    assert auc.auroc(labels, 1 - scores, once(labels))[0] == 0
    assert auc.auroc(labels, np.full(10, 0.5), once(labels))[0] == 0.5


@pytest.mark.parametrize("ties", [True, False])
def test_delong_by_its_definition(ties: bool) -> None:
    """Means and covariances of the indicator over all pairs of a positive and a negative."""
    labels, one = sample(11, ties=ties)
    _, other = sample(12, ties=ties)
    found = auc.delong(labels, one, other)
    of_pairs = []
    for scores in (one, other):
        gap = scores[labels][:, None] - scores[~labels][None]
        of_pairs.append(np.where(gap == 0, 0.5, gap > 0))
    expected = np.cov([pairs.mean(axis=1) for pairs in of_pairs]) / labels.sum()
    expected += np.cov([pairs.mean(axis=0) for pairs in of_pairs]) / (~labels).sum()
    np.testing.assert_allclose(found.covariance, expected, atol=1e-12)
    areas = [sklearn_metrics.roc_auc_score(labels, scores) for scores in (one, other)]
    np.testing.assert_allclose(found.areas, areas, atol=1e-12)
    assert auc.delong(labels, one, one).p == 1


def test_difference_of_equal_scores_is_nothing() -> None:
    labels, scores = sample(1)
    patients = [str(number // 2) for number in range(len(labels))]
    assert auc.difference(labels, scores, scores, patients) == auc.Estimate(0.0, (0.0, 0.0))
    gap = auc.difference(labels, np.where(labels, 0.9, 0.1), scores, patients)
    assert gap.ci95[0] > 0


def test_calibration_error_and_reliability() -> None:
    labels = np.array([True, False, True, False])
    scores = np.array([0.9, 0.1, 0.9, 0.1])
    assert auc.calibration_error(labels, scores, once(labels))[0] == pytest.approx(0.1)
    means, shares, counts = auc.reliability(labels, scores)
    np.testing.assert_allclose(means, [0.1, 0.9])
    np.testing.assert_array_equal(shares, [0, 1])
    np.testing.assert_array_equal(counts, [2, 2])
