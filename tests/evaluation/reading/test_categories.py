import json
from pathlib import Path

import pytest

from tumorchain_jax.evaluation.reading.answer_part import Abstained, answer_part
from tumorchain_jax.evaluation.reading.categories import OTHER, read_category, read_truth

STAGES = {"A": "T1", "B": "T2", "C": "T3", "D": "T4"}
KIDNEYS = {"A": "Left", "B": "Right", "C": "About equal"}


@pytest.mark.parametrize("text", ["pT2", "T2N1M0", "T2a", "stage T2", "B", "T2 (not T3)"])
def test_stages(text: str) -> None:
    assert read_category(STAGES, text) == "T2"


def test_what_is_denied_or_smaller_is_not_named() -> None:
    assert read_category(KIDNEYS, "Right kidney is smaller") == OTHER
    assert read_category(KIDNEYS, "not the left but the right") == "Right"
    assert read_category(STAGES, "T1 or T2") == Abstained("ambiguous")
    assert read_category(STAGES, "2") == Abstained("ambiguous")


def test_without_options_the_text_is_the_answer() -> None:
    assert read_category({}, "Left Kidney.") == "left kidney" == read_truth({}, "left kidney")


def test_open_answers_of_slake(shared_data: Path) -> None:
    """A check of the text format: a truth among other truths is found again in a sentence."""
    path = shared_data / "vqa-slake" / "slake_en_ct_abdomen_validate.json"
    rows = [row for row in json.loads(path.read_bytes()) if row["answer_type"] == "OPEN"]
    kinds: dict[str, set[str]] = {}
    for row in rows:
        kinds.setdefault(row["content_type"], set()).add(" ".join(row["answer"].split()))
    checked = 0
    for row in rows:
        truth = " ".join(row["answer"].split())
        others = sorted(kinds[row["content_type"]] - {truth}, key=str.lower)
        different = [
            o for o in others if truth.lower() not in o.lower() and o.lower() not in truth.lower()
        ]
        options = dict(zip("ABCD", [truth, *different[:3]], strict=False))
        if len(options) < 2 or "," in truth or truth.lower() in ("yes", "no"):
            continue
        said = answer_part(f"<think>hm</think> {truth}.")
        assert read_category(options, said) == truth
        checked += 1
    assert checked > 60
