import os
from pathlib import Path

import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import atomic_directory
from tumorchain_jax.report.folder import check_folder, write_folder

FILES = {"report.json": "{}", "report.html": "new"}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def earlier(folder: Path) -> Path:
    folder.mkdir()
    (folder / "report.json").write_text("old")
    (folder / "report.html").write_text("old")
    return folder


def test_writes_and_makes_parents(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "a" / "b", FILES, overwrite=False)
    assert names(folder) == ["report.html", "report.json"]
    assert (folder / "report.html").read_text() == "new"
    assert names(tmp_path / "a") == ["b"]


def test_existing_folder_is_refused(tmp_path: Path) -> None:
    folder = earlier(tmp_path / "out")
    for refuse in (lambda: check_folder(folder, False), lambda: write_folder(folder, FILES, False)):
        with pytest.raises(InputError, match="an existing folder"):
            refuse()
    assert names(tmp_path) == ["out"]
    assert (folder / "report.json").read_text() == "old"


def test_overwrite_replaces_the_whole_folder(tmp_path: Path) -> None:
    folder = earlier(tmp_path / "out")
    write_folder(folder, FILES, overwrite=True)
    assert names(folder) == ["report.html", "report.json"]
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("report", [False, True])
def test_overwrite_refuses_files_that_are_no_part_of_a_report(tmp_path: Path, report: bool) -> None:
    folder = tmp_path / "out"
    if report:
        earlier(folder)
    folder.mkdir(exist_ok=True)
    (folder / "thesis.txt").write_text("years of work")
    before = names(folder)
    for refuse in (lambda: check_folder(folder, True), lambda: write_folder(folder, FILES, True)):
        with pytest.raises(InputError, match=r"found thesis\.txt, which is no part of a report"):
            refuse()
    assert names(folder) == before
    assert names(tmp_path) == ["out"]


def test_overwrite_takes_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert names(write_folder(tmp_path / "out", FILES, overwrite=True)) == sorted(FILES)


def test_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(InputError, match="found a file"):
        write_folder(tmp_path / "out", FILES, overwrite=True)
    with pytest.raises(InputError, match="a folder that cannot be written"):
        write_folder(tmp_path / "out" / "below", FILES, overwrite=False)
    assert (tmp_path / "out").read_text() == "a file"


def test_parent_without_permission_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    with pytest.raises(InputError, match="a folder that cannot be written"):
        check_folder(tmp_path / "not yet" / "out", overwrite=False)
    assert names(tmp_path) == []


def test_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="File name too long"):
        write_folder(tmp_path / ("x" * 252), FILES, overwrite=False)
    assert names(tmp_path) == []


def test_link_to_a_report_is_followed(tmp_path: Path) -> None:
    earlier(tmp_path / "out")
    (tmp_path / "link").symlink_to("out")
    write_folder(tmp_path / "link", FILES, overwrite=True)
    assert (tmp_path / "link").is_symlink()
    assert names(tmp_path / "out") == ["report.html", "report.json"]
    assert names(tmp_path) == ["link", "out"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_failure_between_the_files_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overwrite: bool
) -> None:
    if overwrite:
        earlier(tmp_path / "out")
    write_bytes = Path.write_bytes

    def fail(self: Path, data: bytes) -> int:
        if self.name == "report.html":
            write_bytes(self, data[:1])
            raise OSError(28, "No space left on device")
        return write_bytes(self, data)

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(InputError, match=r"out: output: found No space left on device"):
        write_folder(tmp_path / "out", FILES, overwrite)
    assert names(tmp_path) == ["out"] * overwrite
    if overwrite:
        assert (tmp_path / "out" / "report.json").read_text() == "old"


@pytest.mark.parametrize("failure", [OSError(5, "Input/output error"), KeyboardInterrupt()])
def test_failure_at_the_last_rename_brings_the_old_report_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    earlier(tmp_path / "out")
    rename = os.rename

    def fail(source: Path, target: Path) -> None:
        if source.name == ".out.part":
            raise failure
        rename(source, target)

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises((InputError, KeyboardInterrupt)):
        write_folder(tmp_path / "out", FILES, overwrite=True)
    assert names(tmp_path) == ["out"]
    assert (tmp_path / "out" / "report.json").read_text() == "old"


def test_leftovers_of_a_killed_run_do_not_disturb(tmp_path: Path) -> None:
    for leftover in (".out.part", ".out.old"):
        (tmp_path / leftover).mkdir()
        (tmp_path / leftover / "report.html").write_text("half")
    write_folder(tmp_path / "out", FILES, overwrite=False)
    assert names(tmp_path) == ["out"]


def test_folder_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    def write() -> None:
        with atomic_directory(tmp_path / "out") as part:
            (part / "report.json").write_text("new")
            earlier(tmp_path / "out")

    with pytest.raises(OSError, match="not empty"):
        write()
    assert (tmp_path / "out" / "report.json").read_text() == "old"
    assert names(tmp_path) == ["out"]
