import random
from itertools import chain
from statistics import fmean

import numpy as np
import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.items import Item
from tumorchain_jax.evaluation.score import paired_difference
from tumorchain_jax.experiments.difference import difference_over_seeds

TASKS = {"shape": "lesion_attributes", "node": "tnm_prediction"}


def items(right: np.ndarray) -> list[Item]:
    """Patients x (one question of shape, two of node)."""
    subtasks = ("shape", "node", "node")
    return [
        Item(f"p{p}", TASKS[s], s, "", f"q{q}", (), "1", "1", "1", bool(right[p, q]))
        for p in range(len(right))
        for q, s in enumerate(subtasks)
    ]


def answers(seed: int, chances: tuple[float, ...], patients: int = 20) -> list[list[Item]]:
    """For each training seed its chance of a right answer."""
    rng = np.random.default_rng(seed)
    return [items(rng.random((patients, 3)) < chance) for chance in chances]


def plain_average(runs: list[list[Item]], patients: list[str]) -> float:
    right: dict[str, list[bool]] = {subtask: [] for subtask in TASKS}
    for run in runs:
        for patient in patients:
            for item in of_patient(run, patient):
                right[item.subtask].append(item.right)
    return fmean(100 * fmean(of_subtask) for of_subtask in right.values())


def of_patient(run: list[Item], patient: str) -> list[Item]:
    number = int(patient[1:])
    return run[3 * number : 3 * number + 3]


def plain_interval(a: list[list[Item]], b: list[list[Item]], draws: int) -> list[float]:
    """The bootstrap as one would say it: draw seeds, draw patients, compare."""
    rng = random.Random(1)
    patients = sorted({item.patient for item in a[0]})
    found = []
    for _ in range(draws):
        seeds = rng.choices(range(len(a)), k=len(a))
        drawn = rng.choices(patients, k=len(patients))
        of_a, of_b = (plain_average([runs[s] for s in seeds], drawn) for runs in (a, b))
        found.append(of_a - of_b)
    return np.percentile(found, [2.5, 97.5]).tolist()


def test_it_is_what_a_plain_loop_finds() -> None:
    a, b = answers(0, (0.9, 0.6, 0.9)), answers(1, (0.2, 0.5, 0.7))
    found = difference_over_seeds(a, b)
    everyone = sorted({item.patient for item in a[0]})
    expected = plain_average(a, everyone) - plain_average(b, everyone)
    assert found["difference"] == pytest.approx(expected, abs=0.01)
    assert found["ci95"] == pytest.approx(plain_interval(a, b, 3000), abs=2)
    for seed, difference in enumerate(found["by_seed"]):
        alone = plain_average([a[seed]], everyone) - plain_average([b[seed]], everyone)
        assert difference == pytest.approx(alone, abs=0.01)
    assert (found["n"], found["patients"]) == (3 * 60, 20)
    # Here the seeds differ more than chance alone would make them: patients are not all.
    of_patients = paired_difference([*chain(*a)], [*chain(*b)])["ci95"]
    assert np.diff(found["ci95"]) > 1.5 * np.diff(of_patients)


def test_with_one_seed_only_patients_are_drawn() -> None:
    a, b = answers(2, (0.8,), 200), answers(3, (0.6,), 200)
    found, of_patients = difference_over_seeds(a, b), paired_difference(a[0], b[0])
    assert found["difference"] == of_patients["difference"] == found["by_seed"][0]
    assert found["ci95"] == pytest.approx(of_patients["ci95"], abs=0.5)


def test_method_is_not_better_than_itself() -> None:
    a = answers(4, (0.5, 0.7))
    assert difference_over_seeds(a, a)["ci95"] == [0, 0]


def test_other_questions_are_refused() -> None:
    a = answers(5, (0.5, 0.7))
    with pytest.raises(InputError, match="the same questions to the same patients"):
        difference_over_seeds(a, [a[0], a[1][:-1]])
