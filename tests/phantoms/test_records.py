from collections import Counter
from dataclasses import replace

import numpy as np
from patients_as_drawn import ANSWER, CASES, PATIENTS, ill_organ, lesion, make, of, organs_in

from tumorchain_jax.anatomy.organs import display_name
from tumorchain_jax.anatomy.staging import stage
from tumorchain_jax.data.schema import TASK_OF, Record
from tumorchain_jax.evaluation.answers import judge
from tumorchain_jax.phantoms.incidental import METASTASIS
from tumorchain_jax.phantoms.records import (
    THIRDS,
    patient_records,
)


def test_records_belong_to_their_patient_and_pass_the_schema() -> None:
    for patient in PATIENTS[:20]:
        records = patient_records(patient, 17)
        for record in records:
            assert (record.patient, record.scan) == (f"phantom-{patient.seed}", 17)
            assert record.task == TASK_OF[record.subtask]
            assert Record.from_json(record.to_json()) == record
        assert patient_records(patient, 17) == records


def test_every_subtask_is_asked() -> None:
    assert {record.subtask for _, record in CASES} == set(TASK_OF)
    for patient in PATIENTS:
        asked = Counter(record.subtask for record in patient_records(patient, 0))
        assert asked["organ_position"] <= (1 if patient.lesions else 2)
        assert asked["tumor_position"] == (3 if patient.lesions else 4)
        assert asked["cot_report"] == 1
        once = set(TASK_OF) - {"organ_position", "tumor_position", "cot_report", "metastasis"}
        assert all(asked[subtask] == bool(patient.lesions) for subtask in once)
        assert asked["metastasis"] <= bool(patient.lesions)
    whole = make(1, (lesion(20),))
    assert len(patient_records(whole, 0)) == 14
    assert len(patient_records(make(1), 0)) == 7


def test_chain_ends_with_the_answer_and_is_judged_right() -> None:
    for _, record in CASES:
        text = record.rounds[-1].text
        assert ANSWER.search(text)[1] == record.answer
        assert judge(record, text).right, text
        wrong = replace(record, answer=next((c for c in record.choices if c != record.answer), ""))
        if record.choices:
            assert not judge(wrong, text).right


def test_multiple_choices_hold_the_answer_once_and_no_letter() -> None:
    lettered = [record for _, record in CASES if record.choices]
    for record in lettered:
        assert record.choices.count(record.answer) == 1
        assert len(set(record.choices)) == len(record.choices)
        assert 2 <= len(record.choices) <= 4
    assert {r.choices.index(r.answer) for r in lettered if len(r.choices) == 4} == {0, 1, 2, 3}


def test_answers_follow_from_the_truth() -> None:
    for patient, record in CASES:
        ill = ill_organ(patient)
        asked = set(organs_in(record.question))
        assert asked == ({record.organ} if record.organ else set())
        if record.subtask == "organ_position":
            continue
        if record.subtask == "cot_report":
            expected = f"a tumour of the {display_name(ill)}" if ill else "no tumour"
        elif record.subtask == "tumor_position" and record.organ:
            sites = {f.organ for f in patient.findings if f.kind == METASTASIS}
            expected = "yes" if record.organ == ill or record.organ in sites else "no"
        elif record.subtask == "tumor_position":
            expected = display_name(ill) if ill else "none"
        else:
            one = max(patient.lesions, key=lambda each: each.diameter_mm)
            t, n, m = stage(patient.extent)
            expected = {
                "segment_localization": one.segment,
                "density": one.density,
                "shape": one.shape,
                "boundary": one.border,
                "count": str(len(patient.lesions)),
                "others": one.other,
                "tumor": t,
                "node": n,
                "metastasis": m,
            }[record.subtask]
            assert record.organ == ill
        assert record.answer == expected


def test_organ_positions_are_thirds_of_the_scan() -> None:
    answers = Counter()
    for patient, record in of("organ_position"):
        slices = np.flatnonzero((patient.labels.voxels == record.organ).any(axis=(0, 1)))
        from_top = 1 - (slices.mean() + 0.5) / patient.labels.shape[2]
        assert record.answer == THIRDS[int(np.digitize(from_top, (1 / 3, 2 / 3)))]
        # What is near where two thirds meet is not asked.
        assert min(abs(from_top - 1 / 3), abs(from_top - 2 / 3)) > 0.04
        assert record.rounds[-1].look_at == (record.organ,)
        answers[record.answer] += 1
    assert set(answers) == set(THIRDS)
