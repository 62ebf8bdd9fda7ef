"""An import that was stopped goes on where it was."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tumorchain_jax.cli.main import main
from tumorchain_jax.convert import importer
from tumorchain_jax.weights import tensor_files
from tumorchain_jax.weights.orbax_folder import OrbaxFolder

STOPPED = 130
ALL = 28


@pytest.fixture
def copied(source: Path, tmp_path: Path) -> Path:
    return shutil.copytree(source, tmp_path / "copied")


@pytest.fixture
def output(tmp_path: Path) -> Path:
    (tmp_path / "outputs").mkdir()
    return tmp_path / "outputs" / "dst"


def part(output: Path) -> Path:
    return output.with_name(".dst.part")


def run_import(
    source: Path, output: Path, *options: str, stop_at: int | None = None
) -> tuple[int, list[str]]:
    """Its exit code, and the keys of the tensors that it wrote."""
    written: list[str] = []
    write_one = importer._write_one

    def watched(tensor: Any, *rest: Any) -> str:
        if len(written) == stop_at:
            raise KeyboardInterrupt
        written.append(tensor.key)
        return write_one(tensor, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importer, "_write_one", watched)
        arguments = ["-i", str(source), "-o", str(output), *options]
        return main(["convert", "import", *arguments]), written


def journal(output: Path) -> Path:
    return part(output) / "journal.jsonl"


def is_same(source: Path, output: Path) -> bool:
    assert [path.name for path in output.parent.iterdir()] == ["dst"]
    return main(["convert", "verify", "-i", str(source), "-o", str(output)]) == 0


def files(folder: Path) -> dict[str, bytes]:
    """Without those in which Orbax says when and where it wrote."""
    own = ("_METADATA", "_CHECKPOINT_METADATA", "commit_success.txt")
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name not in own]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_stopped_import_resumes_and_ends_as_if_it_had_not_been(
    source: Path, imported: Path, output: Path
) -> None:
    code, first = run_import(source, output, stop_at=10)
    assert (code, len(first)) == (STOPPED, 10)
    assert [path.name for path in output.parent.iterdir()] == [".dst.part"]
    code, second = run_import(source, output, stop_at=12)
    assert (code, len(second)) == (STOPPED, 12)
    code, third = run_import(source, output)
    assert code == 0
    assert len(set(first + second + third)) == len(first + second + third) == ALL
    assert is_same(source, output)
    assert files(output) == files(imported)


def test_tensor_that_was_stopped_half_way_is_written_again(
    source: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensor_files, "PIECE", 16)
    write = OrbaxFolder.write
    rows_written: list[slice] = []

    def stopping(self: OrbaxFolder, path: str, layer: Any, rows: slice, values: Any) -> Any:
        if rows.start and len(rows_written) > 20:
            raise KeyboardInterrupt
        rows_written.append(rows)
        return write(self, path, layer, rows, values)

    with monkeypatch.context() as patch:
        patch.setattr(OrbaxFolder, "write", stopping)
        code, first = run_import(source, output)
    assert code == STOPPED
    code, second = run_import(source, output)
    assert code == 0
    assert second[0] == first[-1]
    assert len(first + second) == ALL + 1
    assert is_same(source, output)


def touch(folder: Path) -> None:
    file = folder / "model-00001-of-00002.safetensors"
    stat = file.stat()
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))


def lengthen_header(folder: Path) -> None:
    """Eight spaces more, and the times as they were."""
    file = folder / "model-00002-of-00002.safetensors"
    stat, data = file.stat(), file.read_bytes()
    length = int.from_bytes(data[:8], "little")
    head = (length + 8).to_bytes(8, "little") + data[8 : 8 + length]
    file.write_bytes(head + b" " * 8 + data[8 + length :])
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def change_config(folder: Path) -> None:
    fields = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**fields, "rope_theta": 5e5}))


@pytest.mark.parametrize("change", [touch, lengthen_header, change_config])
def test_another_source_is_imported_from_the_start(
    change: Callable[[Path], None], copied: Path, output: Path
) -> None:
    _, first = run_import(copied, output, stop_at=3)
    change(copied)
    assert run_import(copied, output, stop_at=3) == (STOPPED, first)


def test_another_dtype_is_imported_from_the_start(source: Path, output: Path) -> None:
    _, first = run_import(source, output, stop_at=3)
    assert run_import(source, output, "--dtype", "float32", stop_at=3) == (STOPPED, first)


def test_what_changed_is_what_is_imported(
    copied: Path, tensors: dict, save: Callable, output: Path
) -> None:
    """The first tensors were already written as they were before."""
    run_import(copied, output, stop_at=10)
    file = copied / "model-00001-of-00002.safetensors"
    save(file, {key: tensors[key][::-1] for key in tensor_files.read_file(file)})
    assert run_import(copied, output)[0] == 0
    assert is_same(copied, output)


@pytest.mark.parametrize("torn", ['["model.norm.w', '["model.norm.weight", "12"]'])
def test_line_of_the_journal_that_was_cut_off_does_not_count(
    torn: str, source: Path, output: Path
) -> None:
    run_import(source, output, stop_at=10)
    journal(output).write_text(journal(output).read_text() + torn)
    code, second = run_import(source, output)
    assert (code, len(second)) == (0, ALL - 10)
    assert is_same(source, output)


@pytest.mark.parametrize("keep", [0, 30])
def test_journal_without_a_whole_first_line_is_none(keep: int, source: Path, output: Path) -> None:
    _, first = run_import(source, output, stop_at=3)
    os.truncate(journal(output), keep)
    assert run_import(source, output, stop_at=3) == (STOPPED, first)


def test_stopped_import_that_then_fails_leaves_nothing(copied: Path, output: Path) -> None:
    run_import(copied, output, stop_at=10)
    file = copied / "model-00002-of-00002.safetensors"
    stat, data = file.stat(), np.fromfile(file, np.uint8)
    data[-2:] = 0xFF
    data.tofile(file)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    code, written = run_import(copied, output)
    assert (code, len(written)) == (2, ALL - 10)
    assert not [*output.parent.iterdir()]


# ---------------------------------------------------------------- stopped at a bad moment


def test_line_that_was_cut_off_does_not_spoil_the_next(source: Path, output: Path) -> None:
    run_import(source, output, stop_at=3)
    journal(output).write_text(journal(output).read_text() + '["model.norm.w')
    run_import(source, output, stop_at=3)
    code, written = run_import(source, output)
    assert (code, len(written)) == (0, ALL - 6)


def test_import_that_was_stopped_before_its_first_tensor_starts_over(
    source: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(OrbaxFolder, "_open", stop)
        assert run_import(source, output) == (STOPPED, [])
    assert run_import(source, output)[0] == 0


def test_what_the_journal_names_is_on_the_disk(
    source: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed process loses what it had not handed to the system."""
    write_one, found = importer._write_one, []

    def watched(*args: Any) -> str:
        if "visual.merger.weight" in journal(output).read_text():
            carried = tensor_files.read_file(part(output) / "carried.safetensors")
            found.append([*carried["visual.merger.weight"].pieces()])
        return write_one(*args)

    monkeypatch.setattr(importer, "_write_one", watched)
    main(["convert", "import", "-i", str(source), "-o", str(output)])
    first, last = found[0][0][1], found[-1][0][1]
    assert last.any()
    np.testing.assert_array_equal(first, last)


def test_stopped_import_needs_room_for_the_rest_alone(
    source: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_import(source, output, stop_at=ALL - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    assert run_import(source, output)[0] == 0
