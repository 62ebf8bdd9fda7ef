"""Folds of pictures: whole clusters (patients and near duplicates), stratified by set and label.

A fifth of the clusters, drawn by a hash of their patients' names, is the test part (the paper's 8
to 2), of which no choice may know; the rest is dealt to folds by a seed.
"""

import hashlib
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.ultrasound.duplicates import near_duplicates
from tumorchain_jax.ultrasound.lesion import Lesion

TEST_ONE_IN = 5
LEAK = "make the manifest again with `tumorchain bus prepare`"


def test_part(rows: Sequence[Lesion]) -> Bool[np.ndarray, " N"]:
    """Which pictures are of the test part; a patient who is added later moves no other."""
    names: dict[int, str] = {}
    for row in rows:
        names[row.cluster] = min(names.get(row.cluster, row.patient), row.patient)
    drawn = {
        cluster: int.from_bytes(hashlib.sha256(name.encode()).digest()) % TEST_ONE_IN == 0
        for cluster, name in names.items()
    }
    return np.array([drawn[row.cluster] for row in rows], bool)


def deal(rows: Sequence[Lesion], folds: int, seed: int) -> Int[np.ndarray, " N"]:
    """Deal pictures to folds.

    Clusters come in a random order, larger ones first; each goes to the fold that has fewest of its
    set and label so far.

    Raises:
        InputError: a fold would have no picture of some label.
    """
    members: dict[int, list[int]] = defaultdict(list)
    for number, row in enumerate(rows):
        members[row.cluster].append(number)
    rng = np.random.default_rng(seed)
    order = sorted(members, key=lambda cluster: (-len(members[cluster]), rng.random()))
    counts: dict[tuple[str, str], np.ndarray] = defaultdict(lambda: np.zeros(folds))
    totals, fold_of = np.zeros(folds), np.zeros(len(rows), int)
    for cluster in order:
        own = members[cluster]
        strata = {(rows[number].source, rows[number].label) for number in own}
        load = np.sum([counts[stratum] for stratum in strata], axis=0)
        fold = min(range(folds), key=lambda k: (load[k], totals[k], rng.random()))
        for number in own:
            counts[rows[number].source, rows[number].label][fold] += 1
            totals[fold] += 1
            fold_of[number] = fold
    labels = np.array([row.label for row in rows])
    for fold in range(folds):
        if missing := sorted(set(labels) - set(labels[fold_of == fold])):
            found = f"no {missing[0]} picture in fold {fold + 1} of {folds}"
            raise InputError("folds", "labels", found, "every label", "use fewer folds")
    check_no_leak(rows, fold_of)
    return fold_of


def check_no_leak(rows: Sequence[Lesion], part_of: Int[np.ndarray, " N"]) -> None:
    """Refuse a patient, or a picture and its near duplicate, in two parts.

    Raises:
        InputError: it names the two pictures.
    """
    first: dict[str, int] = {}
    for number, row in enumerate(rows):
        other = first.setdefault(row.patient, number)
        if part_of[other] != part_of[number]:
            _refuse(rows[other], row, f"patient {row.patient}")
    for a, b in near_duplicates([row.hash for row in rows]):
        if part_of[a] != part_of[b]:
            _refuse(rows[a], rows[b], "a picture and its near duplicate")


def _refuse(one: Lesion, other: Lesion, what: str) -> None:
    found = f"{what} in two of them: {one.id} and {other.id}"
    raise InputError("folds", "leak", found, "each in one", LEAK)
