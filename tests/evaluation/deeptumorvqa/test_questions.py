import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.deeptumorvqa.questions import read_questions, split_options
from tumorchain_jax.evaluation.deeptumorvqa.subtypes import SUBTYPES, TYPES, subtype_named


def test_subtypes_are_the_benchmarks(shared_data: Path) -> None:
    lines = (shared_data / "deeptumorvqa-schema" / "subtype_schema.csv").read_text().splitlines()
    known = {line.split(",")[0]: line.split(",")[1].lower() for line in lines[1:]}
    assert {name: subtype.type for name, subtype in SUBTYPES.items()} == known
    kinds = [subtype.kind for subtype in SUBTYPES.values()]
    assert [kinds.count(kind) for kind in ("numeric", "binary", "categorical")] == [11, 15, 16]
    assert set(TYPES) == set(known.values())


@pytest.mark.parametrize("name", ["liver_lesion_existence", "Liver-Lesion  existence"])
def test_name_styles_are_alike(name: str) -> None:
    assert subtype_named(name) is SUBTYPES["liver lesion existence"]
    assert subtype_named("liver lesions") is None


def test_forms_give_the_same_questions(rows: list[dict[str, Any]], write: Callable) -> None:
    read = {form: read_questions(write(f"q.{form}", rows)) for form in ("json", "jsonl", "csv")}
    assert {form: found.version for form, found in read.items()} == {
        "json": "v2",
        "jsonl": "v2",
        "csv": "v1",
    }
    assert read["json"].questions == read["jsonl"].questions == read["csv"].questions
    first = read["csv"].questions[0]
    assert first.options == {"A": "Normal", "B": "Moderate", "C": "Severe", "D": "Mild"}
    assert (first.truth("mc"), first.truth("freeform")) == ("D", "Mild")
    assert read_questions(write("train.csv", rows), "v2").version == "v2"


def test_two_to_five_options() -> None:
    text = "With contrast A: good? " + " ".join(
        f"{letter}: {n}" for n, letter in enumerate("ABCDE")
    )
    assert split_options("q", text) == {letter: str(n) for n, letter in enumerate("ABCDE")}
    assert split_options("q", "x? A: Yes B: No") == {"A": "Yes", "B": "No"}
    for bad in (
        "x?",
        "x? A: Yes",
        "x? A: Yes C: No",
        "x? B: Yes A: No",
        "x? A: a B: A",
        "A:  B: x",
    ):
        with pytest.raises(InputError, match="mc_question"):
            split_options("q", bad)


@pytest.mark.parametrize(
    ("field", "value", "match"),
    [
        ("question_subtype", "spleen colour", "42 subtypes"),
        ("question_type", "guessing", "question_type"),
        ("correct_option", "E", "correct_option"),
        ("mc_question", "How large?", "mc_question"),
        ("qid", None, "qid"),
        ("image_id", "", "image_id"),
        ("qid", "q2", "q2 twice"),
    ],
)
def test_bad_records(
    rows: list[dict[str, Any]], write: Callable, field: str, value: Any, match: str
) -> None:
    rows[0][field] = value
    with pytest.raises(InputError, match=match):
        read_questions(write("q.json", rows))


def test_bad_files(rows: list[dict[str, Any]], write: Callable, tmp_path: Path) -> None:
    whole = write("q.json", rows).read_bytes()
    path = tmp_path / "bad.json"
    for data, match in (
        (whole[: len(whole) // 2], "JSON"),
        (b"{}", "questions"),
        (b"[]", "none"),
        (b"[1]", "an object"),
        (b"[" * 100_000, "JSON"),
        (b"\xff\xfe", "JSON"),
        (whole.replace(b'"num_questions": 3', b'"num_questions": 4'), "num_questions"),
    ):
        path.write_bytes(data)
        with pytest.raises(InputError, match=match):
            read_questions(path)
    table = write("q.csv", rows).read_bytes()
    for data, match in (
        (table[: len(table) - 40], "fields|CSV|subtype"),
        (b"a,b\n1,2\n", "qid"),
        (b"\xff", "CSV"),
    ):
        (tmp_path / "bad.csv").write_bytes(data)
        with pytest.raises(InputError, match=match):
            read_questions(tmp_path / "bad.csv")
    with pytest.raises(InputError, match="No such file"):
        read_questions(tmp_path / "nowhere.json")


def test_synthetic_files_name_their_seeds(rows: list[dict[str, Any]], write: Callable) -> None:
    found = read_questions(write("q.json", rows, synthetic="made up", seeds=[5, 2]))
    assert (found.synthetic, found.seeds) == ("made up", (5, 2))
    with pytest.raises(InputError, match="seeds"):
        read_questions(write("q.json", rows, seeds=["a"]))
    assert replace(found, seeds=None).seeds is None
    assert json.dumps(found.synthetic) == '"made up"'
