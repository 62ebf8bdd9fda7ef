"""Label maps that cannot belong to the scan, made from phantoms."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.phantoms.patient import Patient, make_patient
from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.scope.check import check_labels
from tumorchain_jax.scope.coarse import coarse_scan
from tumorchain_jax.scope.findings import FORCE_HINT, Finding, enforce

# TotalSegmentator v2 ids of the phantoms -> the ids of version 1.
V1 = {
    **{1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6, 7: 10, 11: 14, 14: 17, 15: 42, 18: 55, 19: 56, 20: 57},
    **{21: 104, 25: 92, 51: 44, 52: 7, 63: 8, 77: 90, 78: 91, 86: 100, 87: 101, 88: 102, 89: 103},
    **{27 + n: 18 + n for n in range(24)},
    **{92 + n: 58 + n for n in range(24)},
}


@pytest.fixture(scope="module")
def patients() -> list[Patient]:
    return [make_patient(seed) for seed in (6, 2)]


def findings(labels: np.ndarray, patient: Patient) -> list[Finding]:
    volume = Volume(labels.astype(np.uint8), patient.ct.affine)
    return check_labels(volume, coarse_scan(patient.ct))


def of_another(patient: Patient, other: Patient) -> np.ndarray:
    """Another patient's map, stretched onto the scan's grid."""
    index = [
        np.linspace(0, have - 1, want).astype(int)
        for have, want in zip(other.labels.shape, patient.ct.shape, strict=True)
    ]
    return other.labels.voxels[np.ix_(*index)]


def version_1(labels: np.ndarray) -> np.ndarray:
    lookup = np.zeros(256, np.uint8)
    lookup[list(V1)] = list(V1.values())
    return lookup[labels]


def blocks(labels: np.ndarray) -> np.ndarray:
    coarse = np.random.default_rng(0).integers(0, 118, [size // 8 + 1 for size in labels.shape])
    return coarse[tuple(np.indices(labels.shape) // 8)]


def liver_and_tumour(labels: np.ndarray) -> np.ndarray:
    liver = labels == 5
    middle = np.argwhere(liver).mean(0)
    apart = np.linalg.norm(np.indices(labels.shape).T - middle, axis=-1).T
    return liver + (liver & (apart < 6))


CHANGES: dict[str, tuple[Callable[[np.ndarray], np.ndarray], str]] = {
    "mirrored": (lambda labels: labels[::-1], "orientation"),
    "back to front": (lambda labels: labels[:, ::-1], "orientation"),
    "upside down": (lambda labels: labels[:, :, ::-1], "orientation"),
    "displaced": (lambda labels: np.roll(labels, 8, 0), "mask"),
    "version 1": (version_1, "ids"),
    "binary": (lambda labels: labels > 0, "ids"),
    "binary liver": (lambda labels: labels == 5, "ids"),
    "liver and tumour": (liver_and_tumour, "ids"),
    "random": (lambda labels: np.random.default_rng(0).integers(0, 118, labels.shape), "mask"),
    "random blocks": (blocks, "mask"),
}


@pytest.mark.parametrize("case", CHANGES)
def test_labels_are_refused(patients: list[Patient], case: str) -> None:
    change, field = CHANGES[case]
    for patient in patients:
        found = findings(change(patient.labels.voxels), patient)
        assert found[0].refuse
        assert field in {finding.field for finding in found}


def test_labels_of_another_patient_are_refused(patients: list[Patient]) -> None:
    for patient, other in zip(patients, patients[::-1], strict=True):
        assert findings(of_another(patient, other), patient)[0].refuse


def test_labels_shifted_by_one_are_found(patients: list[Patient]) -> None:
    for patient in patients:
        labels = patient.labels.voxels
        fields = {finding.field for finding in findings(labels + (labels > 0), patient)}
        assert {"orientation", "volumes"} <= fields


@pytest.mark.parametrize("side", ["right", "left"])
def test_lung_that_a_narrow_image_cuts_is_inside_the_body(
    patients: list[Patient], side: str
) -> None:
    for patient in patients:
        lungs = np.isin(patient.labels.voxels, range(10, 15)).any(axis=(1, 2)).nonzero()[0]
        within = np.s_[lungs[0] + 10 :] if side == "right" else np.s_[: lungs[-1] - 10]
        affine = patient.ct.affine.copy()
        affine[:3, 3] += affine[:3, 0] * (within.start or 0)
        ct = Volume(patient.ct.voxels[within], affine)
        labels = Volume(patient.labels.voxels[within], affine)
        coarse = coarse_scan(ct)
        assert not check_labels(labels, coarse)
        assert coarse.trunk[coarse.hu < -980].mean() < 0.02, "the air around stays outside"


def test_labels_of_air_are_refused(patients: list[Patient]) -> None:
    for patient in patients:
        found = findings(np.where(patient.ct.voxels < -900, 5, 0), patient)
        assert "outside the body" in "".join(map(str, found))


@pytest.mark.parametrize("axis", range(3), ids=["mirrored", "back to front", "upside down"])
def test_scan_and_labels_turned_together_are_refused(patients: list[Patient], axis: int) -> None:
    for patient in patients:
        ct = replace(patient.ct, voxels=np.flip(patient.ct.voxels, axis))
        labels = Volume(np.flip(patient.labels.voxels, axis), ct.affine)
        (finding,) = check_labels(labels, coarse_scan(ct))
        assert finding.refuse
        assert finding.field == "orientation"


def test_spacing_along_the_body_is_checked_by_the_vertebrae(patients: list[Patient]) -> None:
    for patient in patients:
        affine = patient.ct.affine @ np.diag([1, 1, 6, 1])
        ct, labels = replace(patient.ct, affine=affine), replace(patient.labels, affine=affine)
        found = check_labels(labels, coarse_scan(ct))
        assert {"spacing", "volumes"} <= {finding.field for finding in found if finding.refuse}


@pytest.mark.parametrize("organs", [(1,), (5,), (2, 3), (7, 20), range(27, 36), ()])
def test_part_of_the_organs_is_no_fault(patients: list[Patient], organs) -> None:
    for patient in patients:
        labels = patient.labels.voxels
        found = findings(np.where(np.isin(labels, list(organs)), labels, 0), patient)
        assert not [str(finding) for finding in found if finding.refuse]
        assert len(found) == (organs == (1,))  # id 1 alone may be a binary mask


def test_findings_are_enforced_in_one_line() -> None:
    refuse = Finding(True, "noise", "noise", "a scan", "give another")
    warn = Finding(False, "body", "a crop", "a body", "give it whole")
    assert enforce("ct.nii", [warn]).warnings == (str(warn),)
    with pytest.raises(InputError) as caught:
        enforce("ct.nii", [refuse, refuse, warn])
    expected = (
        f"ct.nii: noise: found noise (and 1 more), expected a scan; give another, or {FORCE_HINT}"
    )
    assert str(caught.value) == expected
    assessed = enforce("ct.nii", [refuse, warn], force=True)
    assert (assessed.warnings, assessed.forced) == ((str(warn),), (str(refuse),))
    with pytest.raises(InputError, match=r"give another$"):
        enforce("ct.nii", [refuse], hint="")
