from collections import Counter

import numpy as np
import pytest
from scipy import ndimage
from scipy.spatial import ConvexHull
from scipy.spatial.distance import pdist

from tumorchain_jax.anatomy.organs import DIGESTIVE, LIVER, display_name
from tumorchain_jax.anatomy.staging import Extent, stage
from tumorchain_jax.anatomy.substructures import SEGMENTS, segment_at, segment_map
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.phantoms import patient as patient_module
from tumorchain_jax.phantoms import sources
from tumorchain_jax.phantoms.anatomy import Anatomy, Tissue
from tumorchain_jax.phantoms.incidental import LOOK_ALIKE, METASTASIS, NODE, WHOLE_SHARE, Finding
from tumorchain_jax.phantoms.lesions import CALCIFICATION, ENHANCEMENT, SIMPLE_STYLE, THICKENING
from tumorchain_jax.phantoms.patient import Patient, make_patient, truth
from tumorchain_jax.phantoms.realistic_findings import ENLARGED_FROM_MM, LOBES, NORMAL_NODE
from tumorchain_jax.phantoms.realistic_lesions import draw_realistic_plan
from tumorchain_jax.phantoms.records import patient_records
from tumorchain_jax.phantoms.report_text import free_text
from tumorchain_jax.phantoms.settings import PatientSettings
from tumorchain_jax.phantoms.tissue import NO_PHASE, PHASE_ODDS, draw_tissue_hu
from tumorchain_jax.scan.volume import Volume

REALISTIC = PatientSettings("realistic")
PATIENTS = 12


