"""How far confidences can be relied on: calibration error, and accuracy of the confident answers.

An abstention (NaN in place of a confidence, or an answer that is withheld) is counted, never
dropped: it is among the answers that coverage is a share of. It claims no probability, so
calibration errors are over the answers with a confidence.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from tumorchain_jax.evaluation.bootstrap import interval, patient_rows, resampled
from tumorchain_jax.weights.calibration import Bin

BINS = 10
COVERAGE = 0.8


def expected_calibration_error(
    confidence: Float[np.ndarray, " N"], right: Bool[np.ndarray, " N"]
) -> float:
    """Mean gap between confidence and accuracy in ten bins of equal width, weighted by answers.

    Naeini et al. 2015, "Obtaining well calibrated probabilities using Bayesian binning".

    Returns:
        from 0 to 1; NaN without a confidence.
    """
    return float(_errors(confidence, right, np.zeros(len(right), int), np.ones((1, 1)))[0])


def reliability(
    confidence: Float[np.ndarray, " N"], right: Bool[np.ndarray, " N"]
) -> tuple[Bin, ...]:
    """Return the bins of the reliability curve that are not empty, by rising confidence."""
    bins = _bins(confidence)
    members = [bins == number for number in range(BINS)]
    return tuple(
        Bin(float(confidence[each].mean()), float(right[each].mean()), int(each.sum()))
        for each in members
        if each.any()
    )


def accuracy_at_coverage(
    confidence: Float[np.ndarray, " N"],
    right: Bool[np.ndarray, " N"],
    coverage: float = COVERAGE,
    weight: Float[np.ndarray, " N"] | None = None,
) -> float:
    """Accuracy of the share `coverage` of all answers that has the highest confidence.

    Abstentions come last. Answers of one confidence count in equal shares where the limit runs
    between them, so that their order does not matter.

    Args:
        weight: how often each answer counts; once by default.
    """
    ranked = np.where(np.isnan(confidence), -1.0, confidence)
    _, group = np.unique(-ranked, return_inverse=True)
    weight = np.ones(len(right)) if weight is None else weight
    n, hits = np.bincount(group, weight), np.bincount(group, weight * right)
    limit = coverage * n.sum()
    taken = np.clip(limit - (np.cumsum(n) - n), 0, n)
    return float((hits * taken / np.maximum(n, 1e-12)).sum() / limit)


def selective(
    patients: Sequence[str],
    confidence: Float[np.ndarray, " N"],
    right: Bool[np.ndarray, " N"],
    withheld: Bool[np.ndarray, " N"],
) -> dict[str, Any]:
    """Measure answers that may be withheld; in percent, but for counts.

    Args:
        patients: of each answer.
        confidence: NaN without one.
        withheld: answers that a report does not show.

    Returns:
        `n`, `answered`, `with_confidence`; each a value and the ends of its 95 % interval over
        patients: `accuracy` of all answers, `coverage` (share answered), `accuracy_answered`,
        `accuracy_at_80`, `ece`; the last two None without a confidence, as is the third without an
        answer.
    """
    rows = patient_rows(patients)
    times = resampled(int(rows.max()) + 1)
    known = ~np.isnan(confidence)

    def total(values: Bool[np.ndarray, " N"]) -> Float[np.ndarray, " draws"]:
        return times @ np.bincount(rows, values, times.shape[1])

    n = total(np.ones(len(rows), bool))
    with np.errstate(invalid="ignore", divide="ignore"):
        draws = {
            "accuracy": total(right) / n,
            "coverage": total(~withheld) / n,
            "accuracy_answered": total(right & ~withheld) / total(~withheld),
            "accuracy_at_80": np.array(
                [accuracy_at_coverage(confidence, right, COVERAGE, draw[rows]) for draw in times]
            ),
            "ece": _errors(confidence, right, rows, times),
        }
    absent = {"accuracy_answered"} if withheld.all() else set()
    absent |= set() if known.any() else {"accuracy_at_80", "ece"}
    return {
        "n": len(rows),
        "answered": int((~withheld).sum()),
        "with_confidence": int(known.sum()),
        **{
            name: None if name in absent else [float(100 * v) for v in (each[0], *interval(each))]
            for name, each in draws.items()
        },
    }


def _bins(confidence: Float[np.ndarray, " N"]) -> Int[np.ndarray, " N"]:
    """Number of each answer's bin; -1 without a confidence."""
    known = ~np.isnan(confidence)
    number = (np.where(known, confidence, 0.0) * BINS).astype(int)
    return np.where(known, np.minimum(number, BINS - 1), -1)


def _errors(
    confidence: Float[np.ndarray, " N"],
    right: Bool[np.ndarray, " N"],
    rows: Int[np.ndarray, " N"],
    times: Float[np.ndarray, "draws patients"],
) -> Float[np.ndarray, " draws"]:
    """Expected calibration error of each draw of patients."""
    known = ~np.isnan(confidence)
    gap, n = np.zeros((2, times.shape[1], BINS))
    where = rows[known], _bins(confidence)[known]
    np.add.at(gap, where, confidence[known] - right[known])
    np.add.at(n, where, 1)
    with np.errstate(invalid="ignore"):
        return np.abs(times @ gap).sum(axis=1) / (times @ n).sum(axis=1)
