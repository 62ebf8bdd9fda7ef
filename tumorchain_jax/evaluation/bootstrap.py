"""Bootstrap over patients: answers about one patient are not independent, so are drawn together."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

RESAMPLES, SEED = 2000, 0


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
