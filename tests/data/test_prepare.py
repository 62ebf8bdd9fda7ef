"""Scans and records on disk -> a data set, as the command line makes it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
from array_record.python.array_record_module import ArrayRecordReader
from dicom_series import write_series

from tumorchain_jax.anatomy.organs import ORGANS
from tumorchain_jax.cli.main import main
from tumorchain_jax.core.config import read_config
from tumorchain_jax.core.workers import local_workers
from tumorchain_jax.data import scan_shards
from tumorchain_jax.data.dataset import ModelScan, read_records, shard_paths
from tumorchain_jax.data.pipeline import ExampleSource
from tumorchain_jax.data.splits import read_split
from tumorchain_jax.phantoms.dataset import model_scan
from tumorchain_jax.phantoms.patient import Patient
from tumorchain_jax.phantoms.records import patient_records
from tumorchain_jax.scan.preprocess import PreprocessConfig
from tumorchain_jax.scan.read import read_ct, read_labels
from tumorchain_jax.training.registry import train
from tumorchain_jax.training.tumorchain.dataset import layout_of

GRID = PreprocessConfig((8, 16, 16))
Command = Callable[[Path, Path], list[str]]
Run = Callable[..., dict]
# Dies by SIGKILL when it reads the fourth CT: in the second of two shards.
DYING = """
import os, signal, sys
from concurrent.futures import ThreadPoolExecutor
from tumorchain_jax.cli.main import main
from tumorchain_jax.core import workers
from tumorchain_jax.data import scan_shards

read_ct, calls = scan_shards.read_ct, []

def dying(path):
    calls.append(path)
    if len(calls) == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return read_ct(path)

scan_shards.read_ct, scan_shards.MOST_SHARDS = dying, 2
workers.local_workers = lambda count: ThreadPoolExecutor(1)
main(sys.argv[1:])
"""


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


@pytest.mark.program
@pytest.mark.system(haste=True)
def test_training_reads_a_prepared_data_set(
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


def test_scans_and_records_are_those_of_the_files(
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
    assert (facts["train_patients"], facts["test_patients"]) == (4, 0)
    assert read_records(tmp_path / "data") == expected_records
    assert facts["records"] == facts["kept"] == len(expected_records)
    assert skipped(tmp_path / "data") == []


def test_record_that_looks_at_a_hidden_organ_is_left_out(
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


def test_list_of_scans_may_name_abnormal_organs(
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


def test_dicom_series_gives_the_bytes_of_its_nifti(source: Path, tmp_path: Path, run: Run) -> None:
    run(source, tmp_path / "nifti")
    ct = source / "scans" / "phantom-0" / "ct.nii.gz"
    write_series(read_ct(ct), ct.parent / "ct")
    ct.unlink()
    facts = run(source, tmp_path / "dicom")
    assert facts["written"] == 4
    for one, other in zip(stored(tmp_path / "nifti"), stored(tmp_path / "dicom"), strict=True):
        assert one.to_bytes() == other.to_bytes()


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


def test_rerun_reads_a_repaired_scan_and_no_other_shard(
    source: Path, tmp_path: Path, run: Run
) -> None:
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


# ----------------------------------------------------------- the same bytes, always


@pytest.mark.system
def test_resume_after_kill_in_a_shard(
    source: Path, tmp_path: Path, command: Command, run: Run
) -> None:
    run(source, tmp_path / "whole")
    data = tmp_path / "data"
    words = [sys.executable, "-c", DYING, *command(source, data)]
    assert subprocess.run(words, capture_output=True).returncode == -signal.SIGKILL
    check_resume(source, data, run, shards=1)
    assert contents(data) == contents(tmp_path / "whole")


def test_resume_after_stop_between_shards(
    source: Path, tmp_path: Path, command: Command, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(source, tmp_path / "whole")
    data, write_file, calls = tmp_path / "data", scan_shards.write_file, []

    def stopping(path: Path, content: bytes) -> None:
        calls.append(path)
        if len(calls) == 2:
            raise KeyboardInterrupt
        write_file(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(scan_shards, "write_file", stopping)
        assert main(command(source, data)) == 130
    check_resume(source, data, run, shards=2)
    assert contents(data) == contents(tmp_path / "whole")


def check_resume(source: Path, data: Path, run: Run, shards: int) -> None:
    """A stopped run left no data set and `shards` shards, of which a rerun keeps the first."""
    assert not (data / "dataset.json").exists()
    before = {path: os.stat(path).st_mtime_ns for path in shard_paths(data, "scans")}
    assert len(before) == shards
    assert run(source, data)["already_done"] == 2
    first = min(before)
    assert os.stat(first).st_mtime_ns == before[first]


@pytest.mark.system
def test_bytes_do_not_depend_on_the_workers(
    source: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source / "scans" / "phantom-2" / "labels.nii.gz").unlink()
    one = run(source, tmp_path / "one")
    monkeypatch.setattr("tumorchain_jax.core.workers.local_workers", local_workers)
    two = run(source, tmp_path / "two", "--workers", 2)
    assert (one["written"], one["skipped"]) == (two["written"], two["skipped"]) == (3, 1)
    assert len(shard_paths(tmp_path / "two", "scans")) == 2
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
