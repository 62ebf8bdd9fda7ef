import json
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from tumorchain_jax.cli.main import main
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.phantoms import folder as folder_module
from tumorchain_jax.phantoms.folder import Written, write_phantom_folders
from tumorchain_jax.phantoms.patient import Patient, make_patient
from tumorchain_jax.phantoms.report_text import free_text
from tumorchain_jax.phantoms.settings import PatientSettings

FILES = {
    "ct.nii.gz", "labels.nii.gz", "lesions.nii.gz", "others.nii.gz", "truth.json", "report.txt",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two patients."""
    path = tmp_path_factory.mktemp("phantoms") / "a" / "b"
    assert write_phantom_folders(path, 7, 2).made == 2
    return path


def test_each_patient_has_a_folder_of_its_own(folder: Path) -> None:
    assert {each.name for each in folder.iterdir()} == {"phantom-7", "phantom-8"}
    for seed in (7, 8):
        own = folder / f"phantom-{seed}"
        assert {each.name for each in own.iterdir()} == FILES
        patient = make_patient(seed)
        found = np.asarray(nib.load(own / "ct.nii.gz").dataobj)
        assert np.array_equal(found, patient.ct.voxels)
        assert json.loads((own / "truth.json").read_text())["seed"] == seed
        assert (own / "report.txt").read_text() == free_text(patient, seed)


def test_what_is_done_is_kept_and_what_is_half_done_is_made_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def watched(seed: int, settings: PatientSettings) -> Patient:
        made.append(seed)
        return make_patient(seed, settings)

    monkeypatch.setattr(folder_module, "make_patient", watched)
    report = folder / "phantom-8" / "report.txt"
    text = report.read_text()
    report.unlink()
    written = write_phantom_folders(folder, 7, 2)
    assert made == [8]
    assert (written.made, written.already_done) == (1, 1)
    assert written.volumes_per_second_per_core > 0
    assert report.read_text() == text
    again = write_phantom_folders(folder, 7, 2)
    assert (again.made, again.already_done, made) == (0, 2, [8])
    assert Written(0, 2, 0.0).volumes_per_second_per_core == 0


def test_command_says_how_fast_it_was(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "phantom-7" / "truth.json").unlink()
    words = ["phantoms", "-o", str(folder), "--seed", "7", "--count", "2"]
    assert main([*words, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["made"], facts["already_done"]) == (1, 1)
    assert facts["volumes_per_second_per_core"] > 0
    assert facts["folder"] == str(folder)
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "0 made" in out
    assert "2 already done" in out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--count", "0"), "--count: found 0"),
        (("--seed", "-1"), "--seed: found -1"),
        ((), "found File exists"),
    ],
)
def test_bad_input_is_refused_in_one_line(
    words: tuple[str, ...], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    assert main(["phantoms", "-o", str(file), *words]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert told in captured.err
    assert captured.out == ""
    assert file.read_text() == "mine"


def test_patients_of_another_kind_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"found simple, expected .*realistic"):
        write_phantom_folders(folder, 7, 2, PatientSettings("realistic"))
    (tmp_path / "phantoms.json").write_text('{"kind": "realistic", "anatomies": "none"}')
    with pytest.raises(InputError, match=r"found .*realistic.*, expected simple"):
        write_phantom_folders(tmp_path, 7, 2)


def test_command_makes_realistic_patients(tmp_path: Path) -> None:
    words = ["phantoms", "-o", str(tmp_path), "--seed", "3", "--count", "1"]
    assert main([*words, "--kind", "realistic"]) == 0
    facts = json.loads((tmp_path / "phantom-3" / "truth.json").read_text())
    assert facts["anatomy"] == "a parametric trunk"
    made = json.loads((tmp_path / "phantoms.json").read_text())
    assert made == {"kind": "realistic", "anatomies": "none"}
    assert main(words) == 2
    assert main([*words, "--anatomies", str(tmp_path)]) == 2
