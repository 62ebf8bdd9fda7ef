"""`tumorchain evaluate`, as a user calls it."""

import json
import shutil
from pathlib import Path

import pytest

from tumorchain_jax import NOTICE
from tumorchain_jax.cli.main import main
from tumorchain_jax.evaluation.items import json_lines, make_item, read_items
from tumorchain_jax.phantoms.patient import make_patient
from tumorchain_jax.phantoms.records import patient_records
from tumorchain_jax.pretrained import NANO_CHECKPOINT
from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.weights.measured import MEASURED_FILES, write_training
from tumorchain_jax.weights.model_folder import load_model, weights_sha256
from tumorchain_jax.weights.scores import DIGITAL


def test_rescore_needs_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    patient = make_patient(2)
    items = [make_item(r, r.answer, "none") for r in patient_records(patient, 0)]
    (tmp_path / "saved.jsonl").write_text(json_lines(items))
    words = ["evaluate", "--rescore", str(tmp_path / "saved.jsonl"), "-o", str(tmp_path / "out")]
    assert main([*words, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["average"], printed["n"], printed["patients"]) == (100.0, len(items), 1)
    for row in printed["subtasks"].values():
        assert {"accuracy", "n", "ci95", "majority", "text_only"} <= set(row)
    out = tmp_path / "out"
    assert json.loads((out / "score.json").read_text()) == printed
    assert read_items(out / "items.jsonl") == items
    text = (out / "score.txt").read_text()
    assert NOTICE in text
    assert "organ of the tumour, " in text
    assert "Reports by organ of the tumour" in text
    assert not (out / "failures.html").exists()  # chains need a model
    assert "<svg" in (out / "score.svg").read_text()
    assert main(words) == 2  # the folder is there already
    assert "an existing folder" in capsys.readouterr().err
    assert main(["evaluate", "--rescore", str(tmp_path / "none.jsonl")]) == 2
    assert "expected the items.jsonl of `tumorchain evaluate -o`" in capsys.readouterr().err


@pytest.mark.system(haste=True)
def test_phantoms_are_asked_and_wrong_answers_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, model = tmp_path / "out", tmp_path / "model"
    shutil.copytree(NANO_CHECKPOINT, model)
    for name in MEASURED_FILES:
        (model / name).unlink(missing_ok=True)
    words = ["evaluate", "-c", str(model), "--phantoms", "1", "--seed"]
    write_training(model, weights_sha256(model), [(0, 5)])
    assert main([*words, "4"]) == 2
    assert "4 to 4, which share patients with training (0 to 4)" in capsys.readouterr().err
    assert main([*words, "7", "-o", str(out), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    items = read_items(out / "items.jsonl")
    assert {path.name for path in out.iterdir()} == {
        "items.jsonl",
        "score.json",
        "score.txt",
        "score.svg",
        "reliability.svg",
        "failures.html",
    }
    assert printed["n"] == len(items)
    assert {item.patient for item in items} == {"phantom-7"}
    wrong = sum(not item.right for item in items)
    assert f"{wrong} of {len(items)} answers are wrong" in (out / "failures.html").read_text()
    assert not list(tmp_path.glob(".out*"))
    row = printed["selective"]
    assert row["n"] == row["with_confidence"] == len(items)  # nano's text always has a conclusion
    assert row["answered"] == sum(not item.withheld for item in items)
    assert all((item.log_probability or 0) <= 0 for item in items)
    found = load_model(model).measured.domains[DIGITAL]  # the score travels with the model
    assert (found.patients, found.seeds) == (1, (7, 1))
    of_shape = found.subtasks["shape"]
    assert of_shape.n == printed["subtasks"]["shape"]["n"]
    assert of_shape.accuracy == printed["subtasks"]["shape"]["accuracy"]


def test_dice_of_a_segmenter_on_phantoms(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[object] = []

    class Perfect:
        organs = frozenset({"liver", "colon"})

        def __init__(self, weights: object = None):
            asked.append(weights)

        def __call__(self, ct: Volume) -> Volume:
            return make_patient(int(ct.source.split()[-1])).labels

    for maker in ("make_segmenter", "nano_segmenter"):
        monkeypatch.setattr(f"tumorchain_jax.segmentation.factory.{maker}", Perfect)
    words = ["evaluate", "--dice", "--phantoms", "2", "--seed", "7"]
    assert main([*words, "--json"]) == 0
    dice = json.loads(capsys.readouterr().out)
    assert dice["liver"] == {"n": 2, "mean": 1.0, "ci95": [1.0, 1.0]}
    assert set(dice) == {"liver", "colon"}  # what the segmenter knows
    assert main([*words, "--segment", "weights"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["organ", "Dice", "95", "%", "from", "to", "n"]
    assert ["liver", "1.000", "1.000", "1.000", "2"] in [line.split() for line in lines]
    assert lines[-1] == NOTICE
    assert asked == [None, "weights"]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--data", "{empty}"], "empty: dataset.json: found none"),
        (["--data", "{empty}/none"], "none: dataset.json: found none"),
        (["--data", "{empty}", "--phantoms", "100"], "not allowed with argument"),
        (["--data", "{empty}", "--rescore", "x"], "not allowed with argument"),
        (["--data", "{empty}", "-c", "{empty}"], "empty: config.json: found none"),
        (["--data", "{empty}", "--dice"], "--dice: found another source"),
        (["--data", "{empty}", "--segment"], "--segment: found a data set, expected scans"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str], found: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    output = [] if "--dice" in words else ["-o", str(tmp_path / "out")]
    words = [word.format(empty=tmp_path / "empty") for word in words]
    try:
        code = main(["evaluate", *words, *output])
    except SystemExit as stop:  # argparse
        code = stop.code
    captured = capsys.readouterr()
    assert (code, captured.out) == (2, "")
    assert captured.err.count("\n") == 1
    assert found in captured.err
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]
