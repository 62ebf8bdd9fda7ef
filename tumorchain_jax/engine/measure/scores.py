"""Counts of cases added up: precision, recall and F1 with intervals over patients."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tumorchain_jax.evaluation.bootstrap import interval, resampled


@dataclass(frozen=True)
class Score:
    """How well something was found.

    Attributes:
        right, wrong, missed: counts.
        f1_interval: 95 %, by drawing patients.
    """

    right: int
    wrong: int
    missed: int
    f1_interval: tuple[float, float]

    @property
    def precision(self) -> float:
        """Share of what was found that is right; NaN where nothing was found."""
        return _share(self.right, self.right + self.wrong)

    @property
    def recall(self) -> float:
        """Share of what is there that was found; NaN where nothing is there."""
        return _share(self.right, self.right + self.missed)

    @property
    def f1(self) -> float:
        """Harmonic mean of both; NaN where there is nothing."""
        return _share(2 * self.right, 2 * self.right + self.wrong + self.missed)

    def as_dict(self) -> dict[str, object]:
        """Return it as a JSON object."""
        return {
            "right": self.right, "wrong": self.wrong, "missed": self.missed,
            "precision": _round(self.precision), "recall": _round(self.recall),
            "f1": _round(self.f1), "f1_interval": [_round(end) for end in self.f1_interval],
        }  # fmt: skip


@dataclass(frozen=True)
class Rate:
    """A share of cases of something.

    Attributes:
        hits, of: counts.
        interval: 95 %, by drawing patients.
    """

    hits: int
    of: int
    interval: tuple[float, float]

    @property
    def share(self) -> float:
        """Hits of all; NaN of none."""
        return _share(self.hits, self.of)

    def as_dict(self) -> dict[str, object]:
        """Return it as a JSON object."""
        ends = [_round(end) for end in self.interval]
        return {"hits": self.hits, "of": self.of, "share": _round(self.share), "interval": ends}


def score(counts: Sequence[tuple[int, int, int]]) -> Score:
    """Add up right, wrong and missed of each patient."""
    table = np.array(counts, float).reshape(-1, 3)
    right, wrong, missed = table.sum(0).astype(int).tolist()
    drawn = resampled(len(table)) @ table if len(table) else np.zeros((2, 3))
    below = 2 * drawn[:, 0] + drawn[:, 1] + drawn[:, 2]
    return Score(right, wrong, missed, _ends(2 * drawn[:, 0], below))


def rate(counts: Sequence[tuple[int, int]]) -> Rate:
    """Add up (hits, of) of each patient."""
    table = np.array(counts, float).reshape(-1, 2)
    hits, of = table.sum(0).astype(int).tolist()
    drawn = resampled(len(table)) @ table if len(table) else np.zeros((2, 2))
    return Rate(hits, of, _ends(drawn[:, 0], drawn[:, 1]))


def _ends(above: np.ndarray, below: np.ndarray) -> tuple[float, float]:
    if not below[1:].any():
        return (float("nan"), float("nan"))
    shares = np.divide(above, below, out=np.full_like(above, np.nan), where=below > 0)
    low, high = interval(shares)
    return (low, high)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")


def _round(value: float) -> float | None:
    return None if np.isnan(value) else round(value, 4)
