import re

import numpy as np
import pytest

from tumorchain_jax.data.phantom_records import abnormal_organs, describe, patient_records
from tumorchain_jax.data.schema import Record
from tumorchain_jax.scan.organs import DIGESTIVE, display_name, labels_named
from tumorchain_jax.scan.phantom import (
    BORDERS,
    DENSITIES,
    SHAPES,
    SIZE_LIMITS_MM,
    Lesion,
    Patient,
)
from tumorchain_jax.scan.volume import Volume

LIVER, PANCREAS = 5, 7
SMALL, MEDIUM, LARGE = (limit + 0.5 for limit in SIZE_LIMITS_MM[:3])
ANSWER = re.compile(r"</think> (?:Thus, the answer is(?: ([A-F])\.)?|Conclusion:) ([^.]+)\.$")


def make(seed: int, lesions: tuple[Lesion, ...]) -> Patient:
    """A patient as `make_patient` gives it; the records read no voxel of the CT."""
    labels = Volume(np.array([[[0, 1, *DIGESTIVE]]], np.uint8), np.eye(4))
    return Patient(labels, labels, lesions, seed, "made up", labels)


def lesion(organ: int, diameter: float, *words: str) -> Lesion:
    return Lesion(organ, "part", diameter, *words, centre_mm=(0.0, 0.0, 0.0), voxels=9)


def draw(seed: int) -> Patient:
    rng = np.random.default_rng(seed)
    words = [str(rng.choice(pair)) for pair in (DENSITIES, SHAPES, BORDERS)]
    diameters = rng.uniform(SMALL, LARGE, seed % 4).tolist()
    return make(seed, tuple(lesion(DIGESTIVE[seed % 5], d, *words) for d in diameters))


PATIENTS = [draw(seed) for seed in range(60)]
CASES = [(patient, record) for patient in PATIENTS for record in patient_records(patient, 17)]


def ill_organ(patient: Patient) -> int:
    return patient.lesions[0].organ if patient.lesions else 0


def last_answer(record: Record) -> str:
    """What the chain concludes; a letter must be that of the choice it stands before."""
    match = ANSWER.search(record.rounds[-1].text)
    assert match, record.rounds[-1].text
    letter, answer = match.groups()
    assert (letter is not None) == bool(record.choices)
    if letter:
        assert record.choices["ABCDEF".index(letter)] == answer
    return answer


def test_records_belong_to_their_patient_and_pass_the_schema() -> None:
    for patient in PATIENTS[:8]:
        records = patient_records(patient, 17)
        assert len(records) == 4
        for record in records:
            assert (record.patient, record.scan) == (f"phantom-{patient.seed}", 17)
            assert Record.from_json(record.to_json()) == record
        assert patient_records(patient, 17) == records


def test_the_loop_looks_where_the_text_sends_it() -> None:
    """Each round names, of the organs not seen yet, exactly those that the next one looks at."""
    for _, record in CASES:
        seen: set[int] = set()
        look_at = [target.look_at for target in record.rounds[1:]] + [()]
        for target, expected in zip(record.rounds, look_at, strict=True):
            named = [label for mention in labels_named(target.text) for label in mention.labels]
            new = [label for label in dict.fromkeys(named) if label not in seen]
            assert tuple(new) == expected, target.text
            seen.update(new)


def test_no_organ_is_named_but_those_of_the_chain() -> None:
    for _, record in CASES:
        looked_at = {label for target in record.rounds for label in target.look_at}
        text = " ".join(target.text for target in record.rounds)
        assert {n for mention in labels_named(text) for n in mention.labels} == looked_at
        assert looked_at <= set(DIGESTIVE)


def test_answers_follow_from_the_truth() -> None:
    for patient, record in CASES:
        ill = ill_organ(patient)
        asked = {label for mention in labels_named(record.question) for label in mention.labels}
        assert asked == ({record.organ} if record.organ else set())
        if record.task == "cot_report":
            expected = f"a tumour of the {display_name(ill)}" if ill else "no tumour"
        elif record.task == "lesion_attributes":
            largest = max(patient.lesions, key=lambda one: one.diameter_mm)
            expected = {
                "density": largest.density,
                "shape": largest.shape,
                "boundary": largest.border,
                "count": str(len(patient.lesions)),
            }[record.subtask]
            assert record.organ == ill
        elif record.organ:
            expected = "yes" if record.organ == ill else "no"
        else:
            expected = display_name(ill) if ill else "none"
        assert record.answer == last_answer(record) == expected


