"""Scans that are no abdominal CT, made from a phantom; and scans that must not be refused."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy import ndimage

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.phantoms.patient import Patient, make_patient
from tumorchain_jax.scan.checks import check_affine, check_ct
from tumorchain_jax.scan.read import read_ct
from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.scope.check import check_labels, check_scan
from tumorchain_jax.scope.coarse import coarse_scan
from tumorchain_jax.scope.findings import Finding


@pytest.fixture(scope="module")
def patient() -> Patient:
    return make_patient(6)  # slices of 3 mm, from the pelvis to the chest


def findings(ct: Volume) -> list[Finding]:
    return check_scan(ct, coarse_scan(ct))


def voxels(change: Callable[[np.ndarray, np.random.Generator], np.ndarray]):
    """A change of the voxels `[R, A, S]` of a scan."""

    def apply(ct: Volume) -> Volume:
        changed = change(ct.voxels, np.random.default_rng(0))
        return replace(ct, voxels=np.asarray(changed, np.float32))

    return apply


def spacing(*factors: float):
    return lambda ct: replace(ct, affine=ct.affine @ np.diag([*factors, 1.0]))


def checkerboard(size: int):
    return voxels(lambda hu, _: np.where((np.indices(hu.shape) // size).sum(0) % 2, 400, -1000))


def ultrasound(hu: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A sector of speckle, 0 to 255, as HU."""
    noise = rng.normal(size=(*hu.shape, 2))
    speckle = ndimage.gaussian_filter(np.linalg.norm(noise, axis=-1), (1, 1, 3))
    rows, columns, _ = np.indices(hu.shape)
    sector = np.abs(rows - hu.shape[0] / 2) < 0.6 * (columns + 5)
    return sector * speckle / speckle.max() * 255 * 8 - 1000


