import pytest

from tumorchain_jax.analyze import Analyzer
from tumorchain_jax.evaluation.phantoms import _organ_named, _score, evaluate_position
from tumorchain_jax.scan.organs import ORGANS
from tumorchain_jax.scan.phantom import make_patient


@pytest.mark.parametrize(
    ("conclusion", "organ"),
    [
        ("liver", "liver"),
        ("C. colon", "colorectum"),
        ("none", "none"),
        ("", "none"),
        ("liver or stomach", "none"),
        ("a tumour of the pancreas", "pancreas"),
    ],
)
def test_the_organ_of_a_conclusion(conclusion: str, organ: str) -> None:
    assert _organ_named(conclusion) == organ


def test_score_counts_by_hand() -> None:
    score = _score(["a", "a", "a", "b"], ["a", "b", "a", "b"])
    assert score["accuracy"] == 75.0
    assert score["majority"] == 75.0
    assert score["n"] == 4
    # Wilson's interval for 3 of 4.
    assert score["ci95"] == pytest.approx([30.1, 95.4], abs=0.1)


def test_unseen_patients_are_asked_one_by_one() -> None:
    analyzer = Analyzer.load(batch_size=4)
    result = evaluate_position(analyzer, 2_000_000, 6)
    items = result["items"]
    assert [item["seed"] for item in items] == list(range(2_000_000, 2_000_006))
    for item in items:
        lesions = make_patient(item["seed"]).lesions
        assert item["truth"] == (ORGANS[lesions[0].organ] if lesions else "none")
    ill = [item for item in items if item["truth"] != "none"]
    right = sum(item["truth"] == item["answer"] for item in ill)
    assert result["ill"]["n"] == len(ill)
    assert result["ill"]["accuracy"] == round(100 * right / len(ill), 1)
    assert result["all"]["n"] == 6
