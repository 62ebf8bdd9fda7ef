"""The bars that a judge is held to, set before any judge was measured, and what one row says."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from tumorchain_jax.evaluation.statistics import clopper_pearson, wilson

# See the README.
CHANGE, CHANGE_INTERVAL = 3.0, 5.0
AUC, AUC_LOW, AUC_AGAINST = 0.95, 0.9, 0.9
BELOW, SAME, SD, FLIPS, KAPPA = 0.95, 0.95, 2.0, 0.05, 0.9
FEWEST = next(n for n in count(1) if wilson(n, n)[0] >= AUC_LOW)
"""Patients from which a lower end of `AUC_LOW` can be reached, if every pair is told apart."""


def too_few(phantoms: int) -> str:
    """Say that no judge passes with so few patients; "" if one can."""
    if phantoms >= FEWEST:
        return ""
    return (
        f"{phantoms} patients cannot pass: a lower end of {AUC_LOW:g} takes {FEWEST} at least, "
        "all told apart; see --phantoms"
    )


@dataclass(frozen=True)
class Row:
    """One probe.

    Attributes:
        group: what the probe is for.
        n: pairs that were judged; failures are not among them, and are counted in `failed`.
        value, low, high: the measure and its 95 % interval.
        bar: in words.
    """

    group: str
    probe: str
    n: int
    failed: int
    value: float | None
    low: float | None
    high: float | None
    bar: str
    passed: bool


@dataclass
class Calibration:
    """All probes of one judge.

    Attributes:
        judge: its name, with version and prompt.
        seeds: first and last of the patients.
        phantoms: patients of each probe.
        binary: right and wrong answers: `n_right`, `n_wrong`, `called_right` of each, `kappa`.
        length: rank correlation of the mark with the length of right and wrong reports.
    """

    judge: str
    seeds: tuple[int, int]
    phantoms: int
    judged: int = 0
    failed: int = 0
    rows: list[Row] = field(default_factory=list)
    binary: dict[str, Any] = field(default_factory=dict)
    length: float | None = None

    @property
    def passed(self) -> bool:
        """Whether every bar is met."""
        return bool(self.rows) and all(row.passed for row in self.rows)


def auc_row(
    group: str, probe: str, right: np.ndarray, wrong: np.ndarray, auc: float, low: float
) -> Row:
    """Compare right and wrong reports of the same patients; NaN where a judge gave no mark."""
    known = ~np.isnan(right + wrong)
    n, failed = int(known.sum()), int((~known).sum())
    bar = f"AUC >= {auc:g}" + (f", lower end >= {low:g}" if low else "")
    if not n:
        return Row(group, probe, 0, failed, None, None, None, bar, False)
    higher = np.where(right > wrong, 1.0, np.where(right == wrong, 0.5, 0.0))[known]
    value = float(higher.mean())
    ends = wilson(round(float(higher.sum())), n)
    passed = value >= auc and ends[0] >= low and not failed
    return Row(group, probe, n, failed, value, *ends, bar, passed)


def share_row(
    group: str,
    probe: str,
    hits: np.ndarray,
    failed: int,
    bar: str,
    meets: Callable[[float, float, float], bool],
    exact: bool = False,
) -> Row:
    """Hold a share to a bar.

    Args:
        hits: booleans, of those that were judged.
        meets: whether share, lower and upper end meet the bar.
        exact: take Clopper and Pearson's interval, else Wilson's.
    """
    n = len(hits)
    if not n:
        return Row(group, probe, 0, failed, None, None, None, bar, False)
    count = int(np.sum(hits))
    low, high = (clopper_pearson if exact else wilson)(count, n)
    passed = meets(count / n, low, high) and not failed
    return Row(group, probe, n, failed, count / n, low, high, bar, passed)
