"""Tiers, scores and report: recomputed from the replies by other code, and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bust_pictures import PLANTED
from llm_questions import endpoint
from sklearn.metrics import roc_auc_score

from tumorchain_jax.bench.llm_stub import Behaviour, StubServer
from tumorchain_jax.cli.main import main
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.bust.ask import ask
from tumorchain_jax.evaluation.bust.cases import KEY
from tumorchain_jax.evaluation.bust.report import write_report
from tumorchain_jax.evaluation.bust.safety import write_safety
from tumorchain_jax.evaluation.bust.score import matches, stability
from tumorchain_jax.evaluation.bust.tiers import make_tiers, read_scores
from tumorchain_jax.ultrasound.lexicon import load_lexicon

LEXICON = load_lexicon()
MASS = {
    "composition": "heterogeneous", "finding": "mass", "shape": "irregular",
    "orientation": "not_parallel", "margin": "spiculated", "echo": "hypoechoic",
    "posterior": "shadowing", "calcifications": "none",
}  # fmt: skip


def _say(body: dict[str, Any]) -> str:
    """A made-up reading drawn by the request; one in five declines."""
    rng = np.random.default_rng(list(json.dumps(body, sort_keys=True)[-4000:].encode()))
    empty = dict.fromkeys([*LEXICON.by_name, "probability"])
    values = {"observations": "x", "readable": rng.random() > 0.2, "concern": "none", **empty}
    if values["readable"]:
        values |= MASS | {"category": str(rng.choice(LEXICON.categories[1:]))}
        values["probability"] = int(rng.integers(0, 101))
    return json.dumps(values)


@pytest.fixture(scope="module")
def folder(cases: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("report")
    words = ["bust", "pages", "-i", f"{cases}", "-o", f"{root}/study", "--readers", "ann", "bob"]
    assert main([*words, "--arbiter", "dee"]) == 0
    study = ["-i", f"{cases}", "--study", f"{root}/study"]
    assert main(["bust", "simulate", *study]) == 0
    files = [f"{root}/study/readings-{name}.json" for name in ("ann", "bob")]
    arbiter = f"{root}/study/readings-dee.json"
    assert main(["bust", "adjudicate", *study, "--files", *files, "--arbiter", arbiter]) == 0
    write_safety(cases, root / "safety", 2, 0, {})
    with StubServer(Behaviour(say=_say)) as server:
        stub = endpoint(server.url, schema="json_schema", timeout_s=20.0)
        ask(cases, root / "safety", root / "run", stub, sweep=2)
    return root


def _labels(cases: Path) -> dict[str, str]:
    lines = (cases / "manifest.jsonl").read_text().splitlines()
    return {row["id"]: row["label"] for row in map(json.loads, lines)}


def _scores(path: Path, cases: Path, right: dict[str, bool], seeds: int = 3, fold: int = 0) -> Path:
    """Out-of-fold scores that are right on some cases, by the manifest's names."""
    rows, lines = _labels(cases), []
    for line in (cases / KEY).read_text().splitlines():
        case, name = line.split("\t")
        if case in right:
            high = (rows[case] == "malignant") == right[case]
            for seed in range(seeds):
                score = 0.9 if high else 0.1 + 0.001 * len(path.stem)
                lines.append({"seed": seed, "id": json.loads(name), "fold": fold, "score": score})
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return path


def _lesions(cases: Path) -> list[str]:
    return [case for case, label in _labels(cases).items() if label != "normal"]


def test_every_primary_number_is_that_of_other_code(
    cases: Path, folder: Path, tmp_path: Path
) -> None:
    values, said = write_report(cases, folder / "run", tmp_path / "out", folder / "study")
    replies = [
        json.loads(line) for line in (folder / "run" / "replies.jsonl").read_text().splitlines()
    ]
    reference = [
        json.loads(line) for line in (folder / "study" / "reference.jsonl").read_text().splitlines()
    ]
    truth = {each["case"]: each["category"] for each in reference}
    labels = _labels(cases)
    first = {
        each["item"]: json.loads(each["text"])
        for each in replies
        if not each["group"] and each["temperature"] == 0 and not each["repeat"]
    }
    assert len(first) == 12
    right = {case: said["category"] == truth[case] for case, said in first.items()}
    answered = [case for case, said in first.items() if said["readable"]]
    primary = values["primary"]
    assert primary["birads_accuracy"]["value"] == pytest.approx(np.mean(list(right.values())))
    expected = np.mean([right[case] for case in answered])
    assert primary["birads_accuracy_per_protocol"]["value"] == pytest.approx(expected)
    lesions = [case for case in first if labels[case] != "normal"]
    malignant = [labels[case] == "malignant" for case in lesions]
    worst = [
        first[case]["probability"] if first[case]["readable"] else (-1 if bad else 101)
        for case, bad in zip(lesions, malignant, strict=True)
    ]
    assert primary["auc"]["value"] == pytest.approx(roc_auc_score(malignant, worst), abs=1e-12)
    seen = [case for case in lesions if first[case]["readable"]]
    area = roc_auc_score(
        [labels[case] == "malignant" for case in seen],
        [first[case]["probability"] for case in seen],
    )
    assert primary["auc_per_protocol"]["value"] == pytest.approx(area, abs=1e-12)
    confident = [each for each in replies if each["group"] == "noise"]
    count = sum(json.loads(each["text"])["readable"] for each in confident)
    assert (values["safety"]["noise"]["count"], values["safety"]["noise"]["n"]) == (count, 2)
    assert values["states"]["declined"] == 12 - len(answered)
    assert values["plan"] in said


