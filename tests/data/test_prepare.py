"""Scans and records on disk -> a data set, as the command line makes it."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
from array_record.python.array_record_module import ArrayRecordReader
from pydicom import FileDataset
from pydicom.dataset import FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

from tumorchain_jax.anatomy.organs import ORGANS
from tumorchain_jax.cli.main import main
from tumorchain_jax.core.config import read_config
from tumorchain_jax.core.workers import local_workers
from tumorchain_jax.data import scan_shards
from tumorchain_jax.data.dataset import ModelScan, read_records, shard_paths
from tumorchain_jax.data.pipeline import ExampleSource
from tumorchain_jax.data.splits import read_split
from tumorchain_jax.phantoms.dataset import model_scan
from tumorchain_jax.phantoms.patient import Patient, make_patient, write_patient
from tumorchain_jax.phantoms.records import patient_records
from tumorchain_jax.scan.preprocess import PreprocessConfig
from tumorchain_jax.scan.read import read_ct, read_labels
from tumorchain_jax.training.registry import train
from tumorchain_jax.training.tumorchain.train import layout_of

NANO = Path(__file__).parents[2] / "configs" / "nano.py"
GRID = PreprocessConfig((8, 16, 16))
SEEDS = range(4)
CONFIG = f"""
import runpy
from tumorchain_jax.models.language.qwen2.model import Qwen2Config
from tumorchain_jax.models.tumorchain.model import TumorChainConfig
from tumorchain_jax.models.vision.vit3d.model import ViT3DConfig

def get_config():
    config = runpy.run_path({str(NANO)!r})["get_config"]()
    with config.unlocked():
        config.model = TumorChainConfig(
            encoder=ViT3DConfig((8, 16, 16), (4, 8, 8), 16, 32, 1, 2),
            decoder=Qwen2Config(512, 16, 32, 1, 2, 1, 8, tie_word_embeddings=True),
            roi_slots=4,
        )
        config.data.phantoms, config.data.length, config.pretrain.patch_stage.steps = 0, 800, 0
        config.steps, config.batch_size, config.micro_batch_size = 1, 2, 2
    return config
"""
# Dies by SIGKILL when it calls a function of `scan_shards` for the n-th time; two scans a shard.
DYING = """
import os, signal, sys
from concurrent.futures import ThreadPoolExecutor
from tumorchain_jax.cli.main import main
from tumorchain_jax.data import scan_shards, workers

name, last, *words = sys.argv[1:]
function, calls = getattr(scan_shards, name), []

def dying(*arguments):
    calls.append(name)
    if len(calls) == int(last):
        os.kill(os.getpid(), signal.SIGKILL)
    return function(*arguments)

setattr(scan_shards, name, dying)
scan_shards.MOST_SHARDS = 2
workers.local_workers = lambda count: ThreadPoolExecutor(1)
main(words)
"""


@pytest.fixture(scope="module")
def patients() -> dict[str, Patient]:
    return {f"phantom-{seed}": make_patient(seed) for seed in SEEDS}


@pytest.fixture(scope="module")
def written(patients: dict[str, Patient], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Their files, their records, and the configuration of a tiny model."""
    folder = tmp_path_factory.mktemp("written")
    for name, patient in patients.items():
        write_patient(patient, folder / "scans" / name)
    (folder / "config.py").write_text(CONFIG)
    write_records(folder / "records.jsonl", patients)
    return folder


def write_records(path: Path, patients: dict[str, Patient], **changes: object) -> None:
    lines = []
    for name, patient in patients.items():
        for record in patient_records(patient, 0):
            values = json.loads(record.to_json()) | {"scan": name} | changes
            lines.append(json.dumps(values) + "\n")
    path.write_text("".join(lines))


