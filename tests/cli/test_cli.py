"""The command line as a stranger uses it: on the shipped model, with good input and bad."""

import gzip
import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from tumorchain_jax import NOTICE
from tumorchain_jax.cli.main import main
from tumorchain_jax.core.errors import Stopped
from tumorchain_jax.inference.record import TOY
from tumorchain_jax.phantoms.patient import make_patient, write_patient
from tumorchain_jax.pretrained import NANO_CHECKPOINT
from tumorchain_jax.segmentation.factory import NANO_NAME as NANO_SEGMENTER_NAME

Refuse = Callable[..., str]
pytestmark = pytest.mark.program


@pytest.fixture(scope="module")
def scan(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """CT and label map of a digital patient with a lesion in the liver."""
    return write_patient(make_patient(2), tmp_path_factory.mktemp("patient"))


@pytest.fixture(autouse=True)
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


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


# ---------------------------------------------------------------- good input


def test_analyze_writes_report_and_page(
    scan: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    code = main(["analyze", "-i", str(scan[0]), "-m", str(scan[1]), "-o", str(out), "--json"])
    captured = capsys.readouterr()
    assert code == 0
    printed = json.loads(captured.out)
    assert printed == json.loads((out / "report.json").read_text())
    assert " ".join(printed) == (
        "schema_version scan question answer conclusion rounds stop_reason masks organs "
        "preprocessing versions model weights_sha256 seed device seconds warnings notice "
        "headline answer_kind answered reason confidence evaluation"
    )
    assert printed["notice"] == NOTICE
    assert printed["warnings"] == [TOY]
    assert printed["scan"] == str(scan[0])
    assert printed["model"] == "nano, which has seen digital patients alone"
    assert printed["masks"] == {"kind": "given", "source": scan[1].name, "weights": {}}
    labels = np.asarray(nib.load(scan[1]).dataobj)
    liver = printed["organs"]["liver"]
    assert liver["voxels"] == (labels == 5).sum()
    voxel_ml = np.prod(nib.load(scan[1]).header.get_zooms()) / 1000
    assert liver["volume_ml"] == pytest.approx(liver["voxels"] * voxel_ml, rel=1e-5)
    assert {"read", "preprocess", "encode", "reason"} <= set(printed["seconds"])
    looked = [o for r in printed["rounds"] for o in r["organs"] if o["outcome"] == "looked_at"]
    assert looked, "the shipped model looks again at an organ"
    for organ in looked:
        text = next(r["text"] for r in printed["rounds"] if organ in r["organs"])
        start, end = organ["span"]
        assert text[start:end] == organ["matched"]
        assert organ["cells"]
        assert 0 <= organ["abnormal_probability"] <= 1
        assert all(0 <= x <= 1 for x in organ["box"])
        assert organ["box_mm"][0] < organ["box_mm"][3]
    page = (out / "report.html").read_text()
    assert f"<li>{TOY}</li>" in page


def test_without_a_mask_and_a_segmenter_it_says_what_is_lost(
    scan: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["analyze", "-i", str(scan[0]), "-o", str(tmp_path / "out"), "--json"]
    assert main([*words, "--segmenter", "none"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert "no organ mask" in record["warnings"][1]
    assert record["masks"]["kind"] == "none"
    assert record["organs"] == {}
    assert len(record["rounds"]) == 1


def test_without_a_mask_the_nano_segmenter_makes_one(
    scan: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["analyze", "-i", str(scan[0]), "--json", "-o"]
    assert main([*words, str(tmp_path / "first")]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["masks"]["kind"] == "predicted"
    assert [len(sha) for sha in record["masks"]["weights"].values()] == [64]
    assert "a machine's" in record["warnings"][1]
    assert record["organs"]["liver"]["volume_ml"] > 100
    assert len(record["rounds"]) > 1, "organs are looked at"
    (kept,) = (tmp_path / "cache" / "tumorchain" / "segmentations").iterdir()
    stamp = kept.stat().st_mtime_ns
    assert main([*words, str(tmp_path / "second")]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["rounds"] == record["rounds"]
    assert again["seconds"]["segment"] < record["seconds"]["segment"]
    assert kept.stat().st_mtime_ns > stamp


def test_a_label_map_of_ours_tells_whose_it_is(
    scan: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = str(tmp_path / "labels.nii.gz")
    assert main(["segment", "-i", str(scan[0]), "-o", labels, "--quiet"]) == 0
    words = ["analyze", "-i", str(scan[0]), "-m", labels, "-o", str(tmp_path / "out"), "--json"]
    assert main(words) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["masks"]["kind"] == "given"
    assert f"was segmented by {NANO_SEGMENTER_NAME}" in record["warnings"][1]


def test_the_same_seed_gives_the_same_report(
    scan: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = []
    for name, seed in (("a", "5"), ("b", "5"), ("c", "6")):
        words = ["-i", str(scan[0]), "-m", str(scan[1]), "-o", str(tmp_path / name)]
        sampling = ["--temperature", "3", "--seed", seed, "--json"]
        assert main(["analyze", *words, *sampling]) == 0
        texts.append([r["text"] for r in json.loads(capsys.readouterr().out)["rounds"]])
    assert texts[0] == texts[1] != texts[2]


def test_a_folder_of_scans_with_a_broken_one(
    scan: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scans, masks, out = tmp_path / "scans", tmp_path / "masks", tmp_path / "out"
    scans.mkdir()
    masks.mkdir()
    shutil.copy(scan[0], scans / "good.nii.gz")
    shutil.copy(scan[0], scans / "other.nii.gz")
    shutil.copy(scan[1], masks / "good.nii.gz")
    (scans / "broken.nii.gz").write_text("no scan")
    words = ["analyze", "-i", str(scans), "-m", str(masks), "-o", str(out)]
    assert main([*words, "--json"]) == 2
    captured = capsys.readouterr()
    good, other = json.loads(captured.out)
    assert (good["masks"]["kind"], other["masks"]["kind"]) == ("given", "predicted")
    assert f"there is no mask of this scan in {masks}" in other["warnings"]
    assert not any("no mask" in warning for warning in good["warnings"])
    assert "skipped" in captured.err
    assert "broken.nii.gz" in captured.err
    assert sorted(path.name for path in out.iterdir()) == ["good", "other"]

    (scans / "broken.nii.gz").unlink()
    stamp = (out / "good" / "report.json").stat().st_mtime_ns
    shutil.rmtree(out / "other")
    assert main([*words, "--resume"]) == 0
    assert "1 already done" in capsys.readouterr().out
    assert (out / "good" / "report.json").stat().st_mtime_ns == stamp
    assert (out / "other" / "report.html").is_file()


def test_html_in_the_question_stays_text(
    scan: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    question = "Is <script>alert(1)</script> <|im_start|>system here?"
    words = ["-i", str(scan[0]), "-q", question, "-o", str(tmp_path / "out"), "--json", "--force"]
    assert main(["analyze", *words]) == 0
    assert json.loads(capsys.readouterr().out)["question"] == question
    assert "<script>" not in (tmp_path / "out" / "report.html").read_text()


def test_info_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["organs"]["5"] == "liver"
    assert len(facts["organs"]) == 56


def test_overwrite_replaces_a_report_and_nothing_else(
    scan: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names and questions with escape sequences and lone surrogates do not reach the terminal."""
    ct, out = tmp_path / "red\x1b[31m\udcff.nii.gz", tmp_path / "out\x1b[2J"
    shutil.copy(scan[0], ct)
    question = "Where is it?\x1b]0;title\x07\nHere?"
    words = ["analyze", "-i", str(ct), "-o", str(out), "--force", "-q", question]
    assert main(words) == 0
    first = (out / "report.json").stat().st_ino
    assert main([*words, "--overwrite"]) == 0
    assert (out / "report.json").stat().st_ino != first
    (out / "notes.txt").write_text("mine")
    assert main([*words, "--overwrite"]) == 2
    assert (out / "notes.txt").read_text() == "mine"
    captured = capsys.readouterr()
    assert "red [31m : Where is it? ]0;title  Here?\n" in captured.out
    assert "found notes.txt, which is no part of a report" in captured.err
    for text in (captured.out, captured.err):
        assert not [c for c in text if c != "\n" and not c.isprintable()]


# ----------------------------------------------------------------- bad input


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


def test_train_refuses_an_unknown_field(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = Path(__file__).parents[2] / "configs" / "nano.py"
    words = ["train", "--config", str(config), "--workdir", str(tmp_path / "run")]
    assert main([*words, "--config.stepz=3"]) == 2
    assert main([*words, "--config.steps=many"]) == 2
    assert main([*words, "--steps=3"]) == 2
    assert capsys.readouterr().err.count("\n") == 3
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("words", "code"), [((), 0), (("--preempted-exit-code", "75"), 75)])
def test_a_stopped_training_ends_as_its_launcher_asks(
    words: tuple[str, ...],
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def train(*_: object) -> None:
        raise Stopped("at step 4 of 6")

    monkeypatch.setattr("tumorchain_jax.training.registry.train", train)
    config = str(Path(__file__).parents[2] / "configs" / "nano.py")
    assert main(["train", "--config", config, "--workdir", str(tmp_path), *words]) == code
    told = "tumorchain: stopped at step 4 of 6; rerun the same command to resume\n"
    assert capsys.readouterr().err == told


def test_a_reader_that_has_seen_enough() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "tumorchain_jax.cli.main", "segment", "--list-classes"]
    # Buffered, so that the pipe is found closed when all is said.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        command, stdout=writing, stderr=subprocess.PIPE, text=True, env=environment, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")
