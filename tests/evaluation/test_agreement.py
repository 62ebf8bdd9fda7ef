"""Agreement of readers: equal to scikit-learn and to hand-worked tables."""

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from tumorchain_jax.evaluation.agreement import (
    all_readers,
    category_counts,
    cohen,
    coincidences,
    fleiss,
    gwet_ac1,
    kappa,
    ordinal_alpha,
    pair,
    quadratic,
    raters,
    unequal,
)

NAMES = ("a", "b", "c", "d")


def _readers(seed: int, count: int = 60) -> tuple[list[str], list[str]]:
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 4, count)
    second = np.where(rng.random(count) < 0.6, first, rng.integers(0, 4, count))
    return [NAMES[each] for each in first], [NAMES[each] for each in second]


@pytest.mark.parametrize("seed", range(5))
def test_kappas_equal_scikit_learn(seed: int) -> None:
    first, second = _readers(seed)
    found = pair(first, second, NAMES, [str(k) for k in range(60)], ordered=True)
    for name, weights in (("kappa", None), ("weighted_kappa", "quadratic")):
        expected = cohen_kappa_score(first, second, labels=list(NAMES), weights=weights)
        assert abs(found[name].value - expected) < 1e-12
        assert found[name].ci95[0] <= found[name].value <= found[name].ci95[1]


def test_bootstrap_draws_are_kappas_of_the_drawn_cases() -> None:
    first, second = _readers(1, 12)
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, 12, 12)
    table = np.zeros((1, 4, 4))
    for each in drawn:
        table[0, NAMES.index(first[each]), NAMES.index(second[each])] += 1
    expected = cohen_kappa_score(
        [first[each] for each in drawn], [second[each] for each in drawn], labels=list(NAMES)
    )
    assert abs(cohen(table, unequal(4))[0] - expected) < 1e-12


def test_ac1_stays_where_prevalence_lowers_kappa() -> None:
    # 118 of 125 agree, nearly all on one category: the table of Gwet's paper, kappa -0.023.
    table = np.array([[[118.0, 5.0], [2.0, 0.0]]])
    assert cohen(table, unequal(2))[0] == pytest.approx(-0.0234, abs=5e-5)
    assert gwet_ac1(table)[0] == pytest.approx(0.9408, abs=5e-5)
    assert cohen(table, quadratic(2))[0] == pytest.approx(cohen(table, unequal(2))[0])


def test_fleiss_equals_the_published_example() -> None:
    # 10 cases, 14 readings, 5 categories: the worked example of the method, kappa 0.210.
    rows = [
        [0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1],
        [7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7],
    ]  # fmt: skip
    counts = np.array(rows, float)
    assert fleiss(counts, np.ones((1, 10)))[0] == pytest.approx(0.210, abs=5e-4)
    with pytest.raises(ValueError, match="same number"):
        fleiss(counts + np.eye(10, 5), np.ones((1, 10)))


def test_draws_of_a_patient_come_together() -> None:
    first, second = _readers(2)
    # Sixty copies of one patient leave nothing to draw: the interval is the value.
    found = pair(first, second, NAMES, ["one"] * 60)["kappa"]
    assert found.ci95 == pytest.approx((found.value, found.value))
    readings = list(zip(first, second, strict=True))
    assert all_readers(readings, NAMES, ["one"] * 60).ci95[0] == pytest.approx(
        fleiss(category_counts(readings, NAMES), np.ones((1, 60)))[0]
    )


def test_agreement_that_chance_explains_is_no_number() -> None:
    found = pair(["a"] * 5, ["a"] * 5, NAMES, list("vwxyz"))
    assert np.isnan(found["kappa"].value)
    assert found["ac1"].value == 1


def test_kappa_of_two_readers_without_an_interval() -> None:
    first, second = _readers(2)
    found = kappa(first, second)
    assert found is not None
    assert abs(found - cohen_kappa_score(first, second)) < 1e-12
    assert kappa([True, True, False, False], [True, False, False, False]) == pytest.approx(0.5)
    assert kappa([True], [True]) is None
    assert kappa([], []) is None


def test_ordinal_alpha_is_the_published_one() -> None:
    # Krippendorff 2011, example C: four observers, twelve units, some marks missing; 0.815.
    rows = ("123321412...", "1233224125.3", ".3332342251.", "12332441251.")
    ratings = np.array([[np.nan if c == "." else float(c) for c in row] for row in rows])
    assert raters(ratings, [str(n) for n in range(12)]).value == pytest.approx(0.815, abs=5e-4)


def test_alpha_of_draws_is_that_of_the_drawn_cases() -> None:
    rng = np.random.default_rng(0)
    ratings = rng.integers(0, 5, (2, 8)).astype(float)
    by_patient, _ = coincidences(ratings, [str(n) for n in range(8)])
    times = np.array([0, 2, 1, 0, 3, 1, 0, 1])
    repeated = np.repeat(ratings, times, axis=1)
    pairs, _ = coincidences(repeated, [str(n) for n in range(8)])
    drawn = ordinal_alpha(np.tensordot(times, by_patient, 1)[None])
    assert drawn == pytest.approx(ordinal_alpha(pairs.sum(axis=0)[None]))
    assert raters(np.stack([ratings[0]] * 2), [str(n) for n in range(8)]).value == 1
