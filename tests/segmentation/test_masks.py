"""Organ masks, given or segmented as organs are named; the networks here know the truth."""

import numpy as np
import pytest

from tumorchain_jax.anatomy.organs import DIGESTIVE, ORGANS, merge_labels
from tumorchain_jax.phantoms.patient import Patient, make_patient
from tumorchain_jax.scan.preprocess import (
    GridTransform,
    PreprocessConfig,
    preprocess,
    resample_labels,
)
from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.segmentation.factory import NO_SEGMENTER
from tumorchain_jax.segmentation.masks import OrganMasks, given_masks, lazy_masks
from tumorchain_jax.segmentation.total import TOTAL_MODELS, OrganModel, TotalSegmenter

SPLEEN, LIVER, AORTA, LUMBAR = map(ORGANS.index, ("spleen", "liver", "aorta", "lumbar_vertebrae"))


@pytest.fixture(scope="module")
def patient() -> Patient:
    return make_patient(2)


@pytest.fixture(scope="module")
def transform(patient: Patient) -> GridTransform:
    return preprocess(patient.ct, PreprocessConfig((16, 64, 64))).transform


def truth_teller(patient: Patient, ran: list[str]) -> TotalSegmenter:
    """Five models, each of which knows where its organs are."""

    def part(number: int) -> OrganModel:
        ids = np.array(TOTAL_MODELS[number])

        def predict(scan: Volume) -> Volume:
            ran.append(f"part {number}")
            local = np.zeros(118, np.uint8)
            local[ids] = np.arange(1, len(ids) + 1)
            return Volume(local[patient.labels.voxels], scan.affine)

        return OrganModel(f"part {number}", (0, *ids.tolist()), predict, lambda: f"sha {number}")

    return TotalSegmenter("truth", tuple(part(number) for number in TOTAL_MODELS))


def test_given_label_map_is_all_there_is(patient: Patient, transform: GridTransform) -> None:
    labels = Volume(patient.labels.voxels, patient.labels.affine, "/some/where/labels.nii.gz")
    masks = given_masks(patient.ct, labels, transform)
    expected = merge_labels(resample_labels(patient.labels, transform))
    np.testing.assert_array_equal(masks.merged, expected)
    assert (masks.origin.kind, masks.origin.source) == ("given", "labels.nii.gz")
    assert masks.warnings == ()
    assert masks.ensure(range(57)) is masks
    liver = masks.statistics["liver"]
    assert liver.voxels == (patient.labels.voxels == 5).sum()
    vertebrae = np.isin(patient.labels.voxels, range(27, 32))
    assert masks.statistics["lumbar_vertebrae"].voxels == vertebrae.sum()
    assert "background" not in masks.statistics
    assert "brain" not in masks.statistics


def test_models_run_when_their_organs_are_named(patient: Patient, transform: GridTransform) -> None:
    ran: list[str] = []
    none = lazy_masks(patient.ct, transform, truth_teller(patient, ran))
    assert not none.merged.any()
    assert (none.origin.kind, none.statistics, ran) == ("none", {}, [])
    assert "no organ mask" in none.warnings[0]

    digestive = none.ensure(DIGESTIVE)
    assert ran == ["part 291"]
    assert set(np.unique(digestive.merged)) - {0} <= set(range(1, 24))
    assert "spleen" in digestive.statistics, "a part gives all its organs"
    assert "aorta" not in digestive.statistics
    assert digestive.origin.weights == {"part 291": "sha 291"}
    assert digestive.ensure([SPLEEN, LIVER]) is digestive
    assert [part.name for part in digestive.missing_models([LIVER, AORTA])] == ["part 293"]

    more = digestive.ensure([AORTA]).ensure([LIVER, LUMBAR])
    assert ran == ["part 291", "part 293", "part 292"]
    assert more.origin.weights == {f"part {n}": f"sha {n}" for n in (291, 293, 292)}
    assert "truth" in more.warnings[0]

    everything = more.ensure(range(57))
    given = given_masks(patient.ct, patient.labels, transform)
    np.testing.assert_array_equal(everything.merged, given.merged)
    assert everything.statistics == given.statistics
    assert everything.pending is None, "the scan need not be kept"
    assert len(ran) == 5


def test_order_of_naming_does_not_matter(patient: Patient, transform: GridTransform) -> None:
    """Where two models claim a voxel, the later one has it, whichever ran first."""

    def claims(number: int) -> OrganModel:
        ids = (0, TOTAL_MODELS[number][1])
        everywhere = lambda scan: Volume(np.ones(scan.shape, np.uint8), scan.affine)
        return OrganModel(f"part {number}", ids, everywhere, lambda: "")

    two = TotalSegmenter("two", (claims(291), claims(292)))
    none = lazy_masks(patient.ct, transform, two)
    kidney, vertebra = ORGANS.index("kidney_right"), ORGANS.index("vertebrae_S1")
    orders: list[OrganMasks] = [
        none.ensure([kidney]).ensure([vertebra]),
        none.ensure([vertebra]).ensure([kidney]),
        none.ensure([kidney, vertebra]),
    ]
    for masks in orders:
        assert set(np.unique(masks.merged)) <= {0, vertebra}
        assert list(masks.statistics) == ["vertebrae_S1"]


def test_no_segmenter_and_one_that_finds_nothing(
    patient: Patient, transform: GridTransform
) -> None:
    none = lazy_masks(patient.ct, transform, NO_SEGMENTER)
    assert none.ensure(range(57)) is none
    assert none.pending is None
    blind = OrganModel(
        "blind", (0, 5), lambda s: Volume(np.zeros(s.shape, np.uint8), s.affine), str
    )
    masks = lazy_masks(patient.ct, transform, TotalSegmenter("blind", (blind,)))
    assert "found no organ" in masks.ensure(DIGESTIVE).warnings[1]
    assert masks.ensure([SPLEEN]) is masks, "it finds no spleen"