def test_findings_are_told_of_the_ill_organ_alone() -> None:
    for patient, record in CASES:
        ill = ill_organ(patient)
        text = record.rounds[-1].text
        last = record.rounds[-1].look_at
        if ill and ill in last:
            name = display_name(ill)
            assert f"First, the {name} shows {describe(patient.lesions)}. Second" in text
            assert f"suggests a tumour of the {name}. Third, pathology" in text
        else:
            assert "nothing suggests a tumour." in text
            assert "shows" not in text
            assert f"First, the {display_name(last[0])} looks normal." in text


def test_a_search_ends_where_the_tumour_is() -> None:
    """Two organs at a time; what is seen to be normal is said to be."""
    order = [(5, 7), (6, 20), (15,)]
    for patient, record in CASES:
        if record.organ:
            continue
        ill = ill_organ(patient)
        length = next((n for n, group in enumerate(order, 1) if ill in group), 3)
        assert [target.look_at for target in record.rounds] == [(), *order[:length]]
        for n, target in enumerate(record.rounds[1:-1]):
            names = " and the ".join(display_name(organ) for organ in order[n])
            assert target.text.startswith(f"The {names} look normal. The ")
        assert "need a closer look." in record.rounds[0].text


def test_organs_out_of_view_are_not_searched() -> None:
    patient = make(0, ())
    for hidden in (7, 15):
        patient.labels.voxels[patient.labels.voxels == hidden] = 0
    record = patient_records(patient, 0)[0]
    assert [target.look_at for target in record.rounds] == [(), (5,), (6, 20)]
    assert record.rounds[0].text == "The liver needs a closer look."
    assert "the stomach and the colon look normal." in record.rounds[-1].text
    whole = make(0, ())
    assert patient_records(whole, 0, visible=(5, 6, 20)) == patient_records(patient, 0)
    for seed in range(20):
        asked = {record.organ for record in patient_records(make(seed, ()), 0, visible=(5,))}
        assert asked <= {0, 5}


def test_reasoning_is_what_there_is_to_learn() -> None:
    for _, record in CASES:
        learned = [target.text for target in record.rounds if not target.given]
        assert record.reasoning == " ".join(learned)


def test_the_questions_are_balanced() -> None:
    ill = [record for patient, record in CASES if patient.lesions]
    checks = [record.answer for record in ill if record.answer in ("yes", "no")]
    assert 0.4 < checks.count("yes") / len(checks) < 0.8
    positions = [record for _, record in CASES if record.task == "position" and not record.organ]
    lettered = [record for record in positions if record.choices]
    assert 0.4 < len(lettered) / len(positions) < 0.6
    places = [record.choices.index(record.answer) for record in lettered]
    assert set(places) == set(range(6))
    assert {record.subtask for record in ill} >= {"shape", "boundary", "density", "count"}


@pytest.mark.parametrize(
    ("diameters", "expected"),
    [
        ((MEDIUM,), "one lesion, medium, hypodense, round and ill-defined"),
        ((SMALL, LARGE), "two lesions, the largest large, hypodense, round and ill-defined"),
        ((SMALL,) * 3, "three lesions, the largest small, hypodense, round and ill-defined"),
    ],
)
def test_description_of_lesions(diameters: tuple[float, ...], expected: str) -> None:
    words = "hypodense", "round", "ill-defined"
    assert describe(tuple(lesion(LIVER, diameter, *words) for diameter in diameters)) == expected


def test_abnormal_organs_are_known_for_digestive_organs_in_the_scan() -> None:
    sick = make(0, (lesion(PANCREAS, 10.0, "hypodense", "round", "ill-defined"),))
    expected = np.full(57, -1)
    expected[list(DIGESTIVE)] = 0
    expected[PANCREAS] = 1
    table = abnormal_organs(sick)
    assert table.dtype == np.int8
    np.testing.assert_array_equal(table, expected)
    sick.labels.voxels[sick.labels.voxels == LIVER] = 0
    expected[LIVER] = -1
    np.testing.assert_array_equal(abnormal_organs(sick), expected)
