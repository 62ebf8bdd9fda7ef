"""Bootstrap over patients: answers about one patient are not independent, so are drawn together."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

RESAMPLES, SEED = 2000, 0
FEWEST_PATIENTS = 20
"""Patients below which draws of them say too little: the interval comes out too short."""
TOO_FEW = f"-: fewer than {FEWEST_PATIENTS} patients, too few for an interval"


def patient_rows(patients: Sequence[str]) -> Int[np.ndarray, " N"]:
    """Number the patient of each answer, in the order of the names."""
    return np.unique(np.asarray(patients, str), return_inverse=True)[1]


def resampled(count: int) -> Float[np.ndarray, "draws patients"]:
    """How often each of `count` patients is in: once in row 0, then in `RESAMPLES` draws."""
    drawn = np.random.default_rng(SEED).multinomial(count, np.full(count, 1 / count), RESAMPLES)
    return np.vstack([np.ones(count), drawn])


def interval(draws: Float[np.ndarray, " draws"]) -> list[float]:
    """Return the ends of the 95 % interval, without row 0, the value itself."""
    return np.nanpercentile(draws[1:], [2.5, 97.5]).tolist()


def interval_if_enough(draws: Float[np.ndarray, " draws"], patients: int) -> list[float] | None:
    """Return the ends of the 95 % interval; None of fewer than `FEWEST_PATIENTS` patients."""
    return interval(draws) if patients >= FEWEST_PATIENTS else None


def ends_text(ends: Sequence[float] | None) -> str:
    """Format an interval to stand behind its value; "" where there is none."""
    return f" [{ends[0]:.1f}, {ends[1]:.1f}]" if ends else ""


def ends_cells(ends: Sequence[float] | None, *widths: int, digits: int = 1) -> list[str]:
    """Format an interval as two cells of a table; "-" where there is none."""
    texts = [f"{end:.{digits}f}" for end in ends] if ends else ["-", "-"]
    return [f"{text:>{width}}" for text, width in zip(texts, widths, strict=True)]
