"""`tumorchain bus` from pictures to predictions, on few small pictures and a tiny network."""

import io
import json
import shutil
from collections.abc import Iterable
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bus_pictures import CASES, write_pictures

from tumorchain_jax.cli.main import main
from tumorchain_jax.core.config import read_config
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.ultrasound.classifier import Classifier
from tumorchain_jax.evaluation.ultrasound.crossval import cross_validate
from tumorchain_jax.evaluation.ultrasound.guard import (
    Guard,
    appearances,
    fit_guard,
    load_guard,
    measured_guard,
    save_guard,
    threshold_of,
)
from tumorchain_jax.evaluation.ultrasound.predict import predict
from tumorchain_jax.pretrained import BUS_NANO, NANO_CHECKPOINT
from tumorchain_jax.ultrasound.lesion import read_manifest
from tumorchain_jax.ultrasound.picture import read_picture
from tumorchain_jax.ultrasound.view import VIEWS, render
from tumorchain_jax.weights.classifier_folder import load_classifier

pytestmark = pytest.mark.program
OPTIONS = [
    *("--config.data.folds=2", "--config.data.side=32", "--config.steps=2"),
    *("--config.batch_size=4", "--config.log_every=100"),
    *("--config.model.blocks=(1,)", "--config.model.width=4", "--config.model.neck=4"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepared pictures, and a cross-validation with its shipped classifier: `said` is its JSON."""
    root = tmp_path_factory.mktemp("bus")
    write_pictures(root / "busbra")
    assert main(["bus", "prepare", "-i", f"{root}/busbra", "-o", f"{root}/data"]) == 0
    words = ["bus", "crossval", "--config", "bus_nano", "--data", f"{root}/data"]
    words += ["--workdir", f"{root}/work", "--ship", f"{root}/model", "--json", *OPTIONS]
    with redirect_stdout(io.StringIO()) as said:
        assert main(words) == 0
    (root / "said").write_text(said.getvalue())
    return root


def test_crossval_prints_the_baselines_beside(folder: Path) -> None:
    values = json.loads((folder / "work" / "crossval.json").read_text())
    printed = json.loads((folder / "said").read_text())
    assert printed.pop("guard")["breast_pictures"] == values["pictures"]
    assert json.dumps(printed) == json.dumps(values)
    assert values["pictures"] + values["test_part"] == CASES
    assert {"box", "size", "birads", "majority"} <= values["baselines"].keys()
    # Box and category tell these pictures apart.
    assert values["baselines"]["box"]["auroc"]["value"] == 1
    assert values["baselines"]["birads"]["auroc"]["value"] == 1
    low, high = values["classifier"]["auroc"]["ci95"]
    assert 0 <= low <= values["classifier"]["auroc"]["value"] <= high <= 1
    said = (folder / "work" / "crossval.txt").read_text()
    assert "lesion box alone" in said
    lines = (folder / "work" / "scores.jsonl").read_text().splitlines()
    assert len(lines) == values["pictures"]
    page = (folder / "model" / "gallery.html").read_text()
    assert "probability of malignancy" in page
    assert "http" not in page.split("<body>")[1]


def test_folds_that_are_trained_are_not_trained_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = read_config(Path("bus_nano"), OPTIONS)
    config.data.folder = str(folder / "data")

    def refuse(*args: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr("tumorchain_jax.evaluation.ultrasound.crossval.train", refuse)
    before = (folder / "work" / "scores.jsonl").read_bytes()
    cross_validate(config, folder / "work", [0])
    assert (folder / "work" / "scores.jsonl").read_bytes() == before


def test_predict_refuses_what_is_unlike_its_training(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = folder / "data" / "images" / "bus-bra_bus_0001-s.png"
    words = ["bus", "predict", "-i", str(own), "--json", "-c"]
    assert main([*words, f"{folder}/model"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["readable"] == (row["distance"] <= row["threshold"])
    shutil.copytree(folder / "model", tmp_path / "strict")
    guard = load_guard(tmp_path / "strict")
    save_guard(tmp_path / "strict", replace(guard, threshold=row["distance"] / 2))
    assert main([*words, f"{tmp_path}/strict"]) == 0
    strict = json.loads(capsys.readouterr().out)
    assert (strict["readable"], strict["malignant"]) == (False, None)
    assert strict["said"] == "not a readable B-mode breast image"
    save_guard(tmp_path / "strict", Guard(guard.mean[1:], guard.precision[1:, 1:]))
    with pytest.raises(InputError, match="ship the classifier again"):
        load_guard(tmp_path / "strict")


def test_predict_goes_on_after_a_picture_that_cannot_be_read(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = folder / "data" / "images" / "bus-bra_bus_0001-s.png"
    broken = tmp_path / "broken.png"
    broken.write_text("no picture")
    words = ["bus", "predict", "-c", f"{folder}/model", "-i", str(broken)]
    assert main([*words, str(own)]) == 2
    shown = capsys.readouterr()
    assert shown.out.startswith(f"{own}: ")
    assert shown.err.startswith(f"tumorchain: skipped: {broken}: format: found none")
    assert main(words) == 2
    assert capsys.readouterr().err.startswith(f"tumorchain: error: {broken}: format")


def test_predict_shows_the_view_of_the_training(folder: Path, tmp_path: Path) -> None:
    path = folder / "data" / "images" / "bus-bra_bus_0001-s.png"
    row = next(row for row in read_manifest(folder / "data") if path.name in row.image)
    own = shutil.copytree(folder / "model", tmp_path / "own")
    save_guard(own, replace(load_guard(own), threshold=float("inf")))
    fields = json.loads((own / "config.json").read_text())
    for view in VIEWS:
        (own / "config.json").write_text(json.dumps(fields | {"view": view}))
        shown = render(folder / "data", row, view, fields["side"])
        expected = Classifier(load_classifier(own), flips=True).scores(shown[None])[0]
        assert next(predict(own, [path], row.box))["malignant"] == round(float(expected), 4)
    (own / "config.json").write_text(json.dumps(fields | {"view": "side"}))
    with pytest.raises(InputError, match="view: found side"):
        next(predict(own, [path], row.box))


def test_guard_tells_numbers_of_another_kind() -> None:
    rng = np.random.default_rng(0)
    mix = rng.normal(size=(6, 6))
    own, other = rng.normal(size=(300, 6)) @ mix, rng.normal(2, 1, size=(100, 6)) @ mix
    guard = fit_guard(own[:200])
    limit = threshold_of(guard.distances(own[200:]))
    assert (guard.distances(own[200:]) > limit).mean() <= 0.02
    assert (guard.distances(other) > limit).mean() > 0.5


def test_guard_is_measured_on_data_sets_that_it_was_not_fitted_on() -> None:
    rng = np.random.default_rng(0)
    own = rng.normal(size=(400, 5))
    sources = np.repeat(["a", "b"], 200)
    own[sources == "b"] += 3
    others = {"near": rng.normal(size=(50, 5)), "far": rng.normal(20, 1, size=(50, 5))}
    guard, values = measured_guard(own, np.arange(400) % 5, sources, others)
    assert values["breast_refused"] == pytest.approx(0.02, abs=0.003)
    assert values["by_set"]["a"]["n"] == 200
    assert values["left_out"]["a"]["refused"] > 0.9  # b says nothing of it
    assert values["others"]["far"]["refused"] == values["others"]["far"]["auroc"]["value"] == 1
    assert values["others"]["near"]["refused"] < 0.2
    low, high = values["others"]["near"]["ci95"]
    assert low <= values["others"]["near"]["refused"] <= high
    assert np.isfinite(guard.threshold)


def test_shipped_guard_on_real_pictures(shared_data: Path) -> None:
    """A full-size original and its small copy alike; of another kind none or nearly none."""
    guard = load_guard(BUS_NANO)

    def distances(files: Iterable[Path]) -> np.ndarray:
        return guard.distances(appearances(read_picture(each).grey for each in files))

    busi = shared_data / "bus-busi"
    originals = [x for x in sorted((busi / "originals").iterdir()) if "_mask" not in x.name]
    copies = [next((busi / "Dataset_BUSI_with_GT").rglob(x.name)) for x in originals]
    np.testing.assert_allclose(distances(originals), distances(copies), rtol=0.05)
    breast = [*sorted((shared_data / "bus-bra" / "Images").iterdir())[::14], *originals]
    assert (distances(breast) > guard.threshold).mean() <= 0.1
    abdomen = sorted((shared_data / "vqa-rad-abdomen" / "images").iterdir())[::2]
    assert (distances(abdomen) > guard.threshold).mean() >= 0.9


def test_evaluate_scores_the_test_part_alone(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["bus", "evaluate", "-c", f"{folder}/model", "--data", f"{folder}/data", "--json"]
    assert main(words) == 0
    values = json.loads(capsys.readouterr().out)
    work = json.loads((folder / "work" / "crossval.json").read_text())
    assert values["n"] == values["guard"]["lesions"]["n"] == work["test_part"]


def test_shipped_folder_is_read_back(folder: Path) -> None:
    read = load_classifier(folder / "model")
    assert read.classes == ("benign", "malignant")
    assert any(path.endswith("running_var") for path in read.arrays)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["crossval", "--config", "nano", "--data", "d", "--workdir", "w"], "task"),
        (["predict", "-c", "none", "-i", "a.png"], "config.json"),
        (["predict", "-c", str(NANO_CHECKPOINT), "-i", "a.png"], "another model"),
        (["predict", "-c", "none", "-i", "a.png", "--box", "1,2"], "--box"),
        (["evaluate", "-c", "none", "--data", "d"], "config.json"),
        (["shift", "--config", "nano", "--data", "d", "--workdir", "w"], "task"),
    ],
)
def test_bad_words_are_refused_in_one_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bus", *words]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert said in captured.err


@pytest.mark.system(haste=True)
def test_shift_pairs_every_style_with_none(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["bus", "shift", "--config", "bus_nano", "--data", f"{folder}/data", "--json"]
    words += ["--workdir", str(tmp_path), "--styles", "fda", *OPTIONS]
    assert main(words) == 0
    none, fda = json.loads(capsys.readouterr().out)
    assert none["shift"] == fda["shift"] == "Logiq 7 to others of its set"
    assert (none["style"], fda["style"]) == ("none", "fda")
    assert (none["gain"]["value"], none["gain"]["ci95"]) == (0, [0, 0])
    assert fda["gain"]["value"] == pytest.approx(fda["auroc"]["value"] - none["auroc"]["value"])
    assert [path.name for path in (tmp_path / "0").iterdir() if "fda" in path.name]
    assert main([*words, "--device", "Logiq 9"]) == 2
    assert "another set or device" in capsys.readouterr().err
