import json
from pathlib import Path
from typing import Any

import pytest

from tumorchain_jax import NOTICE
from tumorchain_jax.cli.main import main
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.by_size import differences, differences_text
from tumorchain_jax.evaluation.items import Item, json_lines


def organ(patient: int, right: bool, mm: float, question: str = "Where is it?") -> Item:
    said = "liver" if right else "colon"
    task, subtask = "position", "tumor_position"
    name = f"p{patient}"
    values: dict[str, Any] = {"tumour_mm": mm}
    return Item(name, task, subtask, "liver", question, (), "liver", said, said, right, **values)


def shape(patient: int, right: bool, question: str = "Which shape?") -> Item:
    said = "round" if right else "irregular"
    task, subtask = "lesion_attributes", "shape"
    return Item(f"p{patient}", task, subtask, "liver", question, (), "round", said, said, right)


def test_sizes_are_compared_apart() -> None:
    sizes = [5.0, 10.0, 15.0, 19.9, 20.0, 39.0, 40.0, 80.0]
    first = [organ(n, True, mm) for n, mm in enumerate(sizes)]
    other = [organ(n, mm >= 40, mm) for n, mm in enumerate(sizes)]
    rows = differences(first, other)["rows"]
    found = {name: (row["difference"], row["n"]) for name, row in rows.items()}
    assert found == {
        "all questions": (75.0, 8),
        "which organ": (75.0, 8),
        "which organ, 0-10 mm": (100.0, 1),
        "which organ, 10-20 mm": (100.0, 3),
        "which organ, 20-40 mm": (100.0, 2),
        "which organ, 10-40 mm": (100.0, 5),
        "which organ, 40+ mm": (0.0, 2),
    }
    assert (rows["which organ"]["a"], rows["which organ"]["b"]) == (100.0, 25.0)


def test_questions_of_one_run_alone_are_left_out() -> None:
    first = [shape(1, True), shape(1, False, "another?"), organ(1, True, 12.0)]
    other = [shape(1, False), organ(1, True, 12.0, "In which organ is it?"), shape(2, True)]
    found = differences(first, other)
    assert found["left_out"] == 2
    assert found["rows"]["all questions"]["n"] == 2
    assert found["rows"]["which organ, 10-20 mm"]["difference"] == 0


def test_interval_is_over_patients_in_pairs() -> None:
    first = [shape(n, n % 4 > 0) for n in range(80)]
    other = [shape(n, n % 4 > 1) for n in range(80)]
    row = differences(first, other)["rows"]["all questions"]
    low, high = row["ci95"]
    assert row["difference"] == 25
    # A difference of 0 or 1 in a quarter of 80 patients: 25 +- 1.96 * sqrt(.25 * .75 / 80).
    assert (low, high) == pytest.approx((15.5, 34.5), abs=2.5)


def test_nothing_in_common_is_refused() -> None:
    with pytest.raises(InputError, match="two runs: items: found none in common"):
        differences([shape(1, True)], [shape(2, True)])


def test_command_prints_a_table_or_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, right in (("a", True), ("b", False)):
        items = [organ(1, right, 30.0), shape(1, True)]
        (tmp_path / name).write_text(json_lines(items))
    words = ["compare", f"{tmp_path}/a", f"{tmp_path}/b", "--by-size"]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert text == f"{differences_text(found)}\n{NOTICE}\n"
    (line,) = (line for line in text.splitlines() if line.startswith("which organ, 10-40 mm"))
    assert line.split()[4:] == ["100.0", "0.0", "100.0", "-", "-", "1"]
