"""Measurements on disk, and in the list of cases."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.engine.agents.pipeline import process
from tumorchain_jax.engine.agents.traces import verify
from tumorchain_jax.engine.cases import read_cases
from tumorchain_jax.engine.facts import Fact, Source
from tumorchain_jax.engine.measurements import read_measurements, write_measurements

SOURCE = Source("mask", "0" * 64, 0, 0, "third_of_height")
THIRD = Fact(
    "", "liver", "", 0, "third", "upper third", "", "present", "definite", "current", SOURCE
)
VOLUME = replace(THIRD, attribute="volume", value="1400.0", unit="ml")


def test_facts_come_back_as_those_of_a_case(tmp_path: Path) -> None:
    path = tmp_path / "masks.jsonl"
    write_measurements(path, [THIRD, VOLUME])
    facts, sha256 = read_measurements(path, "a")
    assert facts == (replace(THIRD, case="a"), replace(VOLUME, case="a"))
    assert len(sha256) == 64


def test_a_listed_case_asks_where_organs_lie(tmp_path: Path) -> None:
    write_measurements(tmp_path / "masks.jsonl", [THIRD, VOLUME])
    (tmp_path / "report.txt").write_text("The liver is normal.")
    line = {"case": "a", "patient": "p", "scans": ["s"], "radiology": ["report.txt"]}
    path = tmp_path / "cases.jsonl"
    path.write_text(json.dumps(line) + "\n")
    (plain,) = read_cases(path)
    path.write_text(json.dumps(line | {"masks": "masks.jsonl"}) + "\n")
    (listed,) = read_cases(path)
    assert listed.digest != plain.digest
    case = listed.read()
    result = process(case)
    assert verify(result, case) == ()
    assert [r.answer for r in result.records if r.subtask == "organ_position"] == ["upper third"]
    write_measurements(tmp_path / "masks.jsonl", [VOLUME])
    with pytest.raises(InputError, match="other facts than when the run began"):
        listed.read()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "JSON"),
        ("{}", "fields"),
        (replace(THIRD, source=replace(SOURCE, kind="radiology")).to_json(), "a fact of a mask"),
        (replace(THIRD, polarity="absent").to_json(), "a fact of a mask"),
        (replace(THIRD, attribute="colour").to_json(), "a fact of a mask"),
        (THIRD.to_json().replace('"lesion": 0', '"lesion": -1'), "a fact of a mask"),
        (THIRD.to_json().replace('"liver"', "5"), "a fact of a mask"),
    ],
)
def test_bad_lines_are_refused(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "masks.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(InputError, match=said):
        read_measurements(path, "a")


@pytest.mark.parametrize("name", ["none.jsonl", "../masks.jsonl", "/etc/hosts"])
def test_masks_that_are_not_there_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "report.txt").write_text("The liver is normal.")
    line = {"case": "a", "patient": "p", "scans": ["s"], "radiology": ["report.txt"]}
    path = tmp_path / "cases.jsonl"
    path.write_text(json.dumps(line | {"masks": name}) + "\n")
    with pytest.raises(InputError, match="masks"):
        read_cases(path)
