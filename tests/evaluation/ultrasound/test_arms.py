"""`bus arms`: what is trained and asked, resumed; the bottleneck; seeds; the table and the page."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bus_looker import Looker, write_lesions
from ml_collections import ConfigDict
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from tumorchain_jax.cli.main import main
from tumorchain_jax.core.config import read_config
from tumorchain_jax.evaluation.ultrasound import arms
from tumorchain_jax.evaluation.ultrasound.chain_scores import Lesions, score
from tumorchain_jax.evaluation.ultrasound.concepts import bottleneck, references
from tumorchain_jax.evaluation.ultrasound.replies import Reply
from tumorchain_jax.ultrasound.chains.record import Levels

NAMES = [f"{number:016x}" for number in range(60)]
TRUE = np.arange(60) % 3 == 0
FOLDS = np.arange(60) % 4


def lesions() -> Lesions:
    rng = np.random.default_rng(0)
    shapes = np.where(rng.random(60) < 0.5, "oval", "irregular")
    truth = [
        Levels.of({"label": ["malignant" if own else "benign"], "shape": [shape]})
        for own, shape in zip(TRUE, shapes.tolist(), strict=True)
    ]
    return Lesions(NAMES, truth, NAMES, FOLDS, ["breast"] * 60)


def written(seed: int) -> dict[str, Reply]:
    """Shapes that tell something of the truth; some replies break off."""
    rng = np.random.default_rng(seed)
    shapes = np.where((rng.random(60) < 0.3) ^ TRUE, "irregular", "oval").tolist()
    ends = np.where(rng.random(60) < 0.2, "ov", ". </reasoning> <answer> 0 </answer>").tolist()
    texts = zip(shapes, ends, strict=True)
    return {
        name: Reply(f"<reasoning> Its shape is {shape}{end}", float(rng.random()))
        for name, (shape, end) in zip(NAMES, texts, strict=True)
    }


def test_bottleneck_is_scikit_learns_regression_and_sees_no_label_of_its_fold() -> None:
    own, replies = lesions(), written(1)
    found = bottleneck(NAMES, own.truth, TRUE, FOLDS, replies)
    features = np.array(
        [
            [value in replies[name].parsed.levels.values.get("shape", ()) for value in columns]
            for columns in [("irregular", "oval")]
            for name in NAMES
        ],
        float,
    )
    train, test = FOLDS != 1, FOLDS == 1
    scaled = (features - features[train].mean(0)) / features[train].std(0)
    expected = LogisticRegression(tol=1e-10).fit(scaled[train], TRUE[train])
    scores = [found[name].malignant for name in np.array(NAMES)[test]]
    assert scores == pytest.approx(expected.predict_proba(scaled[test])[:, 1], abs=1e-4)
    assert all(reply.verdict == (reply.malignant >= 0.5) for reply in found.values())
    turned = np.where(test, ~TRUE, TRUE)
    again = bottleneck(NAMES, own.truth, turned, FOLDS, replies)
    assert [again[name].malignant for name in np.array(NAMES)[test]] == scores


def test_references_leave_out_lesions_that_they_say_nothing_of() -> None:
    own = lesions()
    truth = [
        Levels.of({**each.values, "category": ["5" if hit else "3"]}) if number < 30 else each
        for number, (each, hit) in enumerate(zip(own.truth, TRUE, strict=True))
    ]
    box = {"x": 1, "y": 2, "width": 20, "height": 10}
    records: list[dict[str, Any]] = [{"box": box, "width": 40, "height": 40} for _ in NAMES]
    records[7]["box"] = None
    found = references(records, truth, TRUE, FOLDS)
    assert found["birads"].applies.tolist() == [number < 30 for number in range(60)]
    assert roc_auc_score(TRUE[:30], found["birads"].scores[:30]) == 1
    assert np.flatnonzero(~found["box"].applies).tolist() == [7]


def test_seeds_are_averaged_and_parsed_apart() -> None:
    own, seeds = lesions(), [written(1), written(2)]
    arm = score(own, {"arm": seeds})["arms"]["arm"]
    each = [
        np.array([r[n].malignant if r[n].verdict is not None else 0.5 for n in NAMES])
        for r in seeds
    ]
    assert arm["auroc"][0] == pytest.approx(roc_auc_score(TRUE, np.mean(each, axis=0)), abs=1e-12)
    assert arm["auroc_of_seeds"] == pytest.approx([roc_auc_score(TRUE, e) for e in each], abs=1e-12)
    said = [[r[n].verdict is not None for n in NAMES] for r in seeds]
    assert arm["unparsed"] == 120 - np.sum(said)
    assert arm["accuracy"][0] == pytest.approx(np.sum(said & ~TRUE) / 120, abs=1e-12)
    assert arm["descriptors"]["shape"]["n"] == 60


@pytest.mark.program
def test_arms_are_trained_once_and_asked_about_their_own_fold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data, trained = write_lesions(tmp_path), []

    def train(config: ConfigDict, folder: Path) -> None:
        trained.append((folder.name, config.data.rows, config.steps, config.data.length))
        common = folder.parent / f"start-{folder.name[-1]}" / "export"
        assert config.init == ("" if folder.name.startswith("start") else str(common))
        (folder / "export").mkdir(parents=True)
        (folder / "export" / "config.json").write_text("{}")

    def load(export: Path) -> Any:
        model = Looker()
        model.is_look = export.parent.name.startswith("look")
        return model

    monkeypatch.setattr(arms, "train", train)
    monkeypatch.setattr(arms.VisionLanguageModel, "load", load)
    words = ["bus", "arms", "--config", "bus_nano_vlm", "--data", str(data), "--workdir"]
    words += [str(tmp_path / "run"), "--common-steps", "7", "--config.steps=3"]
    words += ["--page", str(tmp_path / "page.html")]
    assert main([*words, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert [name for name, *_ in trained] == [
        f"{arm}-{fold}" for fold in (0, 1) for arm in ("start", "direct", "chain", "look")
    ]
    assert trained[0][1:3] == ("direct-without-0.jsonl", 7)
    assert trained[6][1:3] == ("chain-without-1.jsonl", 3)
    assert trained[1][3] < trained[2][3] < trained[3][3]
    assert (values["folds"], values["of_folds"], values["seeds"]) == ([0, 1], 2, 1)
    assert values["all"]["arms"]["direct"]["auroc"][0] == 1
    assert values["described"]["beside"]["descriptors"]["auroc"][0] == 1
    assert values["described"]["n"] < values["all"]["n"]
    assert values["described"]["arms"].keys() == {"direct", "chain", "look", "bottleneck"}
    assert values["controls"]["direct, text"]["auroc"][0] == 0.5
    page = (tmp_path / "page.html").read_text()
    right, wrong = page.split("Chain: right")[1].split("Look: right")[0].split("Chain: wrong")
    assert right.count("<figure>") == 5
    assert 1 <= wrong.count("<figure>") <= 4  # those that break off
    assert "Reader:" in page
    assert "folds 0, 1 of 2; 1 seed(s)" in (tmp_path / "run" / "arms.txt").read_text()
    count = len(trained)
    plan = arms.Plan(data, tmp_path / "run", ("direct", "look"), (0,), ("text",), 7)
    arms.run_arms(read_config(Path("bus_nano_vlm"), ["--config.steps=3"]), plan)
    assert len(trained) == count
