"""Label maps and lesion maps that cannot be those of the CT."""

from dataclasses import replace

import numpy as np
import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.phantoms.patient import Patient, make_patient
from tumorchain_jax.scan.checks import check_fit, check_lesions
from tumorchain_jax.scan.read import read_ct, read_labels
from tumorchain_jax.scan.volume import Volume


@pytest.fixture(scope="module")
def patients() -> list[Patient]:
    return [make_patient(seed) for seed in range(4)]


def on_grid_of(labels: Volume, ct: Volume) -> Volume:
    """Another patient's map, put in the middle of a CT's grid."""
    voxels = np.zeros(ct.shape, np.uint8)
    sizes = np.minimum(labels.shape, ct.shape)

    def middle(shape: tuple[int, ...]) -> tuple[slice, ...]:
        starts = [(size - part) // 2 for size, part in zip(shape, sizes, strict=True)]
        return tuple(slice(a, a + n) for a, n in zip(starts, sizes, strict=True))

    voxels[middle(ct.shape)] = labels.voxels[middle(labels.shape)]
    return Volume(voxels, ct.affine, "other.nii.gz")


def test_labels_of_the_ct_fit(patients: list[Patient]) -> None:
    for patient in patients:
        check_fit(patient.labels, patient.ct)
        check_fit(replace(patient.labels, voxels=0 * patient.labels.voxels), patient.ct)
        check_lesions(patient.lesion_map, patient.ct)


def test_labels_of_another_scan_are_refused(patients: list[Patient]) -> None:
    for patient, other in zip(patients, [*patients[1:], patients[0]], strict=True):
        with pytest.raises(InputError, match=r"other\.nii\.gz: labels: found .* another scan"):
            check_fit(on_grid_of(other.labels, patient.ct), patient.ct)


@pytest.mark.parametrize("axis", [0, 2], ids=["left and right", "upside down"])
def test_labels_that_are_flipped_are_refused(patients: list[Patient], axis: int) -> None:
    for patient in patients:
        flipped = replace(patient.labels, voxels=np.flip(patient.labels.voxels, axis))
        with pytest.raises(InputError, match="labels: found"):
            check_fit(flipped, patient.ct)


def test_lesion_in_air_is_refused(patients: list[Patient]) -> None:
    ct = patients[0].ct
    voxels = np.zeros(ct.shape, np.uint8)
    voxels[50:54, 40:44, 40:44] = 1
    voxels[:3, :3, :3] = 2
    with pytest.raises(InputError, match=r"m: lesions: found lesion 2 in air .* tissue"):
        check_lesions(Volume(voxels, ct.affine, "m"), ct)


def test_real_labels_fit(shared_data) -> None:
    folder = shared_data / "ct-totalsegmentator"
    for ct_name, *masks in (
        ("example_ct.nii.gz", "example_seg_fast_force_split.nii.gz"),
        ("example_ct_sm.nii.gz", "example_seg.nii.gz", "example_seg_fast.nii.gz"),
        ("example_ct_dicom", "example_seg_dicom.nii.gz"),
    ):
        ct = read_ct(folder / ct_name)
        for mask in masks:
            check_fit(read_labels(folder / mask, ct), ct)