@pytest.fixture
def source(written: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return shutil.copytree(written, tmp_path / "source")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No processes, two shards."""
    monkeypatch.setattr(
        "tumorchain_jax.core.workers.local_workers", lambda count: ThreadPoolExecutor(1)
    )
    monkeypatch.setattr(scan_shards, "MOST_SHARDS", 2)


Run = Callable[..., dict]


@pytest.fixture
def run(phantoms: Path, capsys: pytest.CaptureFixture[str], quick: None) -> Run:
    def prepare(source: Path, output: Path, *words: object) -> dict:
        code = main([*command(source, output, phantoms), "--json", *map(str, words)])
        captured = capsys.readouterr()
        assert code == 0, captured.err
        return json.loads(captured.out) | {"stderr": captured.err}

    return prepare


def command(source: Path, output: Path, tokenizer: Path) -> list[str]:
    words = ["prepare", "-i", source / "scans", "-o", output, "--tokenizer", tokenizer]
    words += ["--records", source / "records.jsonl", "--config", source / "config.py"]
    return [str(word) for word in words]


def stored(folder: Path) -> list[ModelScan]:
    blobs: list[bytes] = []
    for path in shard_paths(folder, "scans"):
        reader = ArrayRecordReader(path)
        blobs += reader.read_all()
        reader.close()
    return [ModelScan.from_bytes(blob) for blob in blobs]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def skipped(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "skipped.jsonl").read_text().splitlines()]


def expected_scan(patient: Patient, folder: Path) -> ModelScan:
    """What the data set of digital patients would hold, from the files: their affine is rounded."""
    ct = read_ct(folder / "ct.nii.gz")
    maps = [read_labels(folder / f"{name}.nii.gz", ct) for name in ("labels", "lesions", "others")]
    labels, lesions, others = maps
    return model_scan(
        replace(patient, ct=ct, labels=labels, lesion_map=lesions, other_map=others), GRID
    )


def adds_up(facts: dict) -> bool:
    return (
        facts["scans"] == facts["written"] + facts["skipped"]
        and facts["records"] == facts["kept"] + facts["left_out"]
    )


# ------------------------------------------------------------------- what it writes


def test_training_takes_it(
    written: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to the first step, whose compilation would take most of a minute."""

    class Reached(Exception):
        pass

    def fit(*_: Any) -> None:
        raise Reached

    data = tmp_path / "data"
    sides = {"train": ["phantom-0", "phantom-2"], "test": ["phantom-1", "phantom-3"]}
    (tmp_path / "split.json").write_text(json.dumps(sides))
    run(written, data, "--split", tmp_path)
    config = read_config(written / "config.py", [f"--config.data.folder={data}"])
    monkeypatch.setattr("tumorchain_jax.training.registry.fit", fit)
    with pytest.raises(Reached):
        train(config, tmp_path / "work")
    assert read_split(data) == {
        "train": {"phantom-0", "phantom-2"},
        "test": {"phantom-1", "phantom-3"},
    }
    source, scans = ExampleSource(data, layout_of(config)), stored(data)
    volumes = [source[row]["volume"] for row in range(len(source))]
    for volume in volumes:
        assert np.array_equal(volume, scans[0].image) or np.array_equal(volume, scans[2].image)


def test_scans_and_records_are_those_handed_in(
    patients: dict[str, Patient], written: Path, tmp_path: Path, run: Run
) -> None:
    facts = run(written, tmp_path / "data")
    scans = stored(tmp_path / "data")
    assert (facts["scans"], facts["written"], facts["already_done"]) == (4, 4, 0)
    expected_records = []
    for number, (name, patient) in enumerate(patients.items()):
        expected = expected_scan(patient, written / "scans" / name)
        for field in ("image", "labels", "parts", "lesions"):
            np.testing.assert_array_equal(getattr(scans[number], field), getattr(expected, field))
        assert not scans[number].others.any()
        assert (scans[number].traits == -1).all()
        assert (scans[number].abnormal == -1).all()
        expected_records += patient_records(patient, number)
    assert any(scan.lesions.any() for scan in scans)
    assert read_records(tmp_path / "data") == expected_records
    assert facts["records"] == facts["kept"] == len(expected_records)
    assert skipped(tmp_path / "data") == []


def test_a_record_that_looks_at_what_is_not_there_is_left_out(
    source: Path, tmp_path: Path, run: Run
) -> None:
    """Training would refuse it."""
    path = source / "records.jsonl"
    lines = path.read_text().splitlines()
    values = json.loads(lines[1])
    values["rounds"] = [{"text": "", "look_at": [], "given": False}] * 2
    values["rounds"][1] = {"text": "", "look_at": [5, 17], "given": False}
    path.write_text("\n".join([lines[0], json.dumps(values), *lines[2:]]))
    facts = run(source, tmp_path / "data")
    assert (facts["records"], facts["kept"], facts["left_out"]) == (len(lines), len(lines) - 1, 1)
    assert (facts["skipped"], facts["stderr"]) == (0, "")
    (told,) = skipped(tmp_path / "data")
    assert told["subject"] == f"{path}:2"
    assert (told["scan"], told["found"]) == ("phantom-0", "thyroid gland without a voxel")
    assert len(read_records(tmp_path / "data")) == facts["kept"]


def test_a_list_tells_more_of_a_scan(
    patients: dict[str, Patient], source: Path, tmp_path: Path, run: Run
) -> None:
    """Paths start from the list; the order of its lines does not matter."""
    lines = []
    for name in reversed(patients):
        line: dict = {"scan": name, "ct": f"scans/{name}/ct.nii.gz"}
        line["labels"] = f"scans/{name}/labels.nii.gz"
        if name == "phantom-1":
            line["abnormal"] = {"liver": True, "spleen": False}
        lines.append(json.dumps(line))
    (source / "list.jsonl").write_text("\n\n".join(lines) + "\n")
    run(source, tmp_path / "data", "-i", source / "list.jsonl")
    for number, scan in enumerate(stored(tmp_path / "data")):
        expected = model_scan(patients[f"phantom-{number}"], GRID)
        np.testing.assert_array_equal(scan.image, expected.image)
        assert not scan.lesions.any()
        told = {ORGANS[o]: int(scan.abnormal[o]) for o in np.flatnonzero(scan.abnormal >= 0)}
        assert told == ({"liver": 1, "spleen": 0} if number == 1 else {})


def test_a_dicom_series_is_a_scan(source: Path, tmp_path: Path, run: Run) -> None:
    run(source, tmp_path / "nifti")
    ct = source / "scans" / "phantom-0" / "ct.nii.gz"
    write_series(ct, ct.parent / "ct")
    ct.unlink()
    facts = run(source, tmp_path / "dicom")
    assert facts["written"] == 4
    for one, other in zip(stored(tmp_path / "nifti"), stored(tmp_path / "dicom"), strict=True):
        assert one.to_bytes() == other.to_bytes()


def write_series(ct: Path, folder: Path) -> None:
    image = nib.load(ct)
    hu, affine = np.asarray(image.dataobj), image.affine
    folder.mkdir()
    series = generate_uid()
    for k in range(hu.shape[2]):
        meta = FileMetaDataset()
        meta.MediaStorageSOPClassUID = CTImageStorage
        meta.MediaStorageSOPInstanceUID = generate_uid()
        meta.TransferSyntaxUID = ExplicitVRLittleEndian
        data = FileDataset("", {}, file_meta=meta, preamble=b"\0" * 128)
        data.SOPClassUID, data.SOPInstanceUID = CTImageStorage, meta.MediaStorageSOPInstanceUID
        data.SeriesInstanceUID, data.Modality = series, "CT"
        x, y, z = (affine @ (0, 0, k, 1))[:3]
        data.ImagePositionPatient = [round(float(v), 6) for v in (-x, -y, z)]
        data.ImageOrientationPatient = [-1, 0, 0, 0, -1, 0]
        data.PixelSpacing = [float(affine[1, 1]), float(affine[0, 0])]
        data.Columns, data.Rows = hu.shape[:2]
        data.SamplesPerPixel, data.PhotometricInterpretation = 1, "MONOCHROME2"
        data.BitsAllocated, data.BitsStored, data.HighBit = 16, 16, 15
        data.PixelRepresentation, data.RescaleSlope, data.RescaleIntercept = 0, 1, -1024
        data.PixelData = (hu[:, :, k].T + 1024).astype("<u2").tobytes()
        data.save_as(folder / f"{k}.dcm", enforce_file_format=True)


# ----------------------------------------------------------------------- bad scans


def spoil(scans: Path) -> None:
    ct = scans / "phantom-0" / "ct.nii.gz"
    ct.write_bytes(ct.read_bytes()[:3000])
    (scans / "phantom-2" / "labels.nii.gz").unlink()
    labels = scans / "phantom-3" / "labels.nii.gz"
    image = nib.load(labels)
    moved = image.affine.copy()
    moved[2, 3] += 5
    nib.save(nib.Nifti1Image(np.asarray(image.dataobj), moved), labels)


def test_bad_scans_are_left_out_with_their_records(
    patients: dict[str, Patient], source: Path, tmp_path: Path, run: Run
) -> None:
    spoil(source / "scans")
    data = tmp_path / "data"
    facts = run(source, data)
    assert (facts["scans"], facts["written"], facts["skipped"]) == (4, 1, 3)
    (scan,) = stored(data)
    np.testing.assert_array_equal(scan.image, model_scan(patients["phantom-1"], GRID).image)
    records = read_records(data)
    assert {(record.scan, record.patient) for record in records} == {(0, "phantom-1")}
    assert facts["kept"] == len(records)
    assert facts["records"] == sum(len(patient_records(p, 0)) for p in patients.values())
    assert adds_up(facts)
    told = {line["scan"]: line for line in skipped(data)}
    assert {name: line["field"] for name, line in told.items()} == {
        "phantom-0": "file",
        "phantom-2": "path",
        "phantom-3": "affine",
    }
    assert "5 mm away from the CT's" in told["phantom-3"]["found"]
    assert told["phantom-2"]["subject"].endswith("phantom-2/labels.nii.gz")
    for name, line in told.items():
        assert line["records"] == len(patient_records(patients[name], 0))
        assert sum(f"skipped: {name}: " in each for each in facts["stderr"].splitlines()) == 1
    assert facts["stderr"].count("\n") == 3


def test_a_mended_scan_is_done_and_no_other(source: Path, tmp_path: Path, run: Run) -> None:
    run(source, tmp_path / "sound")
    ct, data = source / "scans" / "phantom-0" / "ct.nii.gz", tmp_path / "data"
    whole = ct.read_bytes()
    ct.write_bytes(whole[:3000])
    assert run(source, data)["written"] == 3
    ct.write_bytes(whole)
    facts = run(source, data)
    assert (facts["written"], facts["already_done"], facts["stderr"]) == (4, 2, "")
    assert contents(data) == contents(tmp_path / "sound")
    assert run(source, data)["already_done"] == 4


def test_without_a_sound_scan_there_is_no_data_set(
    source: Path, tmp_path: Path, phantoms: Path, quick: None, capsys: pytest.CaptureFixture[str]
) -> None:
    for labels in source.glob("scans/*/labels.nii.gz"):
        labels.unlink()
    assert main(command(source, tmp_path / "data", phantoms)) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert "found none of a sound scan" in last
    assert len(skipped(tmp_path / "data")) == 4
    assert not (tmp_path / "data" / "dataset.json").exists()


def test_a_fault_of_ours_names_the_scan(
    written: Path,
    tmp_path: Path,
    phantoms: Path,
    quick: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(scan_shards, "on_model_grid", full)
    assert main(command(written, tmp_path / "data", phantoms)) == 1
    error = capsys.readouterr().err
    assert "phantom-0: OSError: [Errno 28] No space left" in error
    assert shard_paths(tmp_path / "data", "scans") == []


# ----------------------------------------------------------- the same bytes, always


@pytest.mark.parametrize(
    ("function", "call", "shards"),
    [("read_ct", 4, 1), ("write_file", 2, 2)],
    ids=["in a shard", "after a shard"],
)
def test_a_run_that_was_killed_goes_on(
    source: Path, tmp_path: Path, phantoms: Path, run: Run, function: str, call: int, shards: int
) -> None:
    run(source, tmp_path / "whole")
    data = tmp_path / "data"
    words = [sys.executable, "-c", DYING, function, str(call), *command(source, data, phantoms)]
    assert subprocess.run(words, capture_output=True).returncode == -signal.SIGKILL
    assert not (data / "dataset.json").exists()
    before = {path: os.stat(path).st_mtime_ns for path in shard_paths(data, "scans")}
    assert len(before) == shards
    facts = run(source, data)
    assert facts["already_done"] == 2
    assert contents(data) == contents(tmp_path / "whole")
    first = min(before)
    assert os.stat(first).st_mtime_ns == before[first]


def test_as_many_workers_as_one_likes(
    source: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source / "scans" / "phantom-2" / "labels.nii.gz").unlink()
    one = run(source, tmp_path / "one")
    monkeypatch.setattr("tumorchain_jax.core.workers.local_workers", local_workers)
    two = run(source, tmp_path / "two", "--workers", 2)
    assert (one["written"], one["skipped"]) == (two["written"], two["skipped"]) == (3, 1)
    assert len(shard_paths(tmp_path / "two", "scans")) == 2
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


# ----------------------------------------------------------------- refused at once


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"scan": "phantom-9"}, 'scan: found "phantom-9"'),
        ({"scan": 1}, "scan: found 1"),
        ({"scan": "phantom-0"}, "found phantom-1, expected phantom-0"),
        ({"task": "guess"}, "subtask: found 'guess/"),
    ],
)
def test_bad_records_are_refused_before_any_work(
    patients: dict[str, Patient],
    source: Path,
    tmp_path: Path,
    phantoms: Path,
    capsys: pytest.CaptureFixture[str],
    change: dict,
    told: str,
) -> None:
    write_records(source / "records.jsonl", patients, **change)
    refused(command(source, tmp_path / "data", phantoms), told, capsys)
    assert not (tmp_path / "data").exists()


