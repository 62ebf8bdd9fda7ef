"""Fitting a confidence, against scikit-learn, and what becomes of it in a report's terms."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.calibration import (
    calibration_text,
    confidences,
    fit,
    fit_calibration,
    fit_kind,
)
from tumorchain_jax.evaluation.items import Item
from tumorchain_jax.evaluation.reliability_plot import reliability_curve
from tumorchain_jax.weights.calibration import log_odds

SEEDS = (5_000_000, 60)
SHAPE = "What is the shape of the lesion in the liver?"


def over_confident(n: int, temperature: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities, and answers that are right as often as the divided log-odds say."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(3, 3, n)
    right = rng.uniform(0, 1, n) < 1 / (1 + np.exp(-odds / temperature))
    return -np.logaddexp(0, -odds), right


def items(n: int = 600, temperature: float = 3.0) -> list[Item]:
    log_probability, right = over_confident(n, temperature)
    empty = Item("", "lesion_attributes", "shape", "", SHAPE, (), "round", "", "", False)
    return [
        replace(empty, patient=f"p{i % 60}", right=bool(r), log_probability=float(p))
        for i, (p, r) in enumerate(zip(log_probability, right, strict=True))
    ]


def test_log_odds_of_probabilities() -> None:
    probability = np.array([0.1, 0.5, 0.9])
    expected = np.log(probability / (1 - probability))
    np.testing.assert_allclose(log_odds(np.log(probability)), expected, rtol=1e-9)
    assert np.isfinite(log_odds(np.array([0.0, -1e9]))).all()


def test_fit_is_the_logistic_regression_of_scikit_learn() -> None:
    log_probability, right = over_confident(3000, 2.0)
    found = fit_kind(log_probability, right)
    x = log_odds(log_probability)[:, None]
    peer = LogisticRegression(C=1e9, tol=1e-10).fit(x, right)
    # The smoothed targets move 3,000 answers by less than this.
    assert 1 / found.temperature == pytest.approx(peer.coef_[0, 0], abs=5e-3)
    assert found.bias == pytest.approx(peer.intercept_[0], abs=5e-3)
    expected = peer.predict_proba(x)[:, 1]
    np.testing.assert_allclose(found.confidence(log_probability), expected, atol=2e-3)
    assert found.temperature == pytest.approx(2, rel=0.15)


def test_fit_stays_finite_where_all_are_right() -> None:
    found = fit_kind(np.linspace(-1, 0, 50), np.ones(50, bool))
    assert np.isfinite([found.temperature, found.bias]).all()
    confidence = found.confidence(np.array([-0.5]))[0]
    assert 0.9 < confidence < 1


def test_fit_never_turns_the_order_around() -> None:
    log_probability, right = over_confident(500, 1.0)
    found = fit_kind(log_probability, ~right)
    assert found.temperature == pytest.approx(1000)  # the probability says nothing
    low, high = found.confidence(np.array([-3.0, -0.01]))
    assert low <= high
    assert high == pytest.approx((~right).mean(), abs=0.02)


def test_fit_leaves_out_rare_kinds_and_answers_without_a_conclusion() -> None:
    rare = replace(items(1)[0], question="What is the density of the lesion in the liver?")
    mute = replace(items(1)[0], log_probability=None)
    found = fit([*items(), rare, mute])
    assert list(found) == ["shape"]
    assert found["shape"].n == 600
    assert np.isnan(confidences(found, [rare, mute])).all()


def test_calibration_lowers_the_error_on_patients_it_was_not_fitted_on() -> None:
    calibration = fit_calibration(items(), SEEDS)
    assert calibration.ece_before[0] > 10
    assert calibration.ece_after[0] < 6
    for name in ("ece_before", "ece_after", "accuracy", "accuracy_at_80", "coverage"):
        value, low, high = getattr(calibration, name)
        assert low <= high
        assert 0 <= value <= 100
    assert calibration.accuracy_at_80[0] > calibration.accuracy[0]
    assert calibration.accuracy_answered[0] > calibration.accuracy[0]
    assert sum(each.n for each in calibration.bins) == calibration.n == 600
    text = calibration_text(calibration)
    assert f"expected calibration error after{calibration.ece_after[0]:10.1f}" in text


def test_calibration_is_measured_across_patients() -> None:
    """Answers that tell the patient, not the truth, must not look calibrated."""
    made = items(120)
    in_sample = confidences(fit(made), made)
    right = np.array([item.right for item in made])
    calibration = fit_calibration(made, SEEDS)
    crossed = sum(each.n * abs(each.confidence - each.accuracy) for each in calibration.bins)
    assert calibration.ece_after[0] == pytest.approx(100 * crossed / len(made), abs=0.02)
    assert not np.isclose(np.mean(in_sample - right), crossed / len(made))


def test_calibration_of_too_few_patients_is_refused() -> None:
    few = [replace(item, patient="p0") for item in items()]
    with pytest.raises(InputError, match="take more patients"):
        fit_calibration(few, SEEDS)
    with pytest.raises(InputError, match="take more patients"):
        fit_calibration(items(10), SEEDS)


def test_reliability_curve_has_a_dot_for_each_bin() -> None:
    calibration = fit_calibration(items(), SEEDS)
    svg = reliability_curve(calibration.bins, "<nano>", "error 3 %")
    assert svg.count("<circle") == len(calibration.bins)
    assert "&lt;nano&gt;" in svg
    assert "600 answers" in svg
