"""A stub endpoint as the subject: named slices, a journal, replies that fail."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
from stub_judge import completion, stub

from tumorchain_jax.cli.main import main
from tumorchain_jax.evaluation.deeptumorvqa.asking import not_answerable
from tumorchain_jax.evaluation.deeptumorvqa.subtypes import SUBTYPES
from tumorchain_jax.evaluation.slices.policy import POLICIES


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    for number, name in enumerate(("ct1", "ct2")):
        voxels = np.random.default_rng(number).integers(-1000, 1000, (10, 10, 8), np.int16)
        nib.Nifti1Image(voxels, np.diag([2.0, 2.0, 5.0, 1.0])).to_filename(
            tmp_path / f"{name}.nii.gz"
        )
    return tmp_path


def test_an_endpoint_answers_and_is_not_paid_twice(
    rows: list[dict[str, Any]],
    write: Callable,
    scans: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    questions, output = str(write("q.json", rows)), tmp_path / "p.jsonl"
    down = True
    sent: list[tuple[str, ...]] = []

    def reply(asked: dict[str, Any], before: int) -> tuple[int, bytes]:
        caption, image, question, *_ = asked["messages"][1]["content"]
        sent.append((caption["type"], image["type"], asked["messages"][0]["content"]))
        if "liver" in question["text"]:
            return (422, b"{}") if down else completion("It shows one. <answer>B</answer>")
        if "volume" in question["text"]:
            return completion("About 200", "length")
        return completion("A is wrong, so <answer>D: Mild</answer>")

    with stub(reply) as (url, calls):
        config = tmp_path / "endpoints.toml"
        config.write_text(f'[endpoint.stub]\nurl = "{url}"\nmodel = "vision-1"\n')
        words = ["deeptumorvqa", "predict", "--questions", questions, "--scans", str(scans), "-o",
                 str(output), "--by", "endpoint", "stub", "--endpoints", str(config),
                 "--slices", "axial-center-1"]  # fmt: skip
        assert main(words) == 1
        assert "1 questions without a reply: rerun" in capsys.readouterr().out
        first = sum(calls.values())
        down = False
        assert main([*words, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["already_done"] == 2
        assert sum(calls.values()) == first + 1
    assert {each[:2] for each in sent} == {("text", "image_url")}
    assert all("slices of one abdominal CT" in each[2] for each in sent)
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert [line["qid"] for line in lines] == ["q1", "q3", "q2"]
    assert lines[1]["raw_output"].startswith("[ERROR] length")
    assert lines[1]["not_answerable"] == "a volume in 3D"
    assert lines[0]["model"] == "vision-1"
    assert lines[0]["input"].startswith("slices axial-center-1 v1 (")
    assert main(["deeptumorvqa", "score", "--questions", questions, "-i", str(output)]) == 0
    text = capsys.readouterr().out
    assert "not answerable from this input, no skill: a volume in 3D 1" in text
    (row,) = (line for line in text.splitlines() if line.startswith("micro, answerable"))
    assert row.split()[4:7] == ["2", "1", "100.0"]
    assert main([*words[:-1], "three-planes"]) == 2
    assert "input: found slices axial-center-1" in capsys.readouterr().err


def test_what_slices_cannot_answer_goes_by_the_subtype() -> None:
    center, many = POLICIES["axial-center-1"], POLICIES["axial-16-even"]
    unfit = {name for name, each in SUBTYPES.items() if not_answerable(each, many)}
    numbers = {name for name, each in SUBTYPES.items() if each.kind == "numeric"}
    by_hu = {"hepatic steatosis grading", "pseudocyst determination"}
    assert unfit == numbers - {"largest lesion slice"} | by_hu
    height = SUBTYPES["largest lesion slice"]
    assert not_answerable(height, center) == "a height in the scan"
