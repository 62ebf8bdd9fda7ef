"""`tumorchain weights`: archives from a local server, and a local stand-in of the hub."""

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from file_server import Files, served, use_hub

from tumorchain_jax.cli.main import main
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.segmentation import factory
from tumorchain_jax.segmentation.total import TotalSegmenter
from tumorchain_jax.weights import pull as pull_module
from tumorchain_jax.weights.catalogue import CATALOGUE, Archive
from tumorchain_jax.weights.hub import hub_folder

NAME, FAST = "Dataset297_TotalSegmentator_total_3mm_1559subj", "totalsegmentator-fast"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def archive(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        for name, content in members.items():
            packed.writestr(name, content)
    return buffer.getvalue()


WEIGHTS = bytes(range(256)) * 400
CONTENT = archive({f"{NAME}/trainer/plans.json": b"{}", f"{NAME}/trainer/fold_0/w.pth": WEIGHTS})


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Files]:
    """A server; the catalogue's entry is as large as its archive, the caches are the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TOTALSEG_HOME_DIR", str(tmp_path / "totalseg"))
    monkeypatch.delenv("TOTALSEG_WEIGHTS_PATH", raising=False)
    small = replace(CATALOGUE[FAST], archives=(Archive(NAME, len(CONTENT)),))
    monkeypatch.setitem(CATALOGUE, FAST, small)
    with served() as files:
        files.content[f"/{NAME}.zip"] = CONTENT
        monkeypatch.setattr(pull_module, "RELEASE", files.url)
        yield files


def pull(*words: str) -> int:
    return main(["weights", "pull", FAST, "--accept-licence", *words])


def test_list_says_source_size_and_licence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["weights", "list"]) == 0
    said = capsys.readouterr().out
    for each in CATALOGUE.values():
        [line] = [line for line in said.splitlines() if line.split()[0] == each.name]
        assert each.licence in line
        assert each.source in line
        assert f"{each.size / 1e9:.1f} GB" in line
    assert main(["weights", "list", "--json"]) == 0
    assert {each["name"] for each in json.loads(capsys.readouterr().out)} == set(CATALOGUE)


def test_stopped_download_goes_on_where_it_was(
    files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files.cut = len(CONTENT) // 2
    assert pull() == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    url, file = f"{files.url}/{NAME}.zip", tmp_path / f"cache/tumorchain/weights/{NAME}.zip"
    assert f"fetch {url} by hand, put it at {file}" in error
    assert pull() == 0
    assert [asked[2] for asked in files.asked] == ["", f"bytes={files.cut}-"]
    folder = tmp_path / "totalseg/nnunet/results" / NAME
    assert (folder / "trainer/fold_0/w.pth").read_bytes() == WEIGHTS
    assert [path.name for path in file.parent.iterdir()] == ["sha256.json"]
    known = json.loads((file.parent / "sha256.json").read_text())
    assert known == {NAME: hashlib.sha256(CONTENT).hexdigest()}
    assert pull() == 0  # nothing is fetched twice
    assert len(files.asked) == 2
    capsys.readouterr()
    assert main(["weights", "list"]) == 0
    [line] = [each for each in capsys.readouterr().out.splitlines() if each.startswith(FAST)]
    assert line.endswith("(pulled)")


def test_another_version_is_not_joined_to_the_first_half(files: Files, tmp_path: Path) -> None:
    files.cut = len(CONTENT) // 2
    assert pull() == 2
    files.cut = None
    whole = files.content[f"/{NAME}.zip"]
    files.content[f"/{NAME}.zip"] = whole.replace(WEIGHTS, WEIGHTS[::-1])
    # The archive's own checksum tells, and the half is not used.
    assert pull() == 2
    assert not (tmp_path / "totalseg/nnunet/results" / NAME).exists()
    files.content[f"/{NAME}.zip"] = whole


def test_file_of_another_size_is_refused(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    files.content[f"/{NAME}.zip"] = CONTENT + b"more"
    assert pull() == 2
    assert f"is another file now: {len(CONTENT) + 4} bytes" in capsys.readouterr().err


def test_licence_must_be_accepted(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["weights", "pull", FAST]) == 2
    assert "licence: found Apache-2.0, expected that you accept it" in capsys.readouterr().err
    assert main(["weights", "pull", "nothing", "--accept-licence"]) == 2
    assert not files.asked


def test_archive_brought_by_hand_is_taken(files: Files, tmp_path: Path) -> None:
    del files.content[f"/{NAME}.zip"]
    assert pull() == 2
    file = tmp_path / f"cache/tumorchain/weights/{NAME}.zip"
    file.write_bytes(CONTENT)
    assert pull() == 0
    assert (tmp_path / "totalseg/nnunet/results" / NAME / "trainer/plans.json").is_file()


def test_no_path_leads_out_of_the_archive(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    climbing = archive({f"{NAME}/../../out": b"x"})
    small = replace(CATALOGUE[FAST], archives=(Archive(NAME, len(climbing)),))
    monkeypatch.setitem(CATALOGUE, FAST, small)
    files.content[f"/{NAME}.zip"] = climbing
    assert pull() == 2
    assert not (tmp_path / "totalseg/nnunet/results" / NAME).exists()
    assert not [*tmp_path.rglob("out")]


def test_pulled_weights_are_the_segmenters_default(
    files: Files, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert factory.make_segmenter().name == factory.NANO_NAME
    with pytest.raises(InputError, match="weights pull totalsegmentator-fast"):
        factory.make_segmenter(fast=True)
    assert pull() == 0
    used = []

    def read(folder: Path, fast: bool = False, *_: object) -> TotalSegmenter:
        used.append((folder, fast))
        return factory.NO_SEGMENTER

    monkeypatch.setattr(factory, "read_segmenter", read)
    factory.make_segmenter()
    factory.make_segmenter(fast=True)
    assert used == [(tmp_path / "totalseg/nnunet/results", True)] * 2


@pytest.fixture
def hub(files: Files, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Files:
    """A repository of two files on a stand-in of the hub."""
    use_hub(monkeypatch, files.url, tmp_path / "hub")
    content = {"model.safetensors": WEIGHTS, "config.json": b"{}", "other.onnx": b"large"}
    files.put_repository("someone/model", COMMIT, content, license="apache-2.0")
    return files


def test_hub_folder_is_of_one_commit_and_checked(hub: Files, tmp_path: Path) -> None:
    found = hub_folder("hf:someone/model@main")
    assert (found.revision, found.licence) == (COMMIT, "apache-2.0")
    assert sorted(path.name for path in found.path.iterdir()) == [
        "config.json",
        "model.safetensors",
    ]
    assert (found.path / "model.safetensors").read_bytes() == WEIGHTS
    (found.path / "model.safetensors").resolve().write_bytes(WEIGHTS[::-1])
    with pytest.raises(InputError, match="other bytes"):
        hub_folder(f"hf:someone/model@{COMMIT}")
    assert hub_folder(f"hf:someone/model@{COMMIT}").path == found.path  # fetched again


def test_hub_without_network_says_what_to_fetch_by_hand(
    hub: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    with pytest.raises(InputError, match="hf:someone/other: repository"):
        hub_folder("hf:someone/other")
    with pytest.raises(InputError, match="hf:OWNER/NAME"):
        hub_folder("hf:nothing")
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(InputError, match="hf download someone/model --revision main --local-dir"):
        hub_folder("hf:someone/model@main")
