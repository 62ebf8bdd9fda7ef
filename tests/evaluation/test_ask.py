from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from tumorchain_jax.evaluation import ask as module
from tumorchain_jax.evaluation.answers import judge
from tumorchain_jax.evaluation.ask import Asked, ask, ask_each
from tumorchain_jax.evaluation.patients import Phantoms
from tumorchain_jax.inference.analyzer import Analyzer
from tumorchain_jax.reasoning.prompt import with_choices

SUBTASKS = ("count", "shape")


@pytest.fixture
def patients(case: Callable, record: Callable) -> Callable[[int], list[Asked]]:
    """Scan s<n> holds n lesions, and that is what is asked; besides, a shape."""

    def make(count: int) -> list[Asked]:
        return [
            (
                case(f"s{n}"),
                [
                    record(f"p{n}", "shape", "shape?", "round"),
                    record(f"p{n}", "count", "how many?", str(n), choices=("1", "2", "3", str(n))),
                ],
            )
            for n in range(4, 4 + count)
        ]

    return make


def says_what_it_sees(scan: str, question: str) -> str:
    return scan[1:] if question.startswith("how many?") else "round"


@pytest.mark.parametrize("at_once", [1, 2, 3, 16])
def test_each_question_is_put_about_the_scan_and_about_the_one_before(
    patients: Callable, scripted: Callable, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(module, "PATIENTS_AT_ONCE", at_once)
    analyzer = scripted(says_what_it_sees)
    items = ask(analyzer, patients(5))
    assert [(item.patient, item.subtask) for item in items] == [
        (f"p{n}", subtask) for n in range(4, 9) for subtask in ("shape", "count")
    ]
    assert all(item.right for item in items)
    assert {scan for scan, _ in analyzer.asked} == {f"s{n}" for n in range(4, 9)}
    counts = [item for item in items if item.subtask == "count"]
    # The first block may hold no second patient; all others are asked about the patient before.
    first = None if at_once == 1 else False
    assert [item.text_only_right for item in counts] == [first, *[False] * 4]
    asked = {(scan, question.splitlines()[-1]) for scan, question in analyzer.asked}
    assert {(f"s{n}", f"D. {m}") for n, m in pairwise(range(4, 9))} <= asked


def test_patient_alone_has_no_baseline(patients: Callable, scripted: Callable) -> None:
    analyzer = scripted(says_what_it_sees)
    assert [item.text_only_right for item in ask(analyzer, patients(1))] == [None, None]
    assert len(analyzer.asked) == 2


def test_without_text_only_and_with_few_rounds(patients: Callable, scripted: Callable) -> None:
    analyzer = scripted(says_what_it_sees)
    items = ask(analyzer, patients(3), text_only=False, rounds=1)
    assert {item.text_only_right for item in items} == {None}
    assert len(analyzer.asked) == 6
    assert set(analyzer.rounds) == {1}


def test_rest_begins_after_the_patient_before(
    patients: Callable, case: Callable, scripted: Callable
) -> None:
    analyzer = scripted(says_what_it_sees)
    whole = list(ask_each(analyzer, patients(3)))
    rest = list(ask_each(analyzer, patients(3)[1:], before=case("s4")))
    assert rest == whole[1:]


def test_like_questions_stand_together(patients: Callable, scripted: Callable) -> None:
    analyzer = scripted(says_what_it_sees)
    ask(analyzer, patients(4))
    asked = [question.splitlines()[0] for _, question in analyzer.asked]
    assert asked == ["how many?"] * 8 + ["shape?"] * 8


def test_patients_are_made_no_further_ahead_than_two_blocks(
    patients: Callable, scripted: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENTS_AT_ONCE", 2)
    made = 0

    def lazily() -> Iterator[Asked]:
        nonlocal made
        for patient in patients(10):
            made += 1
            yield patient

    answers = ask_each(scripted(says_what_it_sees), lazily())
    next(answers)
    answers.close()  # waits for the patients in the making
    assert made == 4


def test_failure_of_generation_is_reported(patients: Callable, scripted: Callable) -> None:
    def broken() -> Iterator[Asked]:
        yield from patients(1)
        raise RuntimeError("no more patients")

    with pytest.raises(RuntimeError, match="no more patients"):
        ask(scripted(says_what_it_sees), broken())


@pytest.mark.system(haste=True)
def test_real_model_is_asked_about_phantoms_what_it_is_asked_alone() -> None:
    analyzer = Analyzer.load(batch_size=2)
    patients = [(case, records[:3]) for case, records in Phantoms(analyzer, 2_000_000, 2)]
    items = ask(analyzer, patients)
    (first, records), (second, others) = patients
    assert [item.question for item in items] == [r.question for r in [*records, *others]]
    for number in (0, -1):
        record, item = [*records, *others][number], items[number]
        own, other = (first, second) if number == 0 else (second, first)
        question = with_choices(record.question, record.choices)
        seen, unseen = (
            report.answer for report in analyzer.batch([(own, question), (other, question)])
        )
        assert item.answer == seen
        assert item.right == judge(record, seen).right
        assert item.text_only_right == judge(record, unseen).right
