import pytest

from tumorchain_jax.analyze import Analyzer
from tumorchain_jax.data.chat import with_choices
from tumorchain_jax.data.phantom_records import patient_records
from tumorchain_jax.evaluation.answers import judge
from tumorchain_jax.evaluation.phantoms import ask_phantoms, summary
from tumorchain_jax.evaluation.score import Item, make_item
from tumorchain_jax.scan.phantom import make_patient

SEED = 2_000_000


@pytest.fixture(scope="module")
def analyzer() -> Analyzer:
    return Analyzer.load(batch_size=8)


@pytest.fixture(scope="module")
def items(analyzer: Analyzer) -> list[Item]:
    return ask_phantoms(analyzer, SEED, 3)


def test_patients_are_asked_all_that_their_records_ask(items: list[Item]) -> None:
    records = [
        record
        for number in range(3)
        for record in patient_records(make_patient(SEED + number), number)
    ]
    assert [(item.patient, item.question) for item in items] == [
        (record.patient, record.question) for record in records
    ]
    for item, record in zip(items, records, strict=True):
        judgement = judge(record, item.answer)
        assert (item.truth, item.parsed, item.right) == (
            judgement.truth,
            judgement.parsed,
            judgement.right,
        )


def test_the_baseline_is_asked_about_another_patient(analyzer: Analyzer, items: list[Item]) -> None:
    for number, other in enumerate((SEED + 3, SEED, SEED + 1)):
        case = analyzer.prepare(make_patient(other).ct, make_patient(other).labels)
        records = patient_records(make_patient(SEED + number), number)
        asked = [(case, with_choices(record.question, record.choices)) for record in records]
        answers = [report.answer for report in analyzer.batch(asked)]
        rights = [judge(record, text).right for record, text in zip(records, answers, strict=True)]
        of_patient = items[4 * number : 4 * number + 4]
        assert [item.text_only_right for item in of_patient] == rights
    assert any(item.text_only_right != item.right for item in items)


def test_the_summary_tells_the_organ_of_the_ill_apart(items: list[Item]) -> None:
    result = summary(items)
    assert result["n"] == len(items) == 12
    for form, row in result["tumour_organ"].items():
        of_form = [
            item
            for item in items
            if item.subtask == "tumor_position"
            and item.truth not in ("yes", "no", "none")
            and bool(item.choices) == (form == "multiple_choice")
        ]
        assert (row is None) == (not of_form)
        if row:
            right = sum(item.right for item in of_form)
            assert row["n"] == len(of_form)
            assert row["accuracy"] == round(100 * right / len(of_form), 1)
    assert any(result["tumour_organ"].values())


def test_a_summary_without_ill_patients_has_no_tumour_organ() -> None:
    record = next(r for r in patient_records(make_patient(SEED), 0) if r.answer in ("yes", "no"))
    organ = summary([make_item(record, record.answer)])["tumour_organ"]
    assert organ == {"open": None, "multiple_choice": None}
