"""Digital patients as a data set: its content, its shards, resume."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from array_record.python.array_record_module import ArrayRecordReader

from tumorchain_jax.anatomy.organs import DIGESTIVE
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.dataset import ModelScan, read_manifest, read_records, shard_paths
from tumorchain_jax.models.language.tokenizer import Tokenizer
from tumorchain_jax.phantoms import dataset
from tumorchain_jax.phantoms.dataset import OTHER_TRAITS, model_scan, write_phantoms
from tumorchain_jax.phantoms.lesions import BORDERS, DENSITIES, SHAPES
from tumorchain_jax.phantoms.patient import Patient, make_patient
from tumorchain_jax.phantoms.records import patient_records
from tumorchain_jax.phantoms.settings import PatientSettings
from tumorchain_jax.scan.preprocess import PreprocessConfig

CONFIG = PreprocessConfig((8, 16, 16))
ARGS: dict[str, Any] = {"first_seed": 0, "count": 6, "config": CONFIG, "vocab_size": 512}


@pytest.fixture(scope="module")
def patients() -> list[Patient]:
    return [make_patient(seed) for seed in (0, 1)]


@pytest.fixture
def write(patients: list[Patient], monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """`write_phantoms` in shards of four scans, in this process; returns the seeds it made."""
    made: list[int] = []

    def remember(seed: int, settings: PatientSettings) -> Patient:
        made.append(seed)
        return replace(patients[seed % 2], seed=seed)

    monkeypatch.setattr(dataset, "SCANS_PER_SHARD", 4)
    monkeypatch.setattr(dataset, "make_patient", remember)
    monkeypatch.setattr(dataset, "local_workers", lambda *_: ThreadPoolExecutor(1))

    def run(folder: Path, **changes: Any) -> list[int]:
        made.clear()
        write_phantoms(folder, **ARGS | changes)
        return list(made)

    return run


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def blobs(paths: list[str]) -> list[bytes]:
    found: list[bytes] = []
    for path in paths:
        reader = ArrayRecordReader(path)
        found += reader.read_all()
        reader.close()
    return found


def test_traits_are_those_of_the_tumour(patients: list[Patient]) -> None:
    ill, healthy = patients[0], make_patient(4)
    organ, density, shape, border, other = model_scan(ill, CONFIG).traits
    lesion = ill.lesions[0]
    assert DIGESTIVE[organ] == lesion.organ
    assert (DENSITIES[density], SHAPES[shape]) == (lesion.density, lesion.shape)
    assert (BORDERS[border], OTHER_TRAITS[other]) == (lesion.border, lesion.other)
    np.testing.assert_array_equal(model_scan(healthy, CONFIG).traits, np.full(5, -1))


def test_data_set_holds_what_this_process_makes_of_the_seeds(
    phantoms: Path, patients: list[Patient]
) -> None:
    """Made by worker processes, it holds what this process makes of the same seeds."""
    expected = {"dataset.json", "split.json", "tokenizer.json"}
    expected |= {f"{kind}-00000-of-00001.arrayrecord" for kind in ("scans", "records")}
    assert set(contents(phantoms)) == expected
    records, scans = read_records(phantoms), blobs(shard_paths(phantoms, "scans"))
    assert len(scans) == 6
    assert [record.scan for record in records] == sorted(record.scan for record in records)
    assert {(record.scan, record.patient) for record in records} == {
        (index, f"phantom-{index}") for index in range(6)
    }
    for index, patient in enumerate(patients):
        scan = model_scan(patient, CONFIG)
        assert scans[index] == scan.to_bytes()
        visible = np.unique(scan.labels).tolist()
        of_patient = [record for record in records if record.scan == index]
        assert of_patient == patient_records(patient, index, visible)
    manifest = read_manifest(phantoms)
    assert manifest["preprocess"] == {"grid": [8, 16, 16], "level": 40.0, "width": 400.0}
    assert "made up" in manifest["synthetic"]
    assert (manifest["first_seed"], manifest["count"]) == (0, 6)
    tokenizer = Tokenizer.load(phantoms)
    assert len(tokenizer.token_bytes) == manifest["vocab_size"] == 512
    assert len(tokenizer.encode(" liver")) == 1


def test_record_scan_index_counts_over_all_shards(write: Callable, tmp_path: Path) -> None:
    assert write(tmp_path / "new") == [0, 1, 2, 3, 4, 5]
    scans = blobs(shard_paths(tmp_path / "new", "scans"))
    assert len(shard_paths(tmp_path / "new", "scans")) == 2
    for record in read_records(tmp_path / "new"):
        assert record.patient == f"phantom-{record.scan}"
        traits = ModelScan.from_bytes(scans[record.scan]).traits
        if record.task == "lesion_attributes":
            assert record.organ == DIGESTIVE[traits[0]]


def test_resume_makes_only_what_is_missing(write: Callable, tmp_path: Path) -> None:
    write(tmp_path)
    whole = contents(tmp_path)
    for missing, seeds in {
        "records-00001-of-00002.arrayrecord": [4, 5],
        "records-00000-of-00002.arrayrecord": [0, 1, 2, 3],
        "tokenizer.json": [],
    }.items():
        (tmp_path / missing).unlink()
        assert write(tmp_path) == seeds
        assert contents(tmp_path) == whole
    assert write(tmp_path) == []


def test_failure_leaves_no_shard(
    write: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(seed: int, settings: PatientSettings) -> Patient:
        raise KeyboardInterrupt(seed)

    with monkeypatch.context() as patch:
        patch.setattr(dataset, "make_patient", fail)
        with pytest.raises(KeyboardInterrupt):
            write(tmp_path)
    assert set(contents(tmp_path)) == {"dataset.json"}
    assert write(tmp_path) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("complete", [True, False], ids=["complete", "begun"])
@pytest.mark.parametrize(
    "change",
    [
        {"first_seed": 1},
        {"count": 5},
        {"vocab_size": 511},
        {"config": replace(CONFIG, width=1.0)},
        {"settings": PatientSettings("realistic")},
    ],
    ids=str,
)
def test_folder_of_other_settings_is_refused(
    phantoms: Path, tmp_path: Path, write: Callable, change: dict, complete: bool
) -> None:
    folder = phantoms
    if not complete:
        folder = tmp_path
        (folder / "dataset.json").write_bytes((phantoms / "dataset.json").read_bytes())
    before = contents(folder)
    with pytest.raises(InputError, match="name another folder") as error:
        write(folder, **change)
    assert str(folder) in str(error.value)
    assert "\n" not in str(error.value)
    assert contents(folder) == before


def test_malformed_record_is_refused_with_its_place(
    write: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoil(*arguments: Any) -> list:
        records = patient_records(*arguments)
        return [*records[:3], replace(records[3], question="")]

    monkeypatch.setattr(dataset, "patient_records", spoil)
    with pytest.raises(InputError, match=r"records-00000-of-00001\.arrayrecord\[3\]: question"):
        write(tmp_path, count=2)
