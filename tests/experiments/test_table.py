from typing import Any

import pytest

from tumorchain_jax.evaluation.items import Item
from tumorchain_jax.experiments.table import Measured, markdown, results


def run(seed: int, right: str, training: float = 2.0) -> Measured:
    """Four patients, one question of shape each, and one of them another of node."""
    items = [
        Item(f"p{p}", "lesion_attributes", "shape", "", "q", (), "1", "1", "1", letter == "y")
        for p, letter in enumerate(right[:4])
    ]
    items.append(Item("p0", "tnm_prediction", "node", "", "q", (), "1", "1", "1", right[4] == "y"))
    return Measured(seed, items, training, 0.5)


@pytest.fixture
def measured() -> dict[str, list[Measured]]:
    return {
        "full": [run(0, "yyyyy", 2.0), run(1, "yynny", 4.0), run(2, "nnnnn")],
        "without-iir": [run(1, "nynny"), run(0, "ynyyn")],
        "roi-global": [run(0, "yynny")],
        "without-cot": [run(5, "yynny")],
    }


def test_seeds_are_pooled_and_listed(measured: dict[str, list[Measured]]) -> None:
    full = results(measured)["runs"]["full"]
    assert full["by_seed"] == [100.0, 75.0, 0.0]
    assert full["average"] == pytest.approx((50 + 200 / 3) / 2, abs=0.1)
    assert full["subtasks"]["shape"]["accuracy"] == 50.0
    assert (full["n"], full["patients"], full["seeds"]) == (15, 4, [0, 1, 2])
    assert (full["training"], full["evaluation"]) == (2.7, 0.5)


def test_differences_are_over_the_seeds_that_both_have(
    measured: dict[str, list[Measured]],
) -> None:
    differences = results(measured)["differences"]
    assert differences.keys() == {"without-iir"}
    found = differences["without-iir"]
    assert found["seeds"] == [0, 1]
    # Seed 0: 100 - (75 + 0) / 2; seed 1: 75 - (25 + 100) / 2.
    assert found["by_seed"] == [62.5, 12.5]
    assert found["difference"] == 37.5
    assert found["paper"] == 4.07


def test_papers_averages(measured: dict[str, Any]) -> None:
    runs = results(measured | {"alpha-1.5": measured["roi-global"]})["runs"]
    papers = {name: row["paper"] for name, row in runs.items()}
    assert papers == {
        "full": 84.41,
        "without-iir": 80.34,
        "without-cot": 82.45,
        "roi-global": None,
        "alpha-1.5": 79.16,
    }


def test_table_is_text(measured: dict[str, list[Measured]]) -> None:
    numbers = results(measured)
    lines = markdown(numbers).splitlines()
    # Four patients are too few for an interval of the average.
    cells = "58.3 | - | 100.0, 75.0, 0.0 | 84.41 | 15 | 2.7 | 0.5"
    assert f"| full | {cells} |" in lines
    low, high = numbers["differences"]["without-iir"]["ci95"]
    cells = f"+37.5 | {low:.1f} to {high:.1f} | 62.5, 12.5 | +4.07"
    assert f"| without-iir | {cells} |" in lines
    by_subtask = next(line for line in lines if line.startswith("| roi-global | -"))
    assert by_subtask.count("|") == 14
    assert "50.0 (" in by_subtask
    tables = markdown(numbers).split("\n\n")[1::2]
    assert len(tables) == 3
    for table in tables:
        assert len({line.count("|") for line in table.splitlines()}) == 1
