"""Digital patients, made once for all tests of the scans."""

from pathlib import Path
from typing import NamedTuple

import nibabel as nib
import numpy as np
import pytest

from tumorchain_jax.anatomy.organs import DIGESTIVE
from tumorchain_jax.phantoms import patient
from tumorchain_jax.phantoms.body import Space
from tumorchain_jax.phantoms.patient import Patient, make_patient
from tumorchain_jax.scan.volume import Volume


class Made(NamedTuple):
    """A patient, and the trunk as it was before any disease: HU without noise, and ids."""

    patient: Patient
    space: Space
    sharp: np.ndarray
    healthy: np.ndarray

    @property
    def whole(self) -> bool:
        """Neither the pelvis nor the chest is cut off."""
        bottom = self.space.origin[2]
        top = bottom + self.space.step[2] * self.patient.ct.shape[2]
        return bool(bottom < -170 and top > 170)


@pytest.fixture(scope="session")
def made() -> list[Made]:
    """Patients of the first seeds, until each organ has been ill and one patient healthy."""
    trunks: list[tuple[Space, np.ndarray, np.ndarray]] = []
    draw_trunk = patient.draw_trunk

    def watched(rng, space, spacing, body):
        image, labels, hu = draw_trunk(rng, space, spacing, body)
        trunks.append((space, image.copy(), labels.copy()))
        return image, labels, hu

    patients: list[Patient] = []
    missing = {0, *DIGESTIVE}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(patient, "draw_trunk", watched)
        while missing and len(patients) < 40:
            patients.append(make_patient(len(patients)))
            missing -= {patients[-1].lesions[0].organ if patients[-1].lesions else 0}
    assert not missing
    return [Made(p, *trunk) for p, trunk in zip(patients, trunks, strict=True)]


@pytest.fixture(scope="session")
def patients(made: list[Made]) -> list[Patient]:
    """The same, as anyone gets them."""
    return [each.patient for each in made]


@pytest.fixture(scope="session")
def real(shared_data: Path) -> tuple[Volume, Volume]:
    """CT and label map of a real patient."""
    folder = shared_data / "ct-totalsegmentator"
    ct = nib.load(folder / "example_ct.nii.gz")
    mask = nib.load(folder / "example_seg_fast_force_split.nii.gz")
    return (
        Volume(np.asarray(ct.dataobj, np.float32), ct.affine, "example_ct"),
        Volume(np.asarray(mask.dataobj).astype(np.uint8), mask.affine, "example_seg"),
    )
