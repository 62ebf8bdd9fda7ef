import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from array_record.python.array_record_module import ArrayRecordWriter
from nibabel.orientations import axcodes2ornt

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.dataset import read_records
from tumorchain_jax.data.splits import write_split
from tumorchain_jax.evaluation.patients import PaintedScans, Phantoms, StoredPatients
from tumorchain_jax.inference.analyzer import Analyzer
from tumorchain_jax.models.language.tokenizer import Tokenizer
from tumorchain_jax.models.tumorchain.model import NANO
from tumorchain_jax.models.tumorchain.roi_spec import RoiSpec
from tumorchain_jax.models.vision.vit3d.model import ViT3DConfig
from tumorchain_jax.phantoms.dataset import write_phantoms
from tumorchain_jax.phantoms.patient import make_patient
from tumorchain_jax.reasoning.organ_cells import organ_cells
from tumorchain_jax.scan.orientation import canonical, reorient
from tumorchain_jax.scan.preprocess import PreprocessConfig
from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.scope.findings import Finding
from tumorchain_jax.segmentation.total import OrganModel, TotalSegmenter
from tumorchain_jax.weights.model_folder import ModelFolder

CONFIG = PreprocessConfig((8, 16, 16))
TEST = "phantom-2"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three patients on a tiny grid, the last of them for testing."""
    folder = tmp_path_factory.mktemp("data")
    write_phantoms(folder, 0, 3, CONFIG, 512, processes=1)
    write_split(folder, {"train": ["phantom-0", "phantom-1"], "test": [TEST]})
    return folder


@pytest.fixture
def data(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "data"))


@pytest.fixture
def analyzer(scripted: Callable, data: Path) -> Analyzer:
    """Of a model on the same grid, in cells of 4 x 4 x 4."""
    model = scripted(lambda scan, question: "")
    config = replace(NANO, encoder=ViT3DConfig(CONFIG.grid, (4, 4, 4), 16, 32, 1, 1), roi_slots=8)
    model.checkpoint = ModelFolder(config, CONFIG, "all", {}, Tokenizer.load(data), "ab")
    return model


def test_only_test_patients_are_asked_what_their_records_ask(
    analyzer: Analyzer, data: Path
) -> None:
    patients = StoredPatients(analyzer, data)
    ((case, records),) = patients
    assert records == [record for record in read_records(data) if record.patient == TEST]
    assert case.source == TEST
    scan = patients.truth(0)
    np.testing.assert_array_equal(case.scan.image, scan.image.astype(np.float32) / 255)
    expected = organ_cells(scan.labels, RoiSpec((2, 4, 4), offset=4, slots=8, global_tokens=4))
    for found, wanted in zip(case.cells, expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert len(patients) == 1


def test_stored_scan_stands_upright_in_its_pictures(analyzer: Analyzer, data: Path) -> None:
    ((case, _),) = StoredPatients(analyzer, data)
    to_world = case.scan.transform.to_world
    image = case.scan.image
    np.testing.assert_array_equal(canonical(Volume(image, to_world)).voxels, image)
    # As wide as deep, and a trunk's length.
    sides = np.linalg.norm(to_world[:3, :3], axis=0) * CONFIG.grid
    assert sides[1] == sides[2]
    assert 200 < sides[0] < 400


def test_phantoms_are_what_a_data_set_of_their_seeds_stores(analyzer: Analyzer, data: Path) -> None:
    ((stored, records),) = StoredPatients(analyzer, data)
    ((made, own),) = Phantoms(analyzer, 2, 1)
    np.testing.assert_allclose(made.scan.image, stored.scan.image, atol=0.5001 / 255)
    for found, wanted in zip(made.cells, stored.cells, strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert [record.question for record in own] == [record.question for record in records]
    assert (
        Phantoms(analyzer, 2, 1).truth(0).to_bytes()
        == StoredPatients(analyzer, data).truth(0).to_bytes()
    )


def test_scan_that_seems_implausible_is_asked_about_too(
    analyzer: Analyzer, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = Finding(True, "mask", "11% of the organs outside", "at most 5%", "give another")
    monkeypatch.setattr("tumorchain_jax.inference.case.check_labels", lambda *_: [refused])
    ((case, records),) = Phantoms(analyzer, 2, 1)
    assert records
    assert len(case.forced) == 1


def test_predicted_masks_change_what_is_seen_and_not_what_is_asked(analyzer: Analyzer) -> None:
    def predict(scan: Volume) -> Volume:
        labels = np.zeros(scan.shape, np.uint8)
        labels[40:60, 30:50, 80:120] = 1
        return Volume(labels, scan.affine)

    part = OrganModel("box", (0, 5), predict, lambda: "")
    analyzer.segmenter = TotalSegmenter("a box for a liver", (part,))
    ((true, records),) = Phantoms(analyzer, 2, 1)
    ((boxed, same),) = Phantoms(analyzer, 2, 1, predicted=True)
    assert same == records
    assert np.flatnonzero(boxed.cells.valid.any(axis=1)).tolist() == [5]
    assert true.cells.valid.any(axis=1).sum() > 5
    assert boxed.masks is not None
    assert boxed.masks.origin.source == "a box for a liver"
    assert "a box for a liver" in Phantoms(analyzer, 2, 1, predicted=True).source


def test_source_tells_data_sets_apart(analyzer: Analyzer, data: Path) -> None:
    before = StoredPatients(analyzer, data).source
    assert StoredPatients(analyzer, data).source == before
    write_split(data, {"train": ["phantom-0"], "test": ["phantom-1", TEST]})
    assert StoredPatients(analyzer, data).source != before
    assert Phantoms(analyzer, 2, 1).source != Phantoms(analyzer, 1, 2).source


def refusal(analyzer: Analyzer, folder: Path) -> str:
    with pytest.raises(InputError) as error:
        StoredPatients(analyzer, folder)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_empty_folder_is_refused(analyzer: Analyzer, tmp_path: Path) -> None:
    assert "dataset.json: found none" in refusal(analyzer, tmp_path)


def test_folder_without_records_is_refused(analyzer: Analyzer, data: Path) -> None:
    next(data.glob("records-*")).unlink()
    assert "records: found none" in refusal(analyzer, data)


def test_record_of_an_unknown_organ_is_refused(analyzer: Analyzer, data: Path) -> None:
    lines = [record.to_json() for record in read_records(data)]
    lines[1] = json.dumps(json.loads(lines[1]) | {"organ": 57})
    writer = ArrayRecordWriter(str(next(data.glob("records-*"))), "group_size:1")
    for line in lines:
        writer.write(line.encode())
    writer.close()
    assert "arrayrecord[1]: organ: found 57, expected a label 0 to 56" in refusal(analyzer, data)


def test_split_without_test_patients_is_refused(analyzer: Analyzer, data: Path) -> None:
    write_split(data, {"train": ["phantom-0", "phantom-1", TEST], "test": ["nobody"]})
    assert "split.json: test: found none of" in refusal(analyzer, data)


def test_split_that_leaks_is_refused(analyzer: Analyzer, data: Path) -> None:
    write_split(data, {"train": ["phantom-0", TEST], "test": ["phantom-1", TEST]})
    assert f"{TEST} in both lists" in refusal(analyzer, data)


def test_scans_of_another_window_are_refused(analyzer: Analyzer, data: Path) -> None:
    manifest = json.loads((data / "dataset.json").read_text())
    manifest["preprocess"]["width"] = 350.0
    (data / "dataset.json").write_text(json.dumps(manifest))
    line = refusal(analyzer, data)
    assert "dataset.json: preprocess: found" in line
    assert "350.0" in line


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Stands in for a real CT and its label map; its axes point left and back."""
    folder = tmp_path_factory.mktemp("real")
    patient = next(p for p in map(make_patient, range(9)) if not p.lesions)
    paths = folder / "ct.nii.gz", folder / "labels.nii.gz"
    for path, volume in zip(paths, (patient.ct, patient.labels), strict=True):
        flipped = reorient(volume, axcodes2ornt(("L", "P", "S")))
        image = nib.Nifti1Image(np.asarray(flipped.voxels, np.int16), flipped.affine)
        nib.save(image, path)
    return paths


