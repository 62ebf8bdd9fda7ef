import nibabel as nib
import numpy as np
import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.dice import organ_dice, phantom_dice, scan_dice, summarise
from tumorchain_jax.phantoms.patient import make_patient
from tumorchain_jax.scan.volume import Volume


def test_dice_of_each_organ_that_is_there() -> None:
    truth, found = np.zeros((2, 1, 1, 4), np.uint8)
    truth[0, 0], found[0, 0] = (5, 5, 1, 0), (5, 1, 1, 7)
    assert organ_dice(found, truth) == {1: pytest.approx(2 / 3), 5: pytest.approx(2 / 3)}
    assert organ_dice(truth, truth) == {1: 1.0, 5: 1.0}
    assert organ_dice(np.zeros_like(truth), truth) == {1: 0.0, 5: 0.0}


def test_maps_of_other_grids_are_refused() -> None:
    with pytest.raises(InputError, match=r"label map: grid: found \(2, 2, 2\), expected the truth"):
        organ_dice(np.zeros((2, 2, 2), np.uint8), np.zeros((2, 2, 3), np.uint8))


def test_each_organ_s_mean_is_over_those_who_have_it() -> None:
    patients = [{"liver": 0.5, "spleen": 1.0}, {"liver": 0.7}, {"liver": 0.9}]
    summary = summarise(patients)
    assert list(summary) == ["spleen", "liver"]  # TotalSegmentator's order
    assert (summary["liver"].n, summary["liver"].mean) == (3, pytest.approx(0.7))
    low, high = summary["liver"].ci95
    assert 0.5 <= low < 0.6
    assert 0.8 < high <= 0.9
    assert (summary["spleen"].n, summary["spleen"].ci95) == (1, (1.0, 1.0))
    assert summarise(patients) == summary
    assert list(summarise(patients, {"liver", "colon"})) == ["liver"]
    with pytest.raises(InputError, match=r"label maps: organs: found spleen, liver, expected an"):
        summarise(patients, {"colon"})
    with pytest.raises(InputError, match="organs: found none"):
        summarise([{}])


@pytest.mark.parametrize("relabel", [None, {1: 5, 2: 5}])
def test_real_scans_are_held_against_their_label_maps(tmp_path, relabel) -> None:
    affine = np.diag([3.0, 3.0, 3.0, 1.0])
    ct = np.random.default_rng(0).normal(50, 200, (24, 24, 24)).astype(np.int16)
    truth = np.zeros(ct.shape, np.uint8)
    truth[4:12], truth[12:16], truth[16:18] = (5, 1, 3) if relabel is None else (1, 2, 3)
    for name, voxels in (("ct", ct), ("labels", truth)):
        nib.save(nib.Nifti1Image(voxels, affine), tmp_path / f"{name}.nii.gz")
    files = tmp_path / "ct.nii.gz", tmp_path / "labels.nii.gz"

    def liver_alone(ct: Volume) -> Volume:
        found = np.zeros(ct.shape, np.uint8)
        found[4:16] = 5
        return Volume(found, ct.affine)

    (row,) = scan_dice(liver_alone, [files], relabel)
    if relabel is None:
        assert row == {"liver": pytest.approx(0.8), "spleen": 0, "kidney_left": 0}
    else:
        assert row == {"liver": 1}


def test_digital_patients_are_held_against_their_own_truth() -> None:
    def liver_alone(ct: Volume) -> Volume:
        labels = make_patient(7).labels
        assert ct.source == "digital patient 7"
        return Volume(np.where(labels.voxels == 5, 5, 0), ct.affine)

    (row,) = phantom_dice(liver_alone, [7])
    assert row["liver"] == 1
    assert {value for name, value in row.items() if name != "liver"} == {0.0}