def test_patients_must_be_apart(
    written: Path, tmp_path: Path, phantoms: Path, quick: None, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*command(written, tmp_path / "data", phantoms), "--split", str(tmp_path)]
    names = [f"phantom-{seed}" for seed in SEEDS]
    for train_names, test_names, told in (
        (names, names[:1], "phantom-0 in both lists"),
        (names[:2], names[3:], "phantom-2 in neither list"),
    ):
        split = {"train": train_names, "test": test_names}
        (tmp_path / "split.json").write_text(json.dumps(split))
        refused(words, told, capsys)
        assert not (tmp_path / "data").exists()
    (tmp_path / "split.json").write_text(json.dumps({"train": names[1:], "test": names[:1]}))
    assert main(words) == 0
    assert read_split(tmp_path / "data") == {"train": set(names[1:]), "test": {"phantom-0"}}


def test_one_image_on_both_sides_is_refused(
    patients: dict[str, Patient], source: Path, tmp_path: Path, phantoms: Path, quick: None,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    shutil.copytree(source / "scans" / "phantom-0", source / "scans" / "again")
    again = {"again": replace(patients["phantom-0"], seed=77)}
    write_records(source / "records.jsonl", patients | again)
    names = [*patients, "phantom-77"]
    split = {"train": names[1:], "test": names[:1]}
    (tmp_path / "split.json").write_text(json.dumps(split))
    words = [*command(source, tmp_path / "data", phantoms), "--split", str(tmp_path)]
    refused(words, "is that of phantom-", capsys)
    assert not (tmp_path / "data" / "dataset.json").exists()


def test_another_data_set_is_left_alone(
    written: Path, source: Path, tmp_path: Path, phantoms: Path, run: Run,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    data = tmp_path / "data"
    run(written, data)
    before = contents(data)
    words = command(written, data, phantoms)
    refused([*words, "--config.window.level=0"], "expected the same scans", capsys)
    shutil.copytree(source / "scans" / "phantom-0", source / "scans" / "more")
    refused(command(source, data, phantoms), "expected the same scans", capsys)
    assert contents(data) == before
    refused(command(written, phantoms, phantoms), "a folder of something else", capsys)
    assert not (phantoms / ".prepare").exists()
    refused(command(written, data / "dataset.json", phantoms), "found Not a directory", capsys)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--workers", "0"), "--workers: found 0"),
        (("--records", "nowhere"), "nowhere: path: found No such file"),
        (("--tokenizer", "nowhere"), "tokenizer.json: found none"),
        (("--config.model.decoder.vocab_size=9",), "--config"),
    ],
)
def test_bad_usage_is_refused(
    written: Path, tmp_path: Path, phantoms: Path, capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...], told: str,
) -> None:  # fmt: skip
    refused([*command(written, tmp_path / "data", phantoms), *words], told, capsys)
    assert not (tmp_path / "data").exists()


def refused(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert told in captured.err
