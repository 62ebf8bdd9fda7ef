"""The chains of the records: what the loop looks at, and what each round says."""

import numpy as np
import pytest
from patients_as_drawn import (
    CASES,
    LARGE,
    LIVER,
    LUNGS,
    MEDIUM,
    MOST_ORGANS_A_ROUND,
    MOST_ROUNDS,
    PANCREAS,
    PATIENTS,
    SMALL,
    SPLEEN,
    finding,
    ill_organ,
    lesion,
    looks,
    make,
    of,
    organs_in,
)

from tumorchain_jax.anatomy.organs import DIGESTIVE, display_name
from tumorchain_jax.anatomy.staging import stage
from tumorchain_jax.anatomy.substructures import SEGMENTS
from tumorchain_jax.evaluation.answers import judge
from tumorchain_jax.phantoms.body import Body
from tumorchain_jax.phantoms.incidental import METASTASIS, NODE
from tumorchain_jax.phantoms.patient import Patient, make_patient
from tumorchain_jax.phantoms.records import (
    abnormal_organs,
    describe,
    largest,
    patient_records,
)

# ---------------------------------------------------------------- the chain and the loop


def test_loop_looks_where_the_text_sends_it() -> None:
    """Each round names, of the organs not seen yet, exactly those that the next one looks at."""
    for patient, record in CASES:
        expected = [target.look_at for target in record.rounds[1:]] + [()]
        assert looks(patient, record) == expected, [target.text for target in record.rounds]


def test_no_chain_is_longer_than_the_loop() -> None:
    for _, record in CASES:
        assert 2 <= len(record.rounds) <= MOST_ROUNDS
        assert record.rounds[0].look_at == ()
        assert all(1 <= len(t.look_at) <= MOST_ORGANS_A_ROUND for t in record.rounds[1:])
    longest = {len(record.rounds) for _, record in CASES}
    assert longest == {2, 3, 4}


def test_no_organ_is_named_but_those_of_the_chain() -> None:
    for _, record in CASES:
        looked_at = {label for target in record.rounds for label in target.look_at}
        named = set(organs_in(" ".join(target.text for target in record.rounds)))
        # "The lungs" names five lobes, of which a scan shows those it shows.
        assert named - looked_at <= ({10, 11, 12, 13, 14} if looked_at & set(LUNGS) else set())


def test_every_name_of_a_part_names_its_organ_alone() -> None:
    for organ, parts in SEGMENTS.items():
        for part in parts:
            assert organs_in(f"in the {part}, hypodense") == [organ]
    for words in ("Three enlarged lymph nodes.", "It reaches the outer surface.", "upper third"):
        assert organs_in(words) == []


@pytest.mark.parametrize("seen", [(11,), (14,), LUNGS, (LIVER,), (LIVER, 11), ()])
def test_metastases_are_looked_for_in_what_is_visible(seen: tuple[int, ...]) -> None:
    """Site by site, and nothing is asked when a metastasis lies out of the model's sight."""
    for sites in ((), (LIVER,), (11,), LUNGS, (LIVER, 14)):
        metastases = tuple(finding(METASTASIS, site) for site in sites)
        patient = make(0, (lesion(20),), metastases)
        records = patient_records(patient, 0, {20, *seen})
        found = [record for record in records if record.subtask == "metastasis"]
        assert len(found) == bool(seen and set(sites) <= set(seen))
        for record in found:
            lungs = tuple(label for label in LUNGS if label in seen)
            expected = [(LIVER,)] * (LIVER in seen) + [lungs] * bool(lungs)
            assert [target.look_at for target in record.rounds] == [(), *expected]
            ill = "show metastases" in record.reasoning or "shows metastases" in record.reasoning
            assert ill == bool(sites) == (record.answer != "M0")


def test_records_of_made_patients_hold_together() -> None:
    for patient in map(make_patient, (0, 1)):
        for record in patient_records(patient, 0):
            expected = [target.look_at for target in record.rounds[1:]] + [()]
            assert looks(patient, record) == expected
            assert judge(record, record.rounds[-1].text).right


# ---------------------------------------------------------------- what the chains say


def test_findings_of_the_ill_organ_are_told() -> None:
    for patient, record in CASES:
        ill = ill_organ(patient)
        shows = f"the {display_name(ill)} shows {describe(patient.lesions)}." if ill else None
        told = shows is not None and shows in record.reasoning
        about_ill = record.organ == ill and record.subtask not in ("organ_position", "metastasis")
        assert told == (bool(ill) and (about_ill or not record.organ))


def test_findings_come_before_impression_before_pathology() -> None:
    for patient, record in [*of("cot_report"), *of("tumor_position", whole=True)]:
        text = record.rounds[-1].text
        if patient.lesions:
            name = display_name(ill_organ(patient))
            first, second, third = (text.index(w) for w in ("First, ", "Second, ", "Third, "))
            assert first < second < third
            assert f"Second, this suggests a tumour of the {name}." in text
        else:
            assert "Second, nothing suggests a tumour." in text
        if record.subtask == "cot_report" and patient.lesions:
            t, n, _ = stage(patient.extent)
            assert f"Third, the stage is {t} {n}." in text