def screw(hu: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    air = rng.normal(-1000, 10, hu.shape)
    air[50:53, 38:41, 40:60] = 3000
    return ndimage.gaussian_filter(air, 0.7)


def limb(hu: np.ndarray, _: np.random.Generator) -> np.ndarray:
    """Two thighs with a bone each."""
    i, j, _k = np.indices(hu.shape)
    thighs = np.full(hu.shape, -1000.0)
    for middle in (0.3, 0.7):
        away = np.hypot(i - middle * hu.shape[0], j - 0.5 * hu.shape[1])
        for radius, value in ((18, -100), (15, 50), (4, 1500), (2, -50)):
            thighs[away < radius] = value
    return thighs + 10 * np.random.default_rng(0).normal(size=hu.shape)


def empty_top(hu: np.ndarray, _: np.random.Generator) -> np.ndarray:
    return np.where(np.arange(hu.shape[2]) < 0.7 * hu.shape[2], hu, -1000)


def repeated(hu: np.ndarray, _: np.random.Generator) -> np.ndarray:
    return hu[:, :, [*range(50), *[50] * 5, *range(55, hu.shape[2])]]


REFUSED = {
    "noise": (voxels(lambda hu, rng: rng.uniform(-1000, 1000, hu.shape)), "noise"),
    "noise, normal": (voxels(lambda hu, rng: rng.normal(0, 400, hu.shape)), "noise"),
    "checkerboard": (checkerboard(1), "noise"),
    "coarse checkerboard": (checkerboard(16), "values"),
    "shuffled slices": (voxels(lambda hu, rng: rng.permutation(hu, 2)), "slices"),
    "one slice repeated": (voxels(lambda hu, _: np.repeat(hu[:, :, 50:51], 99, 2)), "slices"),
    "ultrasound": (voxels(ultrasound), "HU"),
    "air with a screw": (voxels(screw), "body"),
    "thighs": (voxels(limb), "region"),
    "label map": (voxels(lambda hu, _: np.rint(hu / 50) * 50), "values"),
    "halved": (voxels(lambda hu, _: hu / 2), "HU"),
    "doubled": (voxels(lambda hu, _: hu * 2), "HU"),
    "inverted": (voxels(lambda hu, _: -hu), "HU"),
    "clipped at 0": (voxels(lambda hu, _: np.maximum(hu, 0)), "voxels"),
    "clipped at 0 from above": (voxels(lambda hu, _: np.minimum(hu, 0)), "voxels"),
    "not rescaled": (voxels(lambda hu, _: hu + 1024), "voxels"),
    "signed as unsigned": (voxels(lambda hu, _: np.where(hu < 0, hu + 65536, hu)), "voxels"),
    "upside down": (voxels(lambda hu, _: hu[:, :, ::-1]), "orientation"),
    "back to front": (voxels(lambda hu, _: hu[:, ::-1]), "orientation"),
    "turned half round": (voxels(lambda hu, _: hu[::-1, ::-1]), "orientation"),
    "spacing in cm": (spacing(0.1, 0.1, 0.1), "body"),
    "spacing six-fold": (spacing(6, 6, 6), "body"),
    "spacing in metres": (spacing(1e-3, 1e-3, 1e-3), "affine"),
    "spacing in microns": (spacing(1e3, 1e3, 1e3), "affine"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_scan_is_refused(patient: Patient, case: str) -> None:
    change, field = REFUSED[case]
    ct = change(patient.ct)
    try:
        check_affine(ct.source, ct.affine)
        check_ct(ct)
        fields = [finding.field for finding in findings(ct) if finding.refuse]
    except InputError as error:
        fields = [error.field]
    assert field in fields


WARNED = {
    "mirrored": (voxels(lambda hu, _: hu[::-1]), "orientation"),
    "empty slices on top": (voxels(empty_top), "body"),
    "slices repeated": (voxels(repeated), "slices"),
    "slices missing": (voxels(lambda hu, _: np.delete(hu, range(60, 80), 2)), "slices"),
    "halves swapped": (voxels(lambda hu, _: np.roll(hu, 40, 2)), "slices"),
    "8 bits": (voxels(lambda hu, _: np.rint(hu / 12) * 12), "values"),
    "crop": (voxels(lambda hu, _: hu[25:75, 20:55]), "body"),
    "thin slab": (voxels(lambda hu, _: hu[:, :, 40:55]), "body"),
}


@pytest.mark.parametrize("case", WARNED)
def test_scan_is_warned_of(patient: Patient, case: str) -> None:
    change, field = WARNED[case]
    assert field in [
        finding.field for finding in findings(change(patient.ct)) if not finding.refuse
    ]


@pytest.mark.parametrize(("hu", "refused"), [(-1000.0, False), (-800.0, True)])
def test_bowel_gas_is_not_taken_for_lungs(patient: Patient, hu: float, refused: bool) -> None:
    """Upper abdomen alone, with half a litre of gas low in it, or of what is as dense as a lung."""
    lungs = np.isin(patient.labels.voxels, range(10, 15)).any(axis=(0, 1)).nonzero()[0]
    voxels = patient.ct.voxels[:, :, : lungs[0]].copy()
    middle = np.array(voxels.shape) * (0.5, 0.6, 0.25)
    offsets = np.indices(voxels.shape).T - middle
    voxels[np.linalg.norm(offsets * patient.ct.spacing, axis=-1).T < 49] = hu
    fields = [f.field for f in findings(replace(patient.ct, voxels=voxels)) if f.refuse]
    assert ("orientation" in fields) == refused


LATER = [pytest.param(first, marks=pytest.mark.system(haste=True)) for first in (10, 20, 30)]


@pytest.mark.parametrize("first", [0, *LATER])
def test_phantoms_are_not_refused(first: int) -> None:
    warned = 0
    for seed in range(first, first + 10):
        one = make_patient(seed)
        coarse = coarse_scan(one.ct)
        found = [*check_scan(one.ct, coarse), *check_labels(one.labels, coarse)]
        assert not [str(finding) for finding in found if finding.refuse], seed
        warned += bool(found)
    assert warned <= 1


def test_prone_feet_first_and_other_axes_are_no_fault(patient: Patient) -> None:
    hu, affine = patient.ct.voxels, patient.ct.affine
    turned = affine @ np.array([[0, 0, -1, hu.shape[0] - 1], [0, -1, 0, hu.shape[1] - 1],
                                [1, 0, 0, 0], [0, 0, 0, 1]])  # fmt: skip
    ct = Volume(hu.transpose(2, 1, 0)[:, ::-1, ::-1], turned)
    assert findings(ct) == []


def test_real_abdomen_is_not_refused(shared_data) -> None:
    assert findings(read_ct(shared_data / "ct-crlm" / "CRLM-CT-1006.nii.gz")) == []


@pytest.mark.parametrize("case", ["024", "025", "032", "042"])
def test_real_limb_is_refused(shared_data, case: str) -> None:
    found = findings(read_ct(shared_data / "ct-sts-ibsi" / f"STS_{case}" / "CT_image.nii.gz"))
    assert found[0].refuse
    assert "body" in {finding.field for finding in found}