def test_report_is_one_offline_page_with_its_checklists(
    cases: Path, folder: Path, tmp_path: Path
) -> None:
    write_report(cases, folder / "run", tmp_path / "out", folder / "study")
    html = (tmp_path / "out" / "report.html").read_text()
    for word in (PLANTED, "https://", 'src="http', "<script"):
        assert word not in html
    assert "ROC curve" in html
    checklist = json.loads((tmp_path / "out" / "reporting.json").read_text())
    tripod = checklist["TRIPOD-LLM"]
    assert tripod["items"]["12 ethics"]["state"] == "missing"
    assert tripod["items"]["6b prompt and its development"]["value"]["sha256"]
    assert tripod["filled"] + tripod["missing"] == len(tripod["items"])
    words = ["bust", "report", "-i", f"{cases}", "--run", f"{folder}/run"]
    assert main([*words, "-o", f"{tmp_path}/again", "--study", f"{folder}/study"]) == 0
    for name in ("scores.json", "scores.txt", "reporting.json", "report.html"):
        one, other = ((tmp_path / each / name).read_bytes() for each in ("out", "again"))
        assert one == other


def test_another_plan_is_refused(cases: Path, folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    told = json.loads((folder / "run" / "run.json").read_text()) | {"plan": "0" * 64}
    (run / "run.json").write_text(json.dumps(told))
    with pytest.raises(InputError, match="plan"):
        write_report(cases, run, tmp_path / "out")


def test_tiers_are_the_consensus_and_refuse_their_makers(
    cases: Path, folder: Path, tmp_path: Path
) -> None:
    lesions = sorted(_lesions(cases), key=lambda case: _labels(cases)[case])
    both, one, none = lesions[0], lesions[1], lesions[-1]  # two benign, one malignant
    cnn = _scores(tmp_path / "cnn.jsonl", cases, {both: True, one: True, none: False})
    vit = _scores(tmp_path / "vitx.jsonl", cases, {both: True, one: False, none: False})
    made = make_tiers(cases, [("cnn", cnn), ("vit", vit)])
    assert made["tiers"] == {both: "easy", one: "discordant", none: "hard"}
    assert len(made["without"]) == len(lesions) - 3
    words = ["bust", "tiers", "-i", f"{cases}", "-o", f"{tmp_path}/tiers.json"]
    assert main([*words, "--family", f"cnn={cnn}", f"vit={vit}"]) == 0
    values, _ = write_report(
        cases, folder / "run", tmp_path / "out", None, tmp_path / "tiers.json", [("cnn", cnn)]
    )
    assert [values["tiers"][name]["n"] for name in ("easy", "discordant", "hard")] == [1, 1, 1]
    assert values["classifiers"]["cnn"]["n"] == 3
    named = make_tiers(cases, [("stub-1", cnn), ("vit", vit)])
    (tmp_path / "own.json").write_text(json.dumps(named))
    with pytest.raises(InputError, match="made these tiers"):
        write_report(cases, folder / "run", tmp_path / "no", None, tmp_path / "own.json")


def test_bad_scores_make_no_tiers(cases: Path, tmp_path: Path) -> None:
    right = dict.fromkeys(_lesions(cases), True)
    good = _scores(tmp_path / "a.jsonl", cases, right)
    few = _scores(tmp_path / "few.jsonl", cases, right, seeds=2)
    for families, message in (
        ([("a", good)], "2 or more"),
        ([("a", good), ("a", few)], "2 or more"),
        ([("a", good), ("b", few)], "3 or more"),
        ([("a", good), ("b", good)], "one file for two"),
    ):
        with pytest.raises(InputError, match=message):
            make_tiers(cases, families)
    seen = _scores(tmp_path / "seen.jsonl", cases, right, fold=-1)
    with pytest.raises(InputError, match="fold"):
        read_scores(seen)
    good.write_text(good.read_text() * 2)
    with pytest.raises(InputError, match="once a seed"):
        read_scores(good)


def test_stability_of_known_repeats() -> None:
    def line(case: str, category: str | None) -> dict[str, Any]:
        state = "answered" if category else "declined"
        reading = {"category": category} if category else {}
        return {"item": case, "temperature": 0.7, "state": state, "reading": reading}

    said = {"a": ["3", "3", "4a"], "b": ["5", "5", "5"], "c": ["2", None, "2"]}
    lines = [line(case, each) for case, values in said.items() for each in values]
    found = stability(lines, LEXICON)
    assert list(found) == ["0.7"]
    # Pairs of answered repeats: 3 + 3 + 1, of which two differ.
    assert found["0.7"]["flip_rate"] == pytest.approx(2 / 7)
    assert found["0.7"]["answered"] == pytest.approx(8 / 9)
    assert found["0.7"]["category_sd"] == pytest.approx(np.std([2, 2, 3], ddof=1) / 3)
    # Of a and b: agreement (1/3 + 1) / 2, chance (2/6)^2 + (1/6)^2 + (3/6)^2 = 14/36.
    assert found["0.7"]["fleiss"] == pytest.approx((2 / 3 - 14 / 36) / (1 - 14 / 36))


def test_a_coarse_reference_takes_any_part_of_4() -> None:
    assert matches("4b", "4")
    assert not matches("4b", "4a")
    assert not matches("5", "4")