@pytest.fixture(scope="module")
def drawn() -> list[tuple[Patient, Anatomy]]:
    """Patients with their healthy anatomies."""
    anatomies: list[Anatomy] = []

    def watched(rng: np.random.Generator, found: sources.Sources) -> Anatomy:
        anatomies.append(sources.draw_anatomy(rng, found))
        return anatomies[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(patient_module, "draw_anatomy", watched)
        patients = [make_patient(seed, REALISTIC) for seed in range(77, 77 + PATIENTS)]
    return list(zip(patients, anatomies, strict=True))


@pytest.fixture(scope="module")
def realistic(drawn: list[tuple[Patient, Anatomy]]) -> list[Patient]:
    return [patient for patient, _ in drawn]


def spacing(patient: Patient) -> np.ndarray:
    return patient.ct.affine.diagonal()[:3]


def components(mask: np.ndarray) -> int:
    return int(ndimage.label(mask, np.ones((3, 3, 3)))[1])


@pytest.mark.system(haste=True)
def test_same_seed_gives_the_same_bytes(realistic: list[Patient]) -> None:
    first, again = realistic[0], make_patient(realistic[0].seed, REALISTIC)
    assert truth(first) == truth(again)
    for name in ("ct", "labels", "lesion_map", "other_map"):
        np.testing.assert_array_equal(getattr(first, name).voxels, getattr(again, name).voxels)


def test_ct_is_whole_hu_that_a_scanner_stores(realistic: list[Patient]) -> None:
    for patient in realistic:
        hu = patient.ct.voxels
        assert hu.dtype == np.float32
        np.testing.assert_array_equal(hu, np.rint(hu))
        assert -3024 <= hu.min() < -900
        assert hu.max() <= 3071


def test_lesions_are_as_many_and_as_long_as_their_masks(realistic: list[Patient]) -> None:
    lesions = 0
    for patient in realistic:
        numbers = np.unique(patient.lesion_map.voxels).tolist()
        assert numbers == list(range(len(patient.lesions) + 1))
        for number, lesion in enumerate(patient.lesions, 1):
            lesions += 1
            index = np.argwhere(patient.lesion_map.voxels == number)
            assert len(index) == lesion.voxels
            assert set(patient.labels.voxels[tuple(index.T)].tolist()) == {lesion.organ}
            points = index * spacing(patient)
            try:
                points = points[ConvexHull(points).vertices]
            except Exception:  # a lesion in one plane has no hull
                assert len(points) < 100
            between_centres = pdist(points).max() if len(points) > 1 else 0.0
            voxel = float(np.linalg.norm(spacing(patient)))
            assert between_centres <= lesion.diameter_mm + 0.5 <= between_centres + voxel + 1
    assert lesions >= PATIENTS / 2


def test_segments_and_centres_follow_from_geometry(drawn: list[tuple[Patient, Anatomy]]) -> None:
    for patient, anatomy in drawn:
        healthy = Volume(anatomy.labels, anatomy.affine, "healthy")
        for number, lesion in enumerate(patient.lesions, 1):
            index = np.argwhere(patient.lesion_map.voxels == number).mean(0)
            centre = index * spacing(patient) + patient.ct.affine[:3, 3]
            np.testing.assert_allclose(lesion.centre_mm, centre, atol=1e-3)
            parts = segment_map(healthy, lesion.organ)
            part = segment_at(parts, patient.ct.affine, lesion.centre_mm)
            assert lesion.segment == SEGMENTS[lesion.organ][part - 1]


def test_density_is_that_of_the_image(drawn: list[tuple[Patient, Anatomy]]) -> None:
    compared = 0
    for patient, anatomy in drawn:
        clear = (patient.lesion_map.voxels == 0) & (patient.other_map.voxels == 0)
        for number, lesion in enumerate(patient.lesions, 1):
            assert (lesion.contrast_hu > 0) == (lesion.density == "hyperdense")
            own = patient.lesion_map.voxels == number
            if lesion.other in (CALCIFICATION, ENHANCEMENT, THICKENING) or own.sum() < 20:
                continue
            wall = (anatomy.labels == lesion.organ) & (anatomy.tissue == Tissue.ORGAN) & clear
            difference = np.median(patient.ct.voxels[own]) - np.median(patient.ct.voxels[wall])
            assert (difference > 0) == (lesion.density == "hyperdense")
            compared += 1
    assert compared >= 3


def short_axis_mm(patient: Patient, finding: Finding) -> float:
    """Diameter of the finding's own component, from its volume: of a ball that is all there."""
    mask, _ = ndimage.label(patient.other_map.voxels == finding.kind, np.ones((3, 3, 3)))
    seat = np.rint((np.array(finding.centre_mm) - patient.ct.affine[:3, 3]) / spacing(patient))
    number = mask[tuple(seat.astype(int))]
    assert number, finding
    return float((6 / np.pi * (mask == number).sum() * spacing(patient).prod()) ** (1 / 3))


def test_findings_are_as_many_and_as_large_as_their_masks(realistic: list[Patient]) -> None:
    for patient in realistic:
        other = patient.other_map.voxels
        assert not np.any((other > 0) & (patient.lesion_map.voxels > 0))
        kinds = Counter(finding.kind for finding in patient.findings)
        for kind in (METASTASIS, NODE, LOOK_ALIKE):
            assert components(other == kind) == kinds[kind]
        for finding in patient.findings:
            if finding.kind == METASTASIS:
                measured, voxel = short_axis_mm(patient, finding), spacing(patient).max()
                assert WHOLE_SHARE ** (1 / 3) * finding.diameter_mm - voxel < measured
                assert measured < finding.diameter_mm + voxel


def test_nodes_of_normal_size_decide_no_stage(realistic: list[Patient]) -> None:
    nodes = [f for patient in realistic for f in patient.findings if f.kind == NODE]
    normal = [f for patient in realistic for f in patient.findings if f.name == NORMAL_NODE]
    assert nodes
    assert normal
    assert min(f.diameter_mm for f in nodes) >= ENLARGED_FROM_MM > 6
    assert max(f.diameter_mm for f in normal) < ENLARGED_FROM_MM
    assert {f.kind for f in normal} == {LOOK_ALIKE}


def test_stage_follows_from_the_maps(realistic: list[Patient]) -> None:
    staged = set()
    lung_of = {lobe: "lungs" for lobes in LOBES.values() for lobe in lobes}
    for patient in realistic:
        if not patient.lesions:
            assert truth(patient)["stage"] is None
            continue
        other, labels = patient.other_map.voxels, patient.labels.voxels
        sites = {lung_of.get(id_, id_) for id_ in np.unique(labels[other == METASTASIS]).tolist()}
        expected = Extent(
            patient.lesions[0].organ,
            tuple(lesion.diameter_mm for lesion in patient.lesions),
            patient.extent.depth,
            nodes=components(other == NODE),
            metastases=frozenset(11 if site == "lungs" else site for site in sites),
        )
        assert stage(expected) == truth(patient)["stage"]
        answers = {r.subtask: r.answer for r in patient_records(patient, 0)}
        t, n, m = stage(expected)
        assert answers["node"] == n
        assert answers.get("metastasis", m) == m
        staged.add((t, n, m))
    assert len(staged) > 3


def test_records_answer_look_alikes_as_benign(realistic: list[Patient]) -> None:
    told = 0
    for patient in realistic:
        records = patient_records(patient, 0)
        ill = {lesion.organ for lesion in patient.lesions}
        ill |= {f.organ for f in patient.findings if f.kind == METASTASIS}
        benign = {f.organ for f in patient.findings if f.kind == LOOK_ALIKE} & {*DIGESTIVE}
        for record in records:
            if record.subtask == "tumor_position" and record.organ:
                assert record.answer == ("yes" if record.organ in ill else "no")
            if record.subtask == "count":
                assert record.answer == str(len(patient.lesions))
        for organ in benign - ill:
            name, text = display_name(organ), " ".join(r.reasoning for r in records)
            assert f"{name} looks normal" not in text
            told += f"{name} shows only benign findings: " in text
        assert free_text(patient, 0)
    assert told


def test_records_of_a_scan_without_digestive_organs(realistic: list[Patient]) -> None:
    healthy = next(patient for patient in realistic if not patient.lesions)
    records = patient_records(healthy, 0, visible=(25, 77, 78))
    assert {r.subtask for r in records} == {"tumor_position", "cot_report"}
    assert {r.answer for r in records} == {"none", "no tumour"}


def test_tissues_are_in_the_order_that_every_ct_has(realistic: list[Patient]) -> None:
    for patient in realistic:
        labels, hu = patient.labels.voxels, patient.ct.voxels
        clear = (patient.lesion_map.voxels == 0) & (patient.other_map.voxels == 0)

        def median(ids: tuple[int, ...], labels=labels, hu=hu, clear=clear) -> float:
            voxels = hu[np.isin(labels, ids) & clear]
            return float(np.median(voxels)) if len(voxels) > 100 else np.nan

        lung, muscle, bone = median((10, 11, 12, 13, 14)), median((86, 87)), median((29, 30, 31))
        assert np.isnan(lung) or lung < -500
        assert np.isnan(muscle) or 0 < muscle < 130
        assert np.isnan(muscle + bone) or bone > muscle


def test_phases_and_means_are_drawn_over_their_ranges() -> None:
    drawn = [draw_tissue_hu(np.random.default_rng(seed)) for seed in range(300)]
    assert {hu.phase for hu in drawn} == {*PHASE_ODDS, NO_PHASE}

    def aorta(phase: str) -> float:
        return float(np.mean([hu.mean[52] for hu in drawn if hu.phase == phase]))

    assert aorta("arterial") > 250 > aorta("portal venous") > aorta("delayed") > 100
    assert 30 < aorta("non-contrast") < 60
    liver = np.array([hu.mean[LIVER] for hu in drawn])
    assert liver.min() < 30
    assert liver.max() > 150


def test_plans_are_small_and_large_faint_and_conspicuous() -> None:
    hu = dict.fromkeys(DIGESTIVE, 100.0)
    plans = [draw_realistic_plan(np.random.default_rng(s), DIGESTIVE, hu) for s in range(600)]
    largest = np.array([plan.diameters_mm[0] for plan in plans])
    assert largest.min() >= 8
    assert largest.max() <= 100
    assert 20 < np.median(largest) < 32  # of a log-uniform draw; the middle of the range is 54
    contrast = np.array([abs(plan.contrast_hu) for plan in plans])
    assert contrast.min() >= 20
    assert contrast.max() <= 120
    for trait in ("density", "shape", "border", "depth", "strands"):
        assert len({getattr(plan, trait) for plan in plans}) > 1
    dead = [plan for plan in plans if plan.dead_share]
    assert dead
    assert {plan.density for plan in dead} == {"hypodense"}


def test_hypodense_tumours_are_no_cysts() -> None:
    dark = dict.fromkeys(DIGESTIVE, 25.0)
    plans = [draw_realistic_plan(np.random.default_rng(s), DIGESTIVE, dark) for s in range(50)]
    assert {plan.density for plan in plans} == {"hyperdense"}


def test_settings_that_cannot_be_are_refused(tmp_path) -> None:
    for kind, folder, expected in (
        ("real", "", "simple or realistic or conspicuous or mixed"),
        ("simple", str(tmp_path), "expected none"),
        ("realistic", str(tmp_path / "nowhere"), "a folder"),
    ):
        with pytest.raises(InputError) as error:
            PatientSettings(kind, folder)
        assert expected in str(error.value)
    with pytest.raises(InputError, match="label maps"):
        PatientSettings("realistic", str(tmp_path)).facts()
    assert PatientSettings().facts() == {}
    assert REALISTIC.facts() == {"kind": "realistic", "anatomies": "none"}


def test_mixed_patients_are_one_of_three_kinds_by_seed() -> None:
    mixed = PatientSettings("mixed")
    assert [mixed.kind_of(seed) for seed in range(4)] == [
        "simple", "realistic", "conspicuous", "simple",
    ]  # fmt: skip
    for seed, kind in ((3, "simple"), (8, "conspicuous")):
        one, other = make_patient(seed, mixed), make_patient(seed, PatientSettings(kind))
        np.testing.assert_array_equal(one.ct.voxels, other.ct.voxels)
        assert one.lesions == other.lesions


def test_conspicuous_tumours_are_of_the_simple_kind_in_realistic_anatomy() -> None:
    settings = PatientSettings("conspicuous")
    patients = [make_patient(seed, settings) for seed in range(20, 26)]
    lesions = [lesion for patient in patients for lesion in patient.lesions]
    assert lesions
    assert all(patient.anatomy for patient in patients)
    for lesion in lesions:
        assert lesion.size_limits_mm == SIMPLE_STYLE.size_limits_mm
        assert abs(lesion.contrast_hu) > 50
