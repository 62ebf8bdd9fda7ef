"""Tests and intervals for shares, for pairs of runs, and for a judge that errs.

Answers about one patient are not independent: signs are flipped patient by patient. Over questions
McNemar's test raises false alarms two to four times too often.
"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float
from scipy import stats

from tumorchain_jax.evaluation.bootstrap import FEWEST_PATIENTS, SEED, interval

FLIPS = 10_000
_ALL_FLIPS_UP_TO = 12


def sign_flip(differences: Float[np.ndarray, " patients"], flips: int = FLIPS) -> float:
    """Two-sided p of a sum of differences, by flipping the sign of each patient's part.

    All sign patterns up to 12 patients, `flips` random ones above (the observed one counts, so p is
    never 0).

    Args:
        differences: each patient's part of the difference between two runs.
    """
    parts = differences[differences != 0]
    if not len(parts):
        return 1.0
    limit = abs(parts.sum()) * (1 - 1e-12)
    if len(parts) <= _ALL_FLIPS_UP_TO:
        patterns = (np.arange(2 ** len(parts))[:, None] >> np.arange(len(parts))) & 1
        return float(np.mean(abs((2 * patterns - 1) @ parts) >= limit))
    rng = np.random.default_rng(SEED)
    reached = 0
    for begin in range(0, flips, 1000):  # a matrix of all flips of many patients would be large
        signs = rng.integers(0, 2, (min(1000, flips - begin), len(parts)), np.int8)
        reached += int((abs((2.0 * signs - 1) @ parts) >= limit).sum())
    return (1 + reached) / (1 + flips)


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Adjust p values for their number (Holm, Scand J Statist 1979)."""
    adjusted, largest = {}, 0.0
    ordered = sorted(p_values.items(), key=lambda item: item[1])
    for rank, (name, p) in enumerate(ordered):
        largest = max(largest, min(1.0, p * (len(ordered) - rank)))
        adjusted[name] = largest
    return {name: adjusted[name] for name in p_values}


def mcnemar(only_a: int, only_b: int) -> float:
    """Exact two-sided p of McNemar's test, where every pair is of another patient.

    Args:
        only_a, only_b: pairs of which one run alone is right.
    """
    return float(stats.binomtest(only_a, only_a + only_b).pvalue) if only_a + only_b else 1.0


def wilson(count: int, n: int) -> tuple[float, float]:
    """95 % interval of a share (Wilson, JASA 1927); 0 to 1 where n is 0."""
    return _share_interval(count, n, "wilson")


def mean_interval(
    sums: Float[np.ndarray, " patients"],
    counts: Float[np.ndarray, " patients"],
    draws: Float[np.ndarray, " draws"],
    most: float = 1.0,
) -> list[float]:
    """95 % interval of a mean of values from 0 to `most`, several of each patient.

    By draws of patients. Of fewer than `FEWEST_PATIENTS`, or where all values are at one end, so
    that no draw differs from another, it is Wilson's on Kish's effective number of patients: as if
    all answers about a patient were one, and so rather too wide.

    Args:
        sums, counts: of the values of each patient; a patient without any may be among them.
        draws: means, that of all in row 0.
    """
    n, share = counts.sum(), sums.sum() / counts.sum() / most
    if (counts > 0).sum() >= FEWEST_PATIENTS and 0 < share < 1:
        return interval(draws)
    effective = float(n**2 / (counts**2).sum())
    z2 = float(stats.chi2.ppf(0.95, 1))
    middle = (share + z2 / (2 * effective)) / (1 + z2 / effective)
    half = np.sqrt(z2 * (share * (1 - share) + z2 / (4 * effective)) / effective)
    half /= 1 + z2 / effective
    return [most * float(np.clip(end, 0, 1)) for end in (middle - half, middle + half)]


def clopper_pearson(count: int, n: int) -> tuple[float, float]:
    """Exact 95 % interval of a share."""
    return _share_interval(count, n, "exact")


def _share_interval(count: int, n: int, method: str) -> tuple[float, float]:
    if not n:
        return 0.0, 1.0
    interval = stats.binomtest(count, n).proportion_ci(0.95, method)
    return float(interval.low), float(interval.high)


def corrected_share(
    observed: float | Float[np.ndarray, " draws"],
    sensitivity: float | Float[np.ndarray, " draws"],
    specificity: float | Float[np.ndarray, " draws"],
) -> Float[np.ndarray, "..."]:
    """Share that is truly right, from the share that an erring judge calls right.

    Rogan and Gladen, Am J Epidemiol 1978; cut to 0..1. NaN where the judge is not better than
    chance.

    Args:
        sensitivity: share of right answers that the judge calls right.
        specificity: share of wrong answers that it calls wrong.
    """
    better = np.asarray(sensitivity + specificity - 1.0, float)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(better > 0, (observed + specificity - 1.0) / better, np.nan)
    return np.asarray(np.clip(share, 0, 1))
