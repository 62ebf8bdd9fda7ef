from dataclasses import replace

import numpy as np
import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.schema import TASK_OF
from tumorchain_jax.evaluation.compare import compare, compare_text
from tumorchain_jax.evaluation.items import Item
from tumorchain_jax.evaluation.score import paired_difference


def run(shares: dict[str, float], seed: int, patients: int = 60, each: int = 1) -> list[Item]:
    rng = np.random.default_rng(seed)
    return [
        Item(f"p{patient}", TASK_OF[subtask], subtask, "liver", f"q{n}", (), "x", "x", "x",
             bool(rng.random() < share))
        for patient in range(patients)
        for subtask, share in shares.items()
        for n in range(each)
    ]  # fmt: skip


def test_a_better_run_is_told_from_an_equal_one() -> None:
    a = run({"shape": 0.9, "density": 0.5}, 1)
    b = run({"shape": 0.4, "density": 0.5}, 2)
    values = compare(a, b)
    whole = paired_difference(a, b)
    assert values["difference"] == whole["difference"] == round(values["a"] - values["b"], 2)
    assert values["ci95"] == whole["ci95"]
    shape, density = values["subtasks"]["shape"], values["subtasks"]["density"]
    assert shape["p_holm"] == pytest.approx(2 * shape["p"])
    assert shape["p_holm"] < 0.01 < density["p_holm"]
    assert shape["p_mcnemar"] is not None
    assert shape["only_a"] - shape["only_b"] == pytest.approx(60 * shape["difference"] / 100)
    text = compare_text(values, ("a", "b"))
    assert "shape" in text
    assert len({len(line) for line in text.splitlines()[4:]}) == 1


def test_the_order_of_items_does_not_matter_and_signs_turn() -> None:
    a, b = run({"shape": 0.7}, 1), run({"shape": 0.5}, 2)
    there, back = compare(a, b[::-1]), compare(b, a)
    assert there["difference"] == -back["difference"]
    assert there["p"] == back["p"]


def test_mcnemar_only_where_a_patient_has_one_question() -> None:
    a, b = (run({"shape": 0.7}, seed, each=2) for seed in (1, 2))
    assert compare(a, b)["subtasks"]["shape"]["p_mcnemar"] is None


def test_organs_are_a_claim_of_their_own() -> None:
    a, b = run({"cot_report": 0.7}, 1), run({"cot_report": 0.5}, 2)
    values = compare(a, b)
    assert values["organs"]["liver"]["p_holm"] == values["organs"]["liver"]["p"]


def test_other_questions_are_refused() -> None:
    a, b = run({"shape": 0.7}, 1), run({"shape": 0.5}, 2)
    with pytest.raises(InputError, match="the same questions"):
        compare(a, [replace(b[0], question="other"), *b[1:]])
    with pytest.raises(InputError, match="the same questions"):
        compare([], [])
