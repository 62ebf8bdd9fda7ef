"""Bad input on the command line: exit code 2, one line, and no output."""

import gzip
import json
import shutil
import struct
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from tumorchain_jax.cli.main import main
from tumorchain_jax.pretrained import NANO_CHECKPOINT

Refuse = Callable[..., str]
pytestmark = [pytest.mark.program, pytest.mark.usefixtures("private_cache")]


@pytest.fixture
def refuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Refuse:
    """Run a command that must be refused: exit 2, one line, no output. Returns the line."""

    def run(*arguments: object, output: Path = tmp_path / "out") -> str:
        before = sorted(output.rglob("*"))
        words = [str(word) for word in arguments]
        try:
            code = main(["analyze", "-o", str(output), *words])
        except SystemExit as stop:  # argparse
            code = stop.code
        captured = capsys.readouterr()
        assert code == 2
        assert captured.out == ""
        assert captured.err.count("\n") == 1, captured.err
        assert captured.err.startswith("tumorchain: error: ")
        assert "Traceback" not in captured.err
        assert sorted(output.rglob("*")) == before
        assert not list(output.parent.glob(f".{output.name}*"))
        return captured.err

    return run


def _changed(scan: tuple[Path, Path], folder: Path, name: str) -> Path:
    """A scan with one thing wrong with it."""
    image = nib.load(scan[0])
    hu = np.asarray(image.dataobj).astype(np.float32)
    affine = image.affine.copy()
    whole = bytearray(gzip.decompress(scan[0].read_bytes()))
    path = folder / f"{name}.nii.gz"

    def header(offset: int, pattern: str, *values: float) -> bytes:
        struct.pack_into(pattern, whole, offset, *values)
        return gzip.compress(bytes(whole), 1)

    arrays = {
        "2d": hu[:, :, 0],
        "4d": np.stack([hu, hu], axis=-1),
        "nan": np.where(hu == hu.max(), np.nan, hu),
        "constant": np.zeros_like(hu),
        "8bit": np.clip(hu, 0, 255),
        "pet": np.abs(hu),
    }
    if name in arrays:
        nib.save(nib.Nifti1Image(arrays[name].astype(np.float32), affine), path)
    elif name == "text":
        path.write_text("this is no scan")
    elif name == "truncated":
        content = scan[0].read_bytes()
        path.write_bytes(content[: len(content) // 2])
    elif name == "zero_dimension":
        path.write_bytes(header(40, "<4h", 3, 0, 20, 20))
    elif name == "huge":
        path.write_bytes(header(40, "<4h", 3, 32767, 32767, 32767))
    elif name == "spacing_0":
        path.write_bytes(header(80, "<3f", 0.0, 3.0, 3.0))
    elif name == "spacing_nan":
        path.write_bytes(header(80, "<3f", np.nan, 3.0, 3.0))
    elif name == "singular":
        path.write_bytes(header(280, "<4f", 0.0, 0.0, 0.0, 0.0))
    elif name == "vox_offset":
        path.write_bytes(header(108, "<f", 1e9))
    else:
        assert name == "missing"
    return path


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("missing", "path"),
        ("text", "header"),
        ("truncated", "file"),
        ("2d", "dim"),
        ("4d", "dim"),
        ("zero_dimension", "dim"),
        ("huge", "dim"),
        ("nan", "voxels"),
        ("singular", "affine"),
        ("spacing_0", "pixdim"),
        ("spacing_nan", "pixdim"),
        ("vox_offset", "vox_offset"),
        ("constant", "voxels"),
        ("pet", "voxels"),
        ("8bit", "voxels"),
    ],
)
def test_bad_scan(
    name: str, field: str, scan: tuple[Path, Path], tmp_path: Path, refuse: Refuse
) -> None:
    path = _changed(scan, tmp_path, name)
    assert f"{path}: {field}" in refuse("-i", path)


@pytest.mark.parametrize("name", ["shape", "affine", "label_300", "half"])
def test_bad_mask(name: str, scan: tuple[Path, Path], tmp_path: Path, refuse: Refuse) -> None:
    image = nib.load(scan[1])
    labels, affine = np.asarray(image.dataobj).astype(np.float32), image.affine.copy()
    if name == "shape":
        labels = labels[1:]
    elif name == "affine":
        affine[0, 3] += 25
    elif name == "label_300":
        labels[0, 0, 0] = 300
    else:
        labels[0, 0, 0] = 0.5
    path = tmp_path / "mask.nii.gz"
    nib.save(nib.Nifti1Image(labels, affine), path)
    line = refuse("-i", scan[0], "-m", path)
    expected = {"shape": "dim", "affine": "affine", "label_300": "300", "half": "0.5"}
    assert str(path) in line
    assert expected[name] in line


def test_a_folder_without_masks(scan: tuple[Path, Path], tmp_path: Path, refuse: Refuse) -> None:
    """Else the scan would be segmented, and nobody would see that the mask was not used."""
    masks = tmp_path / "masks"
    masks.mkdir()
    (masks / "another.nii.gz").touch()
    line = refuse("-i", scan[0], "-m", masks)
    assert f"{masks}: -m: found no mask, expected {scan[0].name}; name the mask" in line

    twin = tmp_path / "twin.nii.gz"
    shutil.copy(scan[0], twin)
    line = refuse("-i", scan[0], twin, "-m", masks)
    assert f"expected {scan[0].name}, or that of another of the 2 scans; name" in line

    (masks / "liver.nii.gz").touch()
    assert "segment -ml" in refuse("-i", scan[0], "-m", masks)
    # As `segment` writes of several scans.
    organs = tmp_path / "segmented" / scan[0].name.removesuffix(".nii.gz")
    organs.mkdir(parents=True)
    (organs / "liver.nii.gz").touch()
    assert "segment -ml" in refuse("-i", scan[0], "-m", organs.parent)


