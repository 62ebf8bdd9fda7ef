"""Agreement of readers beyond chance, with intervals over patients.

The values are scikit-learn's where it has them (`cohen_kappa_score`, also with quadratic weights);
Gwet's AC1 (Br J Math Stat Psychol 2008) beside kappa, which falls with prevalence; Fleiss' kappa
(Psychol Bull 1971) for more than two readings of a case; Krippendorff's alpha for marks on a scale,
of which some may be missing. Not a number where chance explains all.

Shape letters: N cases, K categories, D draws (row 0 is the sample itself).
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float, Int

from tumorchain_jax.evaluation.auc import Estimate
from tumorchain_jax.evaluation.bootstrap import interval, patient_rows, resampled

Tables = Float[np.ndarray, "D K K"]
Draws = Float[np.ndarray, " D"]


def codes(values: Sequence[str], categories: Sequence[str]) -> Int[np.ndarray, " N"]:
    """Number values by their place among the categories.

    Raises:
        KeyError: one is none of them.
    """
    places = {name: place for place, name in enumerate(categories)}
    return np.array([places[value] for value in values], int)


def quadratic(count: int) -> Float[np.ndarray, "K K"]:
    """Weights of disagreements of ordered categories: the squared distance of their places."""
    places = np.arange(count)
    return ((places[:, None] - places[None]) ** 2).astype(float)


def unequal(count: int) -> Float[np.ndarray, "K K"]:
    """Weights of disagreements of categories without an order: 1 each."""
    return 1.0 - np.eye(count)


def cohen(tables: Tables, weights: Float[np.ndarray, "K K"]) -> Draws:
    """Cohen's kappa of tables of two readers, by weights of their disagreements."""
    total = tables.sum(axis=(1, 2))
    rows, columns = tables.sum(axis=2), tables.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        observed = (tables * weights).sum(axis=(1, 2)) / total
        expected = np.einsum("dk,kl,dl->d", rows, weights, columns) / total**2
        return np.where(expected > 0, 1 - observed / expected, np.nan)


def kappa(first: Sequence[str | bool], second: Sequence[str | bool]) -> float | None:
    """Cohen's kappa of what two readers say of the same cases, without an interval.

    Returns:
        None where it is not defined: there is no case, or both always say one same thing.
    """
    said = sorted({*first, *second})
    table = np.zeros((1, len(said), len(said)))
    for one, other in zip(first, second, strict=True):
        table[0, said.index(one), said.index(other)] += 1
    value = float(cohen(table, unequal(len(said)))[0])
    return None if np.isnan(value) else value


def gwet_ac1(tables: Tables) -> Draws:
    """Gwet's AC1 of tables of two readers: chance is how mixed the categories are on the whole."""
    count = tables.shape[1]
    total = tables.sum(axis=(1, 2))
    with np.errstate(invalid="ignore", divide="ignore"):
        agreed = np.trace(tables, axis1=1, axis2=2) / total
        share = (tables.sum(axis=2) + tables.sum(axis=1)) / (2 * total[:, None])
        chance = (share * (1 - share)).sum(axis=1) / (count - 1)
        return (agreed - chance) / (1 - chance)


