from typing import Any

from tumorchain_jax.data.schema import SUBTASKS
from tumorchain_jax.evaluation.score import Item, score, summary
from tumorchain_jax.evaluation.tables import organ_table, summary_text, table

TASK_OF = {subtask: task for task, subtasks in SUBTASKS.items() for subtask in subtasks}


def item(
    patient: int, right: bool, subtask: str, organ: str = "liver", text_only: bool | None = None
) -> Item:
    task = TASK_OF[subtask]
    return Item(
        str(patient), task, subtask, organ, "q?", (), "liver", "x", "liver", right, text_only
    )


def cells(text: str) -> dict[str, list[str]]:
    """The rows below the heads, by their label."""
    return {line[:14].strip(): line[14:].split() for line in text.splitlines()}


def test_table_1_has_a_column_for_each_subtask_in_the_papers_order() -> None:
    scored = score(
        [
            item(1, True, "organ_position"),
            item(2, False, "organ_position", text_only=True),
            item(1, True, "cot_report", text_only=True),
        ]
    )
    text = table(scored)
    assert [group in text.splitlines()[0] for group in ("Position", "TNM prediction")] == [True] * 2
    rows = cells("\n".join(text.splitlines()[2:]))
    assert text.splitlines()[1].split()[::11] == ["organ", "report"]
    nothing = ["-"] * 10
    assert rows["accuracy"] == ["50.0", *nothing, "100.0", "75.0"]
    # A draw of the second patient alone has no report to make up for it.
    assert rows["95 % from"] == ["0.0", *nothing, "100.0", "0.0"]
    assert rows["to"] == ["100.0", *nothing, "100.0", "100.0"]
    assert rows["majority"] == ["100.0", *nothing, "100.0", "100.0"]
    assert rows["text only"] == ["-", *nothing, "100.0", "-"]
    assert rows["n"] == ["2", *nothing, "1", "3"]
    assert len({len(line) for line in text.splitlines()[1:]}) == 1


def test_table_6_has_a_column_for_each_organ_in_the_papers_order() -> None:
    colon = item(1, True, "cot_report", "colorectum")
    scored = score([item(1, False, "cot_report"), colon])
    text = organ_table(scored)
    heads = ["liver", "pancreas", "colon", "stomach", "esophagus", "average"]
    assert text.splitlines()[0].split() == heads
    rows = cells(text)
    assert rows["accuracy"] == ["0.0", "-", "100.0", "-", "-", "50.0"]
    assert rows["n"] == ["1", "-", "1", "-", "-", "-"]


def test_the_text_says_what_it_is_of() -> None:
    def lines(**of: Any) -> str:
        return summary_text(summary([item(1, True, **of), item(2, True, **of)]))

    report, position = lines(subtask="cot_report"), lines(subtask="tumor_position")
    assert report.startswith("2 patients with made-up tumours, accuracy in percent")
    assert "Reports by organ" in report
    assert "organ of the tumour, open" not in report
    assert "Reports by organ" not in position
    assert "organ of the tumour, open: 100.0 [100.0, 100.0], n 2" in position