@pytest.mark.parametrize(
    "flag",
    ["--fast", "--weights", "--segmenter-dtype bfloat16", "--segmenter totalsegmentator"],
)
def test_nothing_is_segmented_where_all_masks_are_given(
    flag: str, scan: tuple[Path, Path], refuse: Refuse
) -> None:
    line = refuse("-i", scan[0], "-m", scan[1], *flag.split())
    name = flag.split()[0]
    assert f"command line: {name}: found masks of all scans, expected a scan to segment" in line


@pytest.mark.parametrize("question", ["", "  \n", "why? " * 20_000, "half of \udc80"])
def test_bad_question(question: str, scan: tuple[Path, Path], refuse: Refuse) -> None:
    assert "question" in refuse("-i", scan[0], "-q", question)


def test_existing_output_is_kept(scan: tuple[Path, Path], tmp_path: Path, refuse: Refuse) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("keep")
    assert "overwrite" in refuse("-i", scan[0])
    refuse("-i", scan[0], "--overwrite")  # it holds no report: never deleted
    assert (out / "mine.txt").read_text() == "keep"


def test_output_below_a_file(scan: tuple[Path, Path], tmp_path: Path, refuse: Refuse) -> None:
    (tmp_path / "file").write_text("")
    assert "file" in refuse("-i", scan[0], output=tmp_path / "file" / "out")


def test_checkpoint_of_another_config(
    scan: tuple[Path, Path], tmp_path: Path, refuse: Refuse
) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(NANO_CHECKPOINT, folder)
    config = json.loads((folder / "config.json").read_text())
    config["model"]["decoder"]["intermediate_size"] += 1
    (folder / "config.json").write_text(json.dumps(config))
    line = refuse("-i", scan[0], "-c", folder)
    assert "model.safetensors: decoder/layers/mlp/" in line


def test_missing_checkpoint(scan: tuple[Path, Path], tmp_path: Path, refuse: Refuse) -> None:
    assert "config.json" in refuse("-i", scan[0], "-c", tmp_path / "none")


@pytest.mark.parametrize(
    "words",
    [
        ["--frobnicate"],
        ["--rounds", "0"],
        ["--rounds", "x"],
        ["--temperature", "-1"],
        ["--temperature", "nan"],
        ["--top-p", "0"],
        ["-t", "poetry"],
        ["-m", "a", "b"],
        ["--weights", "nowhere"],
        ["--segmenter", "nnunet"],
        ["--segmenter", "none", "--weights"],
        ["--fast"],
    ],
)
def test_bad_flags(words: list[str], scan: tuple[Path, Path], refuse: Refuse) -> None:
    refuse("-i", scan[0], *words)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["demo", "--seed", "-1"], "--seed: found -1, expected 0 to 4294967295"),
        (["evaluate", "--seed", "-1"], "--seed: found -1, expected 0 to 4294967295"),
        (["evaluate", "--phantoms", "0"], "--phantoms: found 0, expected 1 to 1000000"),
    ],
)
def test_bad_numbers(
    words: list[str], found: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "-o", str(tmp_path / "out")]) == 2
    assert found in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_same_scan_twice(scan: tuple[Path, Path], refuse: Refuse) -> None:
    assert "expected each scan once" in refuse("-i", scan[0], scan[0])


@pytest.mark.parametrize("flag", ["-o", "-i", "--records"])
def test_bucket_where_a_folder_is_expected_is_refused(
    flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    paths = {"-i": "scans", "-o": "data", "--records": "records.jsonl", "--tokenizer": "nano"}
    paths |= {"--config": "nano", flag: "gs://bucket/it"}
    assert main(["prepare", *(word for pair in paths.items() for word in pair)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "found a gs:// URL, expected a folder or file of this machine" in error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(find_spec("gcsfs") is None, reason="needs gcsfs: tumorchain-jax[gcs]")
def test_checkpoint_in_a_bucket_is_copied(
    scan: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, refuse: Refuse, tmp_path: Path
) -> None:
    copied = tmp_path / "copied"
    monkeypatch.setattr("tumorchain_jax.cli.analyze.local_copy", lambda folder: copied)
    assert f"{copied}: config.json: found none" in refuse("-i", scan[0], "-c", "gs://bucket/it")


def test_analyze_refuses_an_upside_down_scan_unless_forced(
    scan: tuple[Path, Path], tmp_path: Path, refuse: Refuse
) -> None:
    image = nib.load(scan[0])
    ct, out = tmp_path / "ct.nii.gz", tmp_path / "forced"
    nib.save(nib.Nifti1Image(np.asarray(image.dataobj)[:, :, ::-1], image.affine), ct)
    asked = ["-i", str(ct), "-m", str(scan[1])]
    line = refuse(*asked)
    assert "orientation: found" in line
    assert "or --force to continue" in line
    assert main(["analyze", *asked, "-o", str(out), "--force"]) == 0
    forced = json.loads((out / "report.json").read_text())["forced"]
    assert forced[0].startswith("orientation: found")
    assert "Continued with --force" in (out / "report.html").read_text()
