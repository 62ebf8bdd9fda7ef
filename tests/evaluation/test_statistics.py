import numpy as np
import pytest
from scipy import stats

from tumorchain_jax.evaluation.simulation import Setting, rejections
from tumorchain_jax.evaluation.statistics import (
    clopper_pearson,
    corrected_share,
    holm,
    mcnemar,
    mean_interval,
    sign_flip,
    wilson,
)


def test_sign_flips_of_few_patients_are_exact() -> None:
    values = np.array([1.0, 2.0, 3.0, -1.5, 0.0, 2.5])
    exact = stats.permutation_test(
        (values,), np.sum, permutation_type="samples", n_resamples=np.inf
    ).pvalue
    assert sign_flip(values) == pytest.approx(exact)
    assert sign_flip(np.zeros(5)) == 1


def test_sign_flips_of_many_patients_are_near_the_exact_test() -> None:
    values = np.random.default_rng(1).normal(0.3, 1, 60)
    exact = stats.permutation_test(
        (values,), np.sum, permutation_type="samples", n_resamples=20_000, rng=2
    ).pvalue
    assert sign_flip(values) == pytest.approx(exact, abs=0.012)
    assert sign_flip(np.full(100, 1.0)) == pytest.approx(1 / 10_001)


def test_few_patients_have_wilsons_interval_on_their_effective_number() -> None:
    draws = np.zeros(3)
    once, right = np.ones(10), (np.arange(10) < 8).astype(float)
    assert mean_interval(right, once, draws) == pytest.approx(wilson(8, 10))
    # Seven questions to each patient say no more than one.
    assert mean_interval(700.0 * right, 7 * once, draws, 100.0) == pytest.approx(
        [100 * end for end in wilson(8, 10)]
    )
    # Kish: of 9 + 9 * 1 answers, squared 324, over 81 + 9, as of 3.6 patients.
    uneven = np.array([9.0, *np.ones(9)])
    low, high = mean_interval(uneven / 2, uneven, draws)
    z2 = stats.norm.ppf(0.975) ** 2
    assert high - low == pytest.approx(np.sqrt(z2 / (3.6 + z2)))
    # Of many, draws are asked, unless none of them can differ.
    draws = np.r_[0.5, np.linspace(0.4, 0.6, 2000)]
    assert mean_interval(once.repeat(2) / 2, once.repeat(2), draws)[0] == pytest.approx(0.405)
    assert mean_interval(once.repeat(2), once.repeat(2), draws) == pytest.approx(wilson(20, 20))


def test_holm_is_the_step_down_rule() -> None:
    found = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert found == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})
    assert holm({"a": 0.9, "b": 0.8}) == {"a": 1.0, "b": 1.0}
    assert holm({}) == {}


def test_mcnemar_is_the_binomial_test() -> None:
    assert mcnemar(10, 2) == pytest.approx(stats.binomtest(10, 12).pvalue)
    assert mcnemar(0, 0) == 1


def test_intervals_of_a_share() -> None:
    assert wilson(285, 300) == pytest.approx((0.919, 0.970), abs=0.001)
    assert clopper_pearson(0, 300) == pytest.approx((0, 0.0122), abs=1e-4)
    assert wilson(0, 0) == (0, 1)


def test_a_share_is_corrected_as_rogan_and_gladen_do() -> None:
    seen = 0.3 * 0.9 + 0.7 * 0.2
    assert float(corrected_share(seen, 0.9, 0.8)) == pytest.approx(0.3)
    assert float(corrected_share(0.01, 0.9, 0.8)) == 0
    assert np.isnan(corrected_share(0.5, 0.5, 0.5))


def test_equal_models_are_seldom_called_different_and_better_ones_often() -> None:
    equal = rejections(Setting(100, 12), 200, flips=300)
    assert 2 <= equal <= 19  # 5 % of 200: the middle 99 % of the binomial law
    better = rejections(Setting(1000, 12, shift=0.03), 20, flips=300)
    assert better >= 16