def test_search_ends_where_the_tumour_is() -> None:
    """Two organs at a time."""
    order = [(5, 7), (6, 20), (15,)]
    for patient, record in of("tumor_position", whole=True):
        ill = ill_organ(patient)
        shown = [tuple(o for o in group if o in patient.labels.voxels) for group in order]
        length = next((n for n, group in enumerate(shown, 1) if ill in group), len(shown))
        expected = [group for group in shown[:length] if group]
        assert [target.look_at for target in record.rounds] == [(), *expected]
        assert "need" in record.rounds[0].text
    healthy = next(r for r in patient_records(make(0), 0) if r.subtask == "cot_report")
    assert [target.text for target in healthy.rounds[:2]] == [
        "The liver and the pancreas need a closer look.",
        "The liver and the pancreas look normal. The stomach and the colon need a closer look.",
    ]


def test_what_else_is_seen_on_the_way_is_told() -> None:
    body = Body("arterial", cirrhosis=True, swelling=True)
    tumour = (lesion(15),)

    def second_round(patient: Patient) -> str:
        records = patient_records(patient, 0)
        return next(r for r in records if r.subtask == "cot_report").rounds[1].text

    told = second_round(make(0, tumour, (), body))
    assert told.startswith("The liver looks nodular, as in cirrhosis. The pancreas is swollen,")
    metastasis = (finding(METASTASIS, LIVER),)
    told = second_round(make(0, tumour, metastasis))
    assert told.startswith("The liver shows metastases. The pancreas looks normal. ")


def test_cirrhosis_with_a_tumour_sends_the_report_to_the_spleen() -> None:
    body = Body("arterial", cirrhosis=True, swelling=False)
    visited = 0
    for patient, record in [*of("cot_report"), (make(0, (lesion(LIVER),), (), body), None)]:
        if record is None:
            records = patient_records(patient, 0)
            record = next(r for r in records if r.subtask == "cot_report")
        expected = patient.body.cirrhosis and ill_organ(patient) == LIVER
        expected = expected and SPLEEN in patient.labels.voxels
        assert ((SPLEEN,) in [target.look_at for target in record.rounds]) == expected
        assert ("the spleen is enlarged" in record.rounds[-1].text) == expected
        visited += expected
    assert visited


def test_nodes_and_depth_are_told_where_they_decide() -> None:
    nodes = (finding(NODE, 20),) * 3
    for depth, words in (
        ("wall", "It keeps to the wall."),
        ("fat", "It reaches into the fat."),
        ("surface", "It reaches the outer surface."),
    ):
        patient = make(0, (lesion(20, depth=depth),), nodes)
        text = {r.subtask: r.rounds[-1].text for r in patient_records(patient, 0)}
        assert words in text["tumor"]
        assert "Three enlarged lymph nodes." in text["node"]
    solid = make(0, (lesion(LIVER),), (finding(NODE, LIVER),))
    text = {r.subtask: r.rounds[-1].text for r in patient_records(solid, 0)}
    assert "It " not in text["tumor"]
    assert "One enlarged lymph node." in text["node"]


def test_organs_out_of_view_are_not_searched() -> None:
    patient = make(0, in_view=(5, 6, 20))
    record = next(r for r in patient_records(patient, 0) if not r.organ)
    assert [target.look_at for target in record.rounds] == [(), (5,), (6, 20)]
    assert record.rounds[0].text == "The liver needs a closer look."
    assert "the stomach and the colon look normal." in record.rounds[-1].text
    for seed in range(20):
        asked = {record.organ for record in patient_records(make(seed), 0, visible=(5,))}
        assert asked <= {0, 5}


def test_reasoning_is_what_there_is_to_learn() -> None:
    for _, record in CASES:
        learned = [target.text for target in record.rounds if not target.given]
        assert record.reasoning == " ".join(learned)


def test_questions_are_balanced() -> None:
    checks = [r.answer for p, r in of("tumor_position") if r.organ and p.lesions]
    assert 0.4 < checks.count("yes") / len(checks) < 0.85
    for subtask in ("shape", "boundary", "density", "count", "others", "segment_localization"):
        lettered = [bool(record.choices) for _, record in of(subtask)]
        assert 0.3 < np.mean(lettered) < 0.7
    for p in PATIENTS[:20]:
        whole = [r for r in patient_records(p, 0) if r.subtask == "tumor_position" and not r.organ]
        assert sorted(bool(r.choices) for r in whole) == [False, True]


@pytest.mark.parametrize(
    ("diameters", "other", "expected"),
    [
        ((MEDIUM,), "none", "one lesion, medium"),
        ((SMALL, LARGE), "none", "two lesions, the largest large"),
        ((SMALL,) * 3, "calcification", "three lesions, the largest small"),
    ],
)
def test_description_of_lesions(diameters: tuple[float, ...], other: str, expected: str) -> None:
    lesions = tuple(lesion(6, diameter, other=other) for diameter in diameters)
    end = "" if other == "none" else ", with calcification"
    words = f"{expected}, in the gastric fundus, hypodense, round, ill-defined{end}"
    assert describe(lesions) == words
    assert largest(lesions).diameter_mm == max(diameters)


def test_abnormal_organs_are_known_for_digestive_organs_in_the_scan() -> None:
    sick = make(0, (lesion(PANCREAS),), (finding(METASTASIS, LIVER), finding(NODE, PANCREAS)))
    expected = np.full(57, -1)
    expected[list(DIGESTIVE)] = 0
    expected[[PANCREAS, LIVER]] = 1
    table = abnormal_organs(sick)
    assert table.dtype == np.int8
    np.testing.assert_array_equal(table, expected)
    sick.labels.voxels[sick.labels.voxels == LIVER] = 0
    expected[LIVER] = -1
    np.testing.assert_array_equal(abnormal_organs(sick), expected)
