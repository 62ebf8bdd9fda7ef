"""Scores of judged chains: CoT_e and its levels, F1 by harm, conclusions; with what is missing.

A failure of the judge and a silence of the model are left out of a mean, counted beside it, and
bounded: the mean if all that failed were 0, and if all were 100. Of fewer than 20 patients a mean
has a wide interval (`statistics.py: mean_interval`); triples have none.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from tumorchain_jax.data.schema import SUBTASKS
from tumorchain_jax.evaluation.bootstrap import interval_if_enough, patient_rows, resampled
from tumorchain_jax.evaluation.chain.judged import Judged
from tumorchain_jax.evaluation.chain.triples import LEVELS
from tumorchain_jax.evaluation.chain.verdict import ABSTAINED, FAILED, JUDGED
from tumorchain_jax.evaluation.statistics import corrected_share, mean_interval

MOST_FAILURES = 2.0
"""Percent of failures of the judge above which its means are not to be compared."""
MOST_APART = 1.0
"""Points by which the failures of two runs may differ."""
LEVEL_NAMES = dict(zip(LEVELS, ("S_FC", "S_IC", "S_LRC"), strict=True))
"""Level -> the paper's name of its score."""
Sums = Float[np.ndarray, " patients"]
_SUBTASKS = [subtask for subtasks in SUBTASKS.values() for subtask in subtasks]


def score(rows: Sequence[Judged], run: Mapping[str, Any]) -> dict[str, Any]:
    """Score judged chains; in percent or points of 100, but for counts.

    Args:
        run: what was judged by whom: `judge`, `version`, `prompt`, `items`, `subject`,
            `calibration`; printed with the scores.

    Returns:
        `run`; `asked`, `answered`, `judged`; `abstained` and `failed`, each with its number and its
        reasons; `usable`: whether at most 2 % failed; `cot_e`, `S_FC`, `S_IC`, `S_LRC`, `agrees`:
        `mean`, `ci95`, `n`, `bounds`, and `of_all_asked`, where a silent chain counts 0;
        `precision`, `recall`, `f1` of triples; `right`: conclusions by the rules' reader;
        `agrees_corrected`: by the judge's sensitivity and specificity (Rogan-Gladen);
        `subtasks`: CoT_e and F1 of each.
    """
    states = Counter(row.state for row in rows)
    failed = states[FAILED]
    numbers: dict[str, Callable[[Judged], float | None]] = {
        "cot_e": cot_e,
        **{name: partial(level_score, level) for level, name in LEVEL_NAMES.items()},
        "agrees": lambda row: None if row.agrees is None else 100.0 * row.agrees,
    }
    values = {
        "asked": len(rows),
        "patients": len({row.patient for row in rows}),
        "answered": len(rows) - states[ABSTAINED],
        "judged": states[JUDGED],
        "abstained": _reasons(rows, ABSTAINED),
        "failed": _reasons(rows, FAILED),
        "failed_percent": 100 * failed / len(rows) if rows else 0.0,
        "usable": bool(states[JUDGED]) and 100 * failed <= MOST_FAILURES * len(rows),
        "sums_that_differ": sum(row.sum_differs for row in rows),
        **{name: _mean(rows, value) for name, value in numbers.items()},
        "right": _mean(rows, lambda row: 100.0 * row.right),
        **_triples(rows),
        "agrees_corrected": _corrected(rows, run.get("calibration")),
        "subtasks": _subtasks(rows),
    }
    return {"run": dict(run), **_rounded(values)}


def cot_e(row: Judged) -> float | None:
    """CoT_e of a chain; None unless judged."""
    return row.scores.cot_e if row.scores else None


def level_score(level: str, row: Judged) -> float | None:
    """Score of one level of a chain; None unless judged."""
    return row.scores.score(level) if row.scores else None


def _reasons(rows: Sequence[Judged], state: str) -> dict[str, Any]:
    why = Counter(row.why.partition(":")[0] for row in rows if row.state == state)
    return {"n": why.total(), "why": dict(sorted(why.items()))}


