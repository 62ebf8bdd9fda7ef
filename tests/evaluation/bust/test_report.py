"""Tiers, scores and report: recomputed from the replies by other code, and what is refused."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bust_pictures import PLANTED
from bust_recount import recount
from bust_replies import say, stub

from tumorchain_jax.bench.llm_stub import Behaviour, StubServer
from tumorchain_jax.cli.main import main
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.bust.ask import ask
from tumorchain_jax.evaluation.bust.cases import KEY
from tumorchain_jax.evaluation.bust.plan import plan
from tumorchain_jax.evaluation.bust.report import write_report
from tumorchain_jax.evaluation.bust.safety import write_safety
from tumorchain_jax.evaluation.bust.score import matches, stability
from tumorchain_jax.evaluation.bust.tiers import make_tiers, read_scores, write_tiers
from tumorchain_jax.ultrasound.lexicon import load_lexicon

LEXICON = load_lexicon()


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
    with StubServer(Behaviour(say=say)) as server:
        ask(
            cases, root / "safety", root / "run", stub(server.url), LEXICON, sweep=2,
            thinking=("on", "off"),
        )  # fmt: skip
        modes = Counter(body["reasoning_effort"] for body in server.bodies.values())
        assert modes["none"] >= 12 < modes["high"]
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


def test_every_number_is_that_of_other_code(
    cases: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(plan().values, "smallest_group", 5)
    lesions = sorted(_lesions(cases), key=lambda case: _labels(cases)[case])
    right = {case: number % 3 != 0 for number, case in enumerate(lesions)}
    cnn = _scores(tmp_path / "cnn.jsonl", cases, right)
    vit = _scores(tmp_path / "vitx.jsonl", cases, dict.fromkeys(lesions, True))
    tiers = tmp_path / "tiers.json"
    write_tiers(tiers, make_tiers(cases, [("cnn", cnn), ("vit", vit)]))
    study, run = folder / "study", folder / "run"
    values, said = write_report(cases, run, tmp_path / "out", study, tiers)
    again = recount(cases, run, study, tiers, least=5)
    for name in ("plan", "reference", "model", "prompt", "lexicon", "classifiers"):
        values.pop(name)
    ours, theirs = dict(_leaves(values)), dict(_leaves(again))
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert value == pytest.approx(theirs[name], abs=1e-12, nan_ok=True), name
    assert len(ours) > 250
    assert plan().sha256 in said
    # The run is not so poor that the numbers prove nothing.
    assert all(values["states"][state] for state in ("answered", "declined", "unread"))
    assert values["thinking"]["differ"] > 0
    assert list(values["groups"]) == ["source made", "device Logiq 7"]


def _leaves(values: Any, name: str = "") -> Iterator[tuple[str, float | None]]:
    if isinstance(values, dict | list):
        pairs = values.items() if isinstance(values, dict) else enumerate(values)
        for key, each in pairs:
            yield from _leaves(each, f"{name}/{key}")
    else:
        missing = values is None or values != values
        yield name, None if missing else float(values)


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
