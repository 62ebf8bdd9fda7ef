"""Readers, disputes and the arbiter: what is agreed, who decided, and which files are refused."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from bust_pictures import PLANTED

from tumorchain_jax.cli.main import main
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.bust.adjudicate import adjudicate, read_reference
from tumorchain_jax.evaluation.bust.page import write_pages
from tumorchain_jax.evaluation.bust.simulate import prove, true_readings
from tumorchain_jax.evaluation.bust.study import Study, file_json, read_readers, read_study
from tumorchain_jax.ultrasound.lesion import read_manifest
from tumorchain_jax.ultrasound.lexicon import load_lexicon

LEXICON = load_lexicon()
NAMES = ("ann", "bob", "cy")


@pytest.fixture
def study(cases: Path, tmp_path: Path) -> Study:
    return write_pages(cases, tmp_path / "study", NAMES, "dee", 3, LEXICON)


@pytest.fixture
def truth(cases: Path) -> dict[str, dict[str, Any]]:
    return true_readings({row.id: row.label for row in read_manifest(cases)}, LEXICON, 1)


def _write(
    folder: Path, study: Study, readings: dict[str, dict[str, dict[str, Any]]]
) -> list[Path]:
    paths = []
    for reader, read in readings.items():
        timed = {case: {**each, "at": 1_700_000_000_000} for case, each in read.items()}
        paths.append(folder / f"{reader}.json")
        paths[-1].write_bytes(file_json(study, reader, timed))
    return paths


def _mass(truth: dict[str, dict[str, Any]]) -> list[str]:
    return [case for case, reading in sorted(truth.items()) if reading["finding"] == "mass"]


def test_pages_tell_nothing_and_differ_in_order(cases: Path, study: Study, tmp_path: Path) -> None:
    orders = []
    for reader in NAMES:
        html = (tmp_path / "study" / f"reading-{reader}.html").read_text()
        for word in (PLANTED, "malignant_", '"benign"', "Logiq", "images/", "http://", "https://"):
            assert word not in html
        data = json.loads(re.search(r'id="data">(.*?)</script>', html, re.S)[1])
        assert set(data["cases"][0]) == {"id", "picture"}
        orders.append([each["id"] for each in data["cases"]])
    assert sorted(orders[0]) == sorted(orders[1]) == sorted(row.id for row in read_manifest(cases))
    assert orders[0] != orders[1] != orders[2]
    assert read_study(tmp_path / "study") == study


def test_agreed_fields_stay_and_the_arbiter_decides_the_rest(
    cases: Path, study: Study, truth: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    folder = tmp_path / "study"
    first, second = _mass(truth)[:2]
    other = next(v for v in LEXICON.by_name["shape"].values if v != truth[first]["shape"])
    readers = {name: {case: dict(each) for case, each in truth.items()} for name in NAMES}
    readers["bob"][first]["shape"] = other
    calm = ("composition", "calcifications", "category", "probability")
    readers["cy"][second] = {k: truth[second][k] for k in calm} | {"finding": "non_mass"}
    paths = _write(tmp_path, study, readers)
    found = adjudicate(cases, folder, study, LEXICON, paths, None)
    assert (found["disputed"], found["disputed_fields"]) == (2, 1 + 1 + 5)
    assert found["agreement"]["shape"]["pairs"]["ann and cy"]["kappa"]["value"] == 1
    assert "bob" in (folder / "reading-dee.html").read_text()
    with pytest.raises(InputError, match="none"):
        read_reference(folder, LEXICON)
    decided = {first: {"shape": other}, second: {"finding": "non_mass"}}
    arbiter = _write(tmp_path, study, {"dee": decided})[0]
    assert adjudicate(cases, folder, study, LEXICON, paths, arbiter)["complete"]
    reference = read_reference(folder, LEXICON)
    assert reference[first]["shape"] == other
    assert reference[second]["finding"] == "non_mass"
    assert "shape" not in reference[second]
    third = _mass(truth)[2]
    assert reference[third]["margin"] == truth[third]["margin"]
    log = [json.loads(line) for line in (folder / "adjudication.jsonl").read_text().splitlines()]
    assert len(log) == 7
    one = next(each for each in log if each["case"] == first)
    before = {"ann": truth[first]["shape"], "bob": other, "cy": truth[first]["shape"]}
    assert one == {
        "case": first, "field": "shape", "who": "dee", "when": "2023-11-14T22:13:20+00:00",
        "before": before, "after": other,
    }  # fmt: skip


def test_a_missing_arbiter_exits_with_2(
    cases: Path, study: Study, truth: dict[str, dict[str, Any]], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    words = ["bust", "simulate", "-i", f"{cases}", "--study", f"{tmp_path}/study"]
    assert main(words) == 0
    files = [f"{tmp_path}/study/readings-{name}.json" for name in NAMES]
    words = ["bust", "adjudicate", "-i", f"{cases}", "--study", f"{tmp_path}/study", "--files"]
    capsys.readouterr()
    assert main([*words, *files]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert main([*words, *files, "--arbiter", f"{tmp_path}/study/readings-dee.json"]) == 0
    log = (tmp_path / "study" / "adjudication.jsonl").read_text()
    assert '"who": "dee"' in log


def _other_study(content: str) -> str:
    return re.sub('"study": "[^"]*"', '"study": "0123456789abcdef"', content)


def _twice(content: str) -> str:
    case = re.search('"([0-9a-f]{12})": {', content)[1]
    return content.replace('"readings": {', f'"readings": {{ "{case}": {{"at": 1}},', 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_other_study, "this study"),
        (_twice, "twice"),
        (lambda text: text.replace('"category": "', '"category": "9', 1), "category"),
        (lambda text: re.sub('"[0-9a-f]{12}": {', '"other": {', text, count=1), "cases of"),
        (lambda text: text.replace('"at": 1700000000000', '"at": 1, "size": 3', 1), "size"),
        (lambda text: text.replace('"reader": "ann"', '"reader": "zed"'), "one of ann"),
        (lambda text: text.replace('"format": 1', '"format": 2'), "format"),
        (lambda text: text[:-40], "JSON"),
    ],
)
def test_bad_reader_files_are_refused(
    study: Study, truth: dict[str, dict[str, Any]], tmp_path: Path, change: Any, message: str
) -> None:
    paths = _write(tmp_path, study, dict.fromkeys(NAMES, truth))
    changed = change(paths[0].read_text())
    assert changed != paths[0].read_text()
    paths[0].write_text(changed)
    with pytest.raises(InputError, match=message):
        read_readers(paths, study, LEXICON)


def test_incomplete_and_repeated_readers_are_refused(
    study: Study, truth: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    paths = _write(tmp_path, study, dict.fromkeys(NAMES, truth))
    with pytest.raises(InputError, match="none of cy"):
        read_readers(paths[:2], study, LEXICON)
    with pytest.raises(InputError, match="second file of ann"):
        read_readers([*paths, paths[0]], study, LEXICON)
    part = dict(list(truth.items())[:-1])
    with pytest.raises(InputError, match="11 of 12 cases"):
        read_readers(_write(tmp_path, study, {"ann": part}), study, LEXICON)


def test_a_reading_may_not_contradict_itself(truth: dict[str, dict[str, Any]]) -> None:
    reading = dict(truth[_mass(truth)[0]])
    assert LEXICON.fault(reading) is None
    assert LEXICON.fault(reading | {"category": "1"})
    assert LEXICON.fault(reading | {"finding": "non_mass"})[0] == "shape"
    assert LEXICON.fault(reading | {"probability": 101})[0] == "probability"
    assert LEXICON.fault({k: v for k, v in reading.items() if k != "echo"})[0] == "echo"


def test_simulated_readers_are_recovered() -> None:
    found = prove(LEXICON, runs=24, cases=100, seed=1)
    for name, held in found.held.items():
        # At 95 % coverage fewer than 19 of 24 come once in 1,000.
        assert held >= 19, name
        assert abs(found.bias[name]) < 0.03
