"""What `tumorchain prepare` refuses, in one line and with exit code 2, or reports."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from tumorchain_jax.cli.main import main
from tumorchain_jax.data import scan_shards
from tumorchain_jax.data.dataset import shard_paths
from tumorchain_jax.data.splits import read_split
from tumorchain_jax.phantoms.patient import Patient

Capsys = pytest.CaptureFixture[str]
Command = Callable[[Path, Path], list[str]]
Refused = Callable[[list[str], str], None]
Run = Callable[..., dict]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def read_log(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "skipped.jsonl").read_text().splitlines()]


def change_record(source: Path, number: int, **changes: object) -> Path:
    """Change a line of the records."""
    path = source / "records.jsonl"
    lines = path.read_text().splitlines()
    lines[number] = json.dumps(json.loads(lines[number]) | changes)
    path.write_text("\n".join(lines))
    return path


# --------------------------------------------------- left out, with a line in skipped.jsonl


def test_repeated_record_is_left_out(source: Path, tmp_path: Path, run: Run) -> None:
    path = source / "records.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines, lines[1]]))
    facts = run(source, tmp_path / "data")
    assert (facts["records"], facts["kept"], facts["left_out"]) == (len(lines) + 1, len(lines), 1)
    (line,) = read_log(tmp_path / "data")
    assert (line["scan"], line["subject"]) == ("phantom-0", f"{path}:{len(lines) + 1}")
    assert line["found"] == f"that of {path}:2 again"


def test_scan_with_misplaced_maps_is_left_out(source: Path, tmp_path: Path, run: Run) -> None:
    """Labels of another scan on the same grid, and a lesion outside the body."""

    def change(name: str, edit: Callable[[np.ndarray], None]) -> None:
        image = nib.load(source / "scans" / name)
        voxels = np.asarray(image.dataobj).copy()
        edit(voxels)
        nib.save(nib.Nifti1Image(voxels, image.affine), source / "scans" / name)

    def upside_down(labels: np.ndarray) -> None:
        labels[:] = labels[:, :, ::-1].copy()

    def in_air(lesions: np.ndarray) -> None:
        lesions[:2, :2] = 1 + lesions.max()

    change("phantom-0/labels.nii.gz", upside_down)
    change("phantom-1/lesions.nii.gz", in_air)
    facts = run(source, tmp_path / "data")
    assert (facts["written"], facts["skipped"]) == (2, 2)
    lines = {line["scan"]: line for line in read_log(tmp_path / "data")}
    assert [lines[f"phantom-{n}"]["field"] for n in (0, 1)] == ["labels", "lesions"]
    assert "in fat, air or metal" in lines["phantom-0"]["found"]
    assert "in air" in lines["phantom-1"]["found"]


def test_folder_name_that_is_no_text_is_logged(source: Path, tmp_path: Path, run: Run) -> None:
    name = os.fsdecode(b"broken\xff")
    (source / "scans" / name).mkdir()
    assert run(source, tmp_path / "data")["skipped"] == 1
    (line,) = read_log(tmp_path / "data")
    assert line["scan"] == name


def test_no_usable_scan_is_refused(
    source: Path, tmp_path: Path, command: Command, quick: None, capsys: Capsys
) -> None:
    for labels in source.glob("scans/*/labels.nii.gz"):
        labels.unlink()
    assert main(command(source, tmp_path / "data")) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert "found none of a usable scan" in last
    assert len(read_log(tmp_path / "data")) == 4
    assert not (tmp_path / "data" / "dataset.json").exists()


def test_unexpected_error_names_the_scan(
    written: Path,
    tmp_path: Path,
    command: Command,
    quick: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capsys,
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(scan_shards, "on_model_grid", full)
    assert main(command(written, tmp_path / "data")) == 1
    error = capsys.readouterr().err
    assert "phantom-0: OSError: [Errno 28] No space left" in error
    assert shard_paths(tmp_path / "data", "scans") == []


# ------------------------------------------------------------- refused before any work


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scan": "phantom-9"}, 'records.jsonl:3: scan: found "phantom-9"'),
        ({"patient": "phantom-1"}, 'patient: found "phantom-1", expected phantom-0'),
        ({"patient": " "}, 'patient: found " ", expected some text'),
        ({"subtask": "guess"}, 'subtask: found "guess"'),
        ({"choices": ["yes", "no", "YES"]}, "choices: found"),
        ({"choices": ["left", "right"]}, "answer: found"),
        ({"question": "Where\udc00?"}, "question: found"),
        ({"rounds": [{"text": "x", "given": "false"}]}, 'rounds[0].given: found "false"'),
    ],
)
def test_bad_record_is_refused(
    source: Path, tmp_path: Path, command: Command, refused: Refused, change: dict, message: str
) -> None:
    change_record(source, 2, **change)
    refused(command(source, tmp_path / "data"), message)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("line", ["[" * 10**5, '{"a":' * 10**5, "{", '"\\ud800"'])
def test_line_that_is_no_object_is_refused(
    source: Path, tmp_path: Path, command: Command, refused: Refused, line: str
) -> None:
    with (source / "records.jsonl").open("a") as file:
        file.write(line)
    refused(command(source, tmp_path / "data"), "JSON: found")
    (source / "scans.jsonl").write_text(line)
    words = [*command(source, tmp_path / "data"), "-i", str(source / "scans.jsonl")]
    refused(words, "scans.jsonl:1: JSON: found")
    assert not (tmp_path / "data").exists()


def test_split_must_keep_patients_apart(
    written: Path, tmp_path: Path, command: Command, refused: Refused
) -> None:
    words = [*command(written, tmp_path / "data"), "--split", str(tmp_path)]
    names = [f"phantom-{seed}" for seed in range(4)]
    for train_names, test_names, message in (
        (names, names[:1], "phantom-0 in both lists"),
        (names[:2], names[3:], "phantom-2 in neither list"),
    ):
        split = {"train": train_names, "test": test_names}
        (tmp_path / "split.json").write_text(json.dumps(split))
        refused(words, message)
        assert not (tmp_path / "data").exists()
    (tmp_path / "split.json").write_text(json.dumps({"train": names[1:], "test": names[:1]}))
    assert main(words) == 0
    assert read_split(tmp_path / "data") == {"train": set(names[1:]), "test": {"phantom-0"}}


def test_image_on_both_sides_is_refused(
    patients: dict[str, Patient],
    source: Path,
    tmp_path: Path,
    write_records: Callable[..., None],
    command: Command,
    refused: Refused,
) -> None:
    shutil.copytree(source / "scans" / "phantom-0", source / "scans" / "again")
    again = {"again": replace(patients["phantom-0"], seed=77)}
    write_records(source / "records.jsonl", patients | again)
    names = [*patients, "phantom-77"]
    split = {"train": names[1:], "test": names[:1]}
    (tmp_path / "split.json").write_text(json.dumps(split))
    words = [*command(source, tmp_path / "data"), "--split", str(tmp_path)]
    refused(words, "is that of phantom-")
    assert not (tmp_path / "data" / "dataset.json").exists()


def test_other_data_set_is_not_changed(
    written: Path,
    source: Path,
    tmp_path: Path,
    phantoms: Path,
    run: Run,
    command: Command,
    refused: Refused,
) -> None:
    data = tmp_path / "data"
    run(written, data)
    before = contents(data)
    words = command(written, data)
    refused([*words, "--config.window.level=0"], "expected the same scans")
    shutil.copytree(source / "scans" / "phantom-0", source / "scans" / "more")
    refused(command(source, data), "expected the same scans")
    assert contents(data) == before
    refused(command(written, phantoms), "a folder of something else")
    assert not (phantoms / ".prepare").exists()
    refused(command(written, data / "dataset.json"), "found Not a directory")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--workers", "0"), "--workers: found 0"),
        (("--records", "nowhere"), "nowhere: path: found No such file"),
        (("--tokenizer", "nowhere"), "tokenizer.json: found none"),
        (("--config.model.decoder.vocab_size=9",), "vocabulary: found 512 ids"),
    ],
)
def test_bad_usage_is_refused(
    written: Path,
    tmp_path: Path,
    command: Command,
    refused: Refused,
    words: tuple[str, ...],
    message: str,
) -> None:
    refused([*command(written, tmp_path / "data"), *words], message)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("option", ["input", "output", "records", "config", "tokenizer", "split"])
@pytest.mark.parametrize("path", ["x" * 300, "x/" * 3000, "a\0b"], ids=["name", "path", "NUL"])
def test_path_that_cannot_exist_is_refused(
    written: Path, tmp_path: Path, command: Command, refused: Refused, option: str, path: str
) -> None:
    refused([*command(written, tmp_path / "data"), f"--{option}", path], f"--{option}: found")