def raw_agreement(tables: Tables) -> Draws:
    """Share of cases of which two readers say the same."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.trace(tables, axis1=1, axis2=2) / tables.sum(axis=(1, 2))


def fleiss(counts: Float[np.ndarray, "N K"], weights: Float[np.ndarray, "D N"]) -> Draws:
    """Fleiss' kappa of cases that were each read equally often, from twice on.

    Args:
        counts: how many readings of a case are of a category.
        weights: how often each case is in a draw.

    Raises:
        ValueError: cases were read differently often, or once.
    """
    readings = counts.sum(axis=1)
    if len(set(readings.tolist())) != 1 or readings[0] < 2:
        raise ValueError("each case needs the same number of readings, two at least")
    each = readings[0]
    alike = ((counts**2).sum(axis=1) - each) / (each * (each - 1))
    total = weights.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        observed = weights @ alike / total
        chance = ((weights @ counts / (each * total[:, None])) ** 2).sum(axis=1)
        return np.where(chance < 1, (observed - chance) / (1 - chance), np.nan)


def category_counts(
    readings: Sequence[Sequence[str]], categories: Sequence[str]
) -> Float[np.ndarray, "N K"]:
    """How many readings of each case are of each category.

    Args:
        readings: of each case.
    """
    rows = [np.bincount(codes(each, categories), minlength=len(categories)) for each in readings]
    return np.array(rows, float).reshape(len(readings), len(categories))


def pair(
    first: Sequence[str],
    second: Sequence[str],
    categories: Sequence[str],
    patients: Sequence[str],
    ordered: bool = False,
) -> dict[str, Estimate]:
    """Agreement of two readers of the same cases, with intervals by bootstrap over patients.

    Args:
        ordered: also give kappa with quadratic weights, by the order of `categories`.

    Returns:
        `kappa`, `ac1`, `agreement`, and `weighted_kappa` of ordered categories.
    """
    count = len(categories)
    joint = codes(first, categories) * count + codes(second, categories)
    rows = patient_rows(patients)
    by_patient = np.zeros((int(rows.max()) + 1, count * count))
    np.add.at(by_patient, (rows, joint), 1.0)
    tables = (resampled(len(by_patient)) @ by_patient).reshape(-1, count, count)
    wanted: dict[str, Callable[[Tables], Draws]] = {
        "kappa": lambda each: cohen(each, unequal(count)),
        "ac1": gwet_ac1,
        "agreement": raw_agreement,
    }
    if ordered:
        wanted["weighted_kappa"] = lambda each: cohen(each, quadratic(count))
    return {name: estimate(measure(tables)) for name, measure in wanted.items()}


def all_readers(
    readings: Sequence[Sequence[str]], categories: Sequence[str], patients: Sequence[str]
) -> Estimate:
    """Fleiss' kappa with its interval by bootstrap over patients.

    Args:
        readings: of each case, equally many.
    """
    rows = patient_rows(patients)
    weights = resampled(int(rows.max()) + 1)[:, rows]
    return estimate(fleiss(category_counts(readings, categories), weights))


def coincidences(
    ratings: Float[np.ndarray, "R N"], patients: Sequence[str]
) -> tuple[Float[np.ndarray, "P K K"], Float[np.ndarray, " K"]]:
    """Count pairs of marks of the same case by different raters, by patient.

    Args:
        ratings: of each rater; NaN where a mark is missing. A case of one mark counts for nothing.

    Returns:
        the pairs of each patient (a case of m marks weighs m in all), and the K marks in order.
    """
    rows = patient_rows(patients)
    marks = np.unique(ratings[~np.isnan(ratings)])
    said = (ratings[..., None] == marks).astype(float)  # [R, N, K]
    counts = said.sum(axis=0)
    given = counts.sum(axis=1)
    pairs = counts[:, :, None] * counts[:, None, :] - counts[:, :, None] * np.eye(len(marks))
    pairs[given > 1] /= (given[given > 1] - 1)[:, None, None]
    by_patient = np.zeros((int(rows.max()) + 1, len(marks), len(marks)))
    np.add.at(by_patient, rows[given > 1], pairs[given > 1])
    return by_patient, marks


def ordinal_alpha(tables: Tables) -> Draws:
    """Krippendorff's alpha of coincidences of marks in their order, with the ordinal difference.

    Krippendorff, "Computing Krippendorff's alpha-reliability" (2011).
    """
    seen = tables.sum(axis=2)
    total = seen.sum(axis=1)
    up_to = np.cumsum(seen, axis=1)
    # The marks from c to k, of which c and k count half.
    between = up_to[:, None, :] - up_to[:, :, None] + (seen[:, :, None] - seen[:, None, :]) / 2
    squared = between**2
    with np.errstate(invalid="ignore", divide="ignore"):
        expected = (seen[:, :, None] * seen[:, None, :] * squared).sum(axis=(1, 2))
        observed = (tables * squared).sum(axis=(1, 2)) * (total - 1)
        return np.where(expected > 0, 1 - observed / expected, np.nan)


def raters(ratings: Float[np.ndarray, "R N"], patients: Sequence[str]) -> Estimate:
    """Krippendorff's ordinal alpha with its interval by bootstrap over patients.

    Args:
        ratings: of each rater; NaN where a mark is missing.
    """
    by_patient, marks = coincidences(ratings, patients)
    times = resampled(len(by_patient))
    flat = by_patient.reshape(len(by_patient), -1)
    parts = [  # in parts: the tables of all draws would be large
        ordinal_alpha((times[at : at + 200] @ flat).reshape(-1, len(marks), len(marks)))
        for at in range(0, len(times), 200)
    ]
    return estimate(np.concatenate(parts))


def estimate(draws: Draws) -> Estimate:
    """Row 0 of draws, with the interval of the others; not a number where it is undefined."""
    if not np.isfinite(draws[1:]).any():
        return Estimate(float(draws[0]), (float("nan"), float("nan")))
    low, high = interval(draws)
    return Estimate(float(draws[0]), (low, high))
