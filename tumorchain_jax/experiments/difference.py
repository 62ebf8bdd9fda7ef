"""Paired differences between methods, over patients and training seeds."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from jaxtyping import Float

from tumorchain_jax.data.schema import SUBTASKS
from tumorchain_jax.evaluation.bootstrap import RESAMPLES, SEED
from tumorchain_jax.evaluation.items import Item
from tumorchain_jax.evaluation.score import paired_difference

_SUBTASKS = [subtask for subtasks in SUBTASKS.values() for subtask in subtasks]


def difference_over_seeds(
    a: Sequence[Sequence[Item]], b: Sequence[Sequence[Item]]
) -> dict[str, Any]:
    """Average accuracy of method `a` minus that of method `b`.

    The interval is a percentile bootstrap that draws patients and, independently, seeds; both
    methods get the same draw. With three seeds it is rough, and with one seed it covers the
    patients alone.

    Args:
        a, b: a list of items for each seed: the same seeds, and in each the same questions.

    Returns:
        as `paired_difference`, and `by_seed`, the difference in each.

    Raises:
        InputError: not the same questions to the same patients.
    """
    whole = paired_difference([*chain(*a)], [*chain(*b)])
    by_seed = [paired_difference(*pair)["difference"] for pair in zip(a, b, strict=True)]
    patients = sorted({item.patient for item in chain(*a)})
    (right_a, n), (right_b, _) = (_counts(method, patients) for method in (a, b))
    rng = np.random.default_rng(SEED)
    seeds, drawn = (
        rng.multinomial(count, np.full(count, 1 / count), RESAMPLES)
        for count in (len(a), len(patients))
    )

    def total(counts: Float[np.ndarray, "S P T"]) -> Float[np.ndarray, "draws T"]:
        return np.einsum("rs,rp,spt->rt", seeds, drawn, counts, optimize=True)

    with np.errstate(invalid="ignore"):  # nan where a draw has nobody of a rare subtask
        differences = np.nanmean(100 * total(right_a - right_b) / total(n), axis=1)
    ci95 = [round(float(limit), 2) for limit in np.percentile(differences, [2.5, 97.5])]
    return whole | {"ci95": ci95, "by_seed": by_seed}


def _counts(
    method: Sequence[Sequence[Item]], patients: Sequence[str]
) -> tuple[Float[np.ndarray, "S P T"], Float[np.ndarray, "S P T"]]:
    """Count right answers and all answers, for each seed, patient and subtask that was asked."""
    right, n = np.zeros((2, len(method), len(patients), len(_SUBTASKS)))
    rows = {patient: row for row, patient in enumerate(patients)}
    for seed, items in enumerate(method):
        for item in items:
            where = seed, rows[item.patient], _SUBTASKS.index(item.subtask)
            right[where] += item.right
            n[where] += 1
    asked = n.any(axis=(0, 1))
    return right[..., asked], n[..., asked]
