"""A study: a DICOM series with two questions, its prior, and results as DICOM objects."""

import csv
import json
import shutil
from pathlib import Path

import nibabel as nib
import numpy as np
import pydicom
import pytest
from dicom_series import thinned, write_series
from scipy.spatial.transform import Rotation

from tumorchain_jax.cli.main import main
from tumorchain_jax.phantoms.patient import Patient, make_patient
from tumorchain_jax.scan.registration import register, resample_onto
from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.segmentation.label_file import write_labels

pytest.importorskip("SimpleITK")
QUESTIONS = ("Where is the tumour in this CT?", "Is the liver normal?")


@pytest.fixture(scope="module")
def patient() -> Patient:
    return make_patient(2)


@pytest.fixture(scope="module")
def motion() -> np.ndarray:
    """A point of the prior -> the same place in the scan, in mm."""
    moved = np.eye(4)
    moved[:3, :3] = Rotation.from_euler("xyz", [2, 3, 6], degrees=True).as_matrix()
    moved[:3, 3] = 12, -8, 15
    return moved


def test_registration_finds_a_known_motion(patient: Patient, motion: np.ndarray) -> None:
    """To 1.5 mm everywhere in the scan, at a quarter of its voxels along each axis in-plane."""
    coarse = Volume(patient.ct.voxels[::2, ::2, ::4], patient.ct.affine @ np.diag([2, 2, 4, 1.0]))
    prior = Volume(resample_onto(coarse, coarse, motion, -1000.0), coarse.affine)
    found = register(coarse, prior)
    corners = np.array([*np.ndindex(2, 2, 2)]) * (np.array(coarse.shape) - 1)
    points = coarse.affine @ np.c_[corners, np.ones(8)].T
    apart = np.linalg.norm((motion @ found.to_prior @ points - points)[:3], axis=0)
    assert apart.max() < 1.5
    assert found.degrees == pytest.approx(7.0, abs=0.3)


@pytest.mark.system(haste=True)
@pytest.mark.usefixtures("private_cache")
def test_series_with_two_questions_and_a_prior(
    patient: Patient, motion: np.ndarray, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("highdicom")
    ct, organs = (thinned(each) for each in (patient.ct, patient.labels))
    scan = write_series(ct, tmp_path / "now")
    labels, earlier = tmp_path / "now.nii.gz", tmp_path / "prior.nii.gz"
    write_labels(labels, organs, {}, "a test")
    moved = resample_onto(organs, ct, motion, 0.0)
    moved[moved == 1] = 0  # the spleen was taken out since then
    prior = Volume(resample_onto(ct, ct, motion, -1000.0), ct.affine)
    image = nib.Nifti1Image(prior.voxels.astype(np.int16), ct.affine)
    nib.save(image, tmp_path / "prior_ct.nii.gz")
    write_labels(earlier, Volume(moved, ct.affine), {}, "a test")
    words = ["-i", scan, "-m", labels, "-o", tmp_path / "out", "--dicom"]
    words += ["--compare", tmp_path / "prior_ct.nii.gz", "--compare-mask", earlier]
    asked = [word for question in QUESTIONS for word in ("-q", question)]
    assert main(["analyze", *map(str, words), *asked, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [each["question"] for each in printed] == [*QUESTIONS]
    for number, record in enumerate(printed, start=1):
        folder = tmp_path / "out" / f"question-{number}"
        assert json.loads((folder / "report.json").read_text()) == record
        changes = json.loads((folder / "comparison.json").read_text())
        assert changes["registration"]["degrees"] == pytest.approx(7.0, abs=0.3)
        liver = changes["organs"]["liver"]
        assert liver["scan_ml"] == pytest.approx(record["organs"]["liver"]["volume_ml"])
        kidney = changes["organs"]["kidney_right"]
        assert kidney["percent"] == pytest.approx(0, abs=2)
        assert kidney["dice"] > 0.95
        spleen = changes["organs"]["spleen"]
        assert (spleen["prior_ml"], spleen["percent"], spleen["dice"]) == (None, None, 0)
        report = pydicom.dcmread(folder / "report.dcm")
        seg = pydicom.dcmread(folder / "segmentation.dcm")
        assert report.PatientID == seg.PatientID == "T-0042"
        assert {each.SegmentLabel for each in seg.SegmentSequence} > {"liver", "spleen"}
        assert all(each.SegmentAlgorithmType == "SEMIAUTOMATIC" for each in seg.SegmentSequence)
        assert np.ptp(pydicom.dcmread(folder / "key-image-1.dcm").pixel_array) > 100
    with (tmp_path / "out" / "summary.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["question"] for row in rows] == [*QUESTIONS]
    volume = printed[0]["organs"]["liver"]["volume_ml"]
    assert float(rows[0]["liver_ml"]) == pytest.approx(volume, abs=1e-3)

    # Only what is missing is asked again.
    shutil.rmtree(tmp_path / "out" / "question-2")
    assert main(["analyze", *map(str, words[:6]), *asked, "--resume"]) == 0
    assert "1 already done" in capsys.readouterr().out
    assert (tmp_path / "out" / "question-2" / "report.html").is_file()


def test_comparison_of_several_scans_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a.nii.gz", "b.nii.gz"):
        (tmp_path / "scans").mkdir(exist_ok=True)
        (tmp_path / "scans" / name).touch()
    words = ["analyze", "-i", str(tmp_path / "scans"), "-o", str(tmp_path / "out"), "--compare"]
    assert main([*words, str(tmp_path / "scans" / "a.nii.gz")]) == 2
    assert "--compare: found 2 scans, expected one scan" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