@pytest.mark.system(haste=True)
def test_tumours_are_painted_into_real_scans_one_at_a_time(
    analyzer: Analyzer, real: tuple[Path, Path]
) -> None:
    patients = PaintedScans(analyzer, [real, real], 5, 3)
    assert len(patients) == 6
    asked = list(patients)
    names = {record.patient for _, records in asked for record in records}
    assert names == {f"ct.nii.gz with tumour {seed}" for seed in (5, 6, 7)}
    for number, (case, records) in enumerate(asked):
        scan = patients.truth(number)
        assert scan.lesions.any()
        np.testing.assert_allclose(case.scan.image, scan.image / 255, atol=1 / 255)
        subtasks = {record.subtask for record in records}
        assert {"tumor_position", "segment_localization", "count", "cot_report"} <= subtasks
        # What only the rest of a digital patient could tell is not asked.
        assert not subtasks & {"tumor", "node", "metastasis"}
        assert not any("stage" in record.reasoning for record in records)


def test_label_map_of_another_scan_is_refused(
    analyzer: Analyzer, real: tuple[Path, Path], tmp_path: Path
) -> None:
    labels = nib.load(real[1])
    nib.save(labels.slicer[1:], tmp_path / "cut.nii.gz")
    with pytest.raises(InputError, match=r"cut\.nii\.gz"):
        PaintedScans(analyzer, [(real[0], tmp_path / "cut.nii.gz")], 0, 1)
