import json
from pathlib import Path
from typing import Any

import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.chain.cases import draw_truth
from tumorchain_jax.evaluation.items import Item, make_item
from tumorchain_jax.evaluation.kept import with_answers
from tumorchain_jax.phantoms.records import patient_records


def items() -> list[Item]:
    return [
        make_item(record, "none at all", chain="x")
        for seed in range(6)
        for record in patient_records(draw_truth(seed), 0)
    ]


def write(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def right_lines() -> list[dict[str, Any]]:
    return [
        {"patient": i.patient, "question": i.question, "choices": i.choices,
         "answer": f"I say {i.truth}", "chain": "a chain", "more": 1}
        for i in items()
    ]  # fmt: skip


def test_truths_are_read_again_as_they_were(tmp_path: Path) -> None:
    asked = items()
    found = with_answers(asked, write(tmp_path / "a", right_lines()[::-1]))
    assert [item.truth for item in found] == [item.truth for item in asked]
    assert all(item.right for item in found)
    assert {item.chain for item in found} == {"a chain"}
    assert {item.confidence for item in found} == {None}


def test_another_answer_is_judged_as_what_it_is(tmp_path: Path) -> None:
    lines = [{**line, "answer": "I do not know"} for line in right_lines()]
    assert not any(i.right for i in with_answers(items(), write(tmp_path / "a", lines)))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (
            lambda lines: lines[1:],
            "answer: found none for truth-0|answer: found none for phantom-0",
        ),
        (lambda lines: [*lines, lines[-1]], "an answer to no question, or to one that has its"),
        (
            lambda lines: [{**lines[0], "question": "What else?"}, *lines],
            "an answer to no question",
        ),
        (lambda lines: [{"patient": "p"}, *lines], "question: found no such field"),
        (lambda lines: [{**lines[0], "answer": 3}, *lines[1:]], "answer: found 3, expected text"),
    ],
)
def test_files_that_do_not_fit_are_refused(tmp_path: Path, change: Any, found: str) -> None:
    with pytest.raises(InputError, match=found):
        with_answers(items(), write(tmp_path / "a", change(right_lines())))
