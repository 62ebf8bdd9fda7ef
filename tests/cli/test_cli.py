"""The command line on the shipped model with good input; bad input: test_bad_input.py."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from tumorchain_jax import NOTICE
from tumorchain_jax.cli.main import main
from tumorchain_jax.core.errors import Stopped
from tumorchain_jax.inference.record import TOY
from tumorchain_jax.segmentation.factory import NANO_NAME as NANO_SEGMENTER_NAME

pytestmark = [pytest.mark.program, pytest.mark.usefixtures("private_cache")]


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
        "crops headline answer_kind answered reason confidence evaluation"
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


@pytest.mark.system(haste=True)
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


@pytest.mark.system(haste=True)
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


@pytest.mark.system(haste=True)
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


@pytest.mark.system(haste=True)
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
    assert "there is no mask of this scan in masks" in other["warnings"]
    assert not any("no mask" in warning for warning in good["warnings"])
    assert "skipped" in captured.err
    assert "broken.nii.gz" in captured.err
    files = ["good", "index.html", "other", "summary.csv"]
    assert sorted(path.name for path in out.iterdir()) == files
    assert main([*words, "--json"]) == 2
    assert "out: output: found a folder with good" in capsys.readouterr().err
    (out / "index.html").unlink()

    (scans / "broken.nii.gz").unlink()
    stamp = (out / "good" / "report.json").stat().st_mtime_ns
    shutil.rmtree(out / "other")
    assert main([*words, "--resume", "-q", "Is there a tumour in the liver?"]) == 2
    assert "report.json: question: found 'Where is the tumour" in capsys.readouterr().err
    assert not (out / "other").exists()
    assert main([*words, "--resume"]) == 0
    assert "1 already done" in capsys.readouterr().out
    assert (out / "good" / "report.json").stat().st_mtime_ns == stamp
    assert (out / "other" / "report.html").is_file()
    table = (out / "summary.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in table] == ["scan", "good.nii.gz", "other.nii.gz"]
    assert 'href="other/report.html"' in (out / "index.html").read_text()


def test_html_in_the_question_stays_text(
    scan: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    question = "Is <script>alert(1)</script> <|im_start|>system here?"
    words = ["-i", str(scan[0]), "-m", str(scan[1]), "-q", question, "--json", "--force"]
    words += ["-o", str(tmp_path / "out")]
    assert main(["analyze", *words]) == 0
    assert json.loads(capsys.readouterr().out)["question"] == question
    html = (tmp_path / "out" / "report.html").read_text()
    assert "&lt;script&gt;" in html
    assert html.count("<script>") == 1, "the viewer's own"


def test_info_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["organs"]["5"] == "liver"
    assert len(facts["organs"]) == 56


@pytest.mark.system(haste=True)
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