def _mean(rows: Sequence[Judged], value: Callable[[Judged], float | None]) -> dict[str, Any] | None:
    """Average what is known, with an interval over patients and bounds for what failed."""
    all_values = [value(row) for row in rows]
    known = [(row.patient, v) for row, v in zip(rows, all_values, strict=True) if v is not None]
    if not known:
        return None
    failed = sum(row.state == FAILED and v is None for row, v in zip(rows, all_values, strict=True))
    total, n = sum(v for _, v in known), len(known)
    sums, counts = _sums([patient for patient, _ in known], np.array([v for _, v in known]))
    return {
        "mean": total / n,
        "ci95": mean_interval(sums, counts, _draws(sums, counts), 100.0),
        "n": n,
        "bounds": [total / (n + failed), (total + 100 * failed) / (n + failed)],
        "of_all_asked": total / max(len(rows) - failed, 1),
    }


def _sums(patients: Sequence[str], values: Float[np.ndarray, " N"]) -> tuple[Sums, Sums]:
    rows = patient_rows(patients)
    return np.bincount(rows, values), np.bincount(rows).astype(float)


def _draws(sums: Sums, n: Sums) -> Float[np.ndarray, " R"]:
    times = resampled(len(n))
    with np.errstate(invalid="ignore"):
        return (times @ sums) / (times @ n)


def _triples(rows: Sequence[Judged]) -> dict[str, Any]:
    """Weigh the statements of all chains together."""
    known = [row for row in rows if row.weights is not None]
    if not known:
        return {"precision": None, "recall": None, "f1": None}
    patients = patient_rows([row.patient for row in known])
    weights = np.array([row.harm for row in known], float)
    sums = np.stack([np.bincount(patients, column) for column in weights.T])
    right, wrong, missing = (resampled(sums.shape[1]) @ sums.T).T
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = {
            "precision": 100 * right / (right + wrong),
            "recall": 100 * right / (right + missing),
            "f1": 100 * 2 * right / (2 * right + wrong + missing),
        }
    return {
        name: {
            "mean": float(draws[0]),
            "ci95": interval_if_enough(draws, sums.shape[1]),
            "n": len(known),
        }
        for name, draws in shares.items()
    }


def _corrected(rows: Sequence[Judged], calibration: Any) -> dict[str, Any] | None:
    """Correct the judge's share of right conclusions by its own errors; drawn together."""
    known = [row for row in rows if row.agrees is not None]
    binary = (calibration or {}).get("binary")
    if not known or not binary or not binary["n_right"] or not binary["n_wrong"]:
        return None
    agrees = np.array([float(bool(row.agrees)) for row in known])
    sums, counts = _sums([row.patient for row in known], agrees)
    draws = _draws(sums, counts)
    rng = np.random.default_rng(0)
    size = len(draws) - 1
    n_right, n_wrong = binary["n_right"], binary["n_wrong"]
    sensitivity = binary["called_right_of_right"] / n_right
    specificity = 1 - binary["called_right_of_wrong"] / n_wrong
    # One pseudo-observation on either side keeps a perfect calibration from being certain.
    of_right = rng.beta(binary["called_right_of_right"] + 0.5,
                        n_right - binary["called_right_of_right"] + 0.5, size)  # fmt: skip
    of_wrong = rng.beta(n_wrong - binary["called_right_of_wrong"] + 0.5,
                        binary["called_right_of_wrong"] + 0.5, size)  # fmt: skip
    share = corrected_share(
        draws, np.append(sensitivity, of_right), np.append(specificity, of_wrong)
    )
    if np.isnan(share[0]):
        return None
    return {
        "mean": 100 * float(share[0]),
        "ci95": interval_if_enough(100 * share, len(counts)),
        "n": len(known),
        "sensitivity": 100 * sensitivity,
        "specificity": 100 * specificity,
    }


def _subtasks(rows: Sequence[Judged]) -> dict[str, Any]:
    table = {}
    for name in _SUBTASKS:
        group = [row for row in rows if row.subtask == name]
        if group:
            table[name] = {
                "n": len(group),
                "judged": sum(row.state == JUDGED for row in group),
                "cot_e": _mean(group, cot_e),
                "f1": _triples(group)["f1"],
            }
    return table


def _rounded(value: Any) -> Any:
    match value:
        case float():
            return round(value, 2)
        case dict():
            return {key: _rounded(part) for key, part in value.items()}
        case list() | tuple():
            return [_rounded(part) for part in value]
    return value
