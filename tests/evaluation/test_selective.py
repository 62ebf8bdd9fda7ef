"""Calibration error and accuracy at a coverage, against scikit-learn and by hand."""

import numpy as np
import pytest
from sklearn.calibration import calibration_curve

from tumorchain_jax.evaluation.selective import (
    BINS,
    accuracy_at_coverage,
    expected_calibration_error,
    reliability,
    selective,
)

NAN = float("nan")


def answers(seed: int, n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    confidence = rng.uniform(0, 1, n)
    return confidence, rng.uniform(0, 1, n) < confidence**2


def test_calibration_error_by_hand() -> None:
    confidence = np.array([0.95, 0.91, 0.55, 0.51, NAN])
    right = np.array([True, False, True, True, False])
    # Bin 0.9 to 1: mean confidence 0.93, half right. Bin 0.5 to 0.6: 0.53, all right.
    expected = (2 * abs(0.93 - 0.5) + 2 * abs(0.53 - 1)) / 4
    assert expected_calibration_error(confidence, right) == pytest.approx(expected)
    assert expected_calibration_error(np.array([1.0]), np.array([True])) == 0
    assert np.isnan(expected_calibration_error(np.array([NAN]), np.array([True])))


def test_reliability_curve_is_that_of_scikit_learn() -> None:
    confidence, right = answers(0)
    accuracy, mean = calibration_curve(right, confidence, n_bins=BINS, strategy="uniform")
    bins = reliability(confidence, right)
    np.testing.assert_allclose([each.accuracy for each in bins], accuracy)
    np.testing.assert_allclose([each.confidence for each in bins], mean)
    assert sum(each.n for each in bins) == len(right)
    weights = np.array([each.n for each in bins]) / len(right)
    error = float(weights @ np.abs(accuracy - mean))
    assert expected_calibration_error(confidence, right) == pytest.approx(error)


def test_accuracy_at_coverage_by_hand() -> None:
    confidence = np.array([0.9, 0.2, 0.8, 0.7, 0.6])
    right = np.array([True, False, True, False, True])
    assert accuracy_at_coverage(confidence, right) == pytest.approx(3 / 4)
    assert accuracy_at_coverage(confidence, right, 0.4) == 1
    assert accuracy_at_coverage(confidence, right, 1.0) == pytest.approx(3 / 5)
    # Half of the third answer, which is wrong, is within the limit.
    assert accuracy_at_coverage(confidence, right, 0.5) == pytest.approx(2 / 2.5)


def test_accuracy_at_coverage_of_equal_confidences_ignores_their_order() -> None:
    right = np.array([True] * 6 + [False] * 4)
    confidence = np.full(10, 0.7)
    assert accuracy_at_coverage(confidence, right) == pytest.approx(0.6)
    assert accuracy_at_coverage(confidence, right[::-1]) == pytest.approx(0.6)


def test_accuracy_at_coverage_counts_abstentions_last() -> None:
    confidence = np.array([0.1, 0.1, NAN, NAN])
    right = np.array([True, True, False, False])
    assert accuracy_at_coverage(confidence, right, 0.5) == 1
    assert accuracy_at_coverage(confidence, right, 1.0) == 0.5  # they are not dropped


def test_accuracy_at_coverage_with_weights_is_that_of_repeated_answers() -> None:
    confidence, right = answers(1, 30)
    times = np.random.default_rng(2).integers(0, 4, 30)
    repeated = np.repeat(confidence, times), np.repeat(right, times)
    found = accuracy_at_coverage(confidence, right, 0.8, times.astype(float))
    assert found == pytest.approx(accuracy_at_coverage(*repeated))


def test_selective_counts_every_abstention() -> None:
    patients = ["a", "a", "b", "b", "c"]
    confidence = np.array([0.9, 0.4, 0.8, NAN, 0.7])
    right = np.array([True, False, True, True, False])
    withheld = np.array([False, True, False, True, False])
    row = selective(patients, confidence, right, withheld)
    assert (row["n"], row["answered"], row["with_confidence"]) == (5, 3, 4)
    assert row["accuracy"][0] == pytest.approx(60)
    assert row["coverage"][0] == pytest.approx(60)
    assert row["accuracy_answered"][0] == pytest.approx(200 / 3)
    assert row["accuracy_at_80"][0] == pytest.approx(100 * 2 / 4)
    for name in ("accuracy", "coverage", "accuracy_answered", "accuracy_at_80", "ece"):
        value, low, high = row[name]
        assert 0 <= low <= high <= 100
        assert low <= value <= high or name == "ece"  # of few answers, draws have a larger error
    nothing = selective(patients, np.full(5, NAN), right, np.ones(5, bool))
    assert nothing["accuracy_at_80"] is nothing["ece"] is nothing["accuracy_answered"] is None
    assert nothing["coverage"][0] == 0
