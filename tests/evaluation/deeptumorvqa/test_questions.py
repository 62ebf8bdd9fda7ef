import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tumorchain_jax.evaluation.deeptumorvqa
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.deeptumorvqa.predictions import read_answers
from tumorchain_jax.evaluation.deeptumorvqa.questions import read_questions, split_options
from tumorchain_jax.evaluation.deeptumorvqa.subtypes import SUBTYPES, TYPES, UNITS, subtype_named


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
        "x? A: a  b B: a b",
        "A:  B: x",
        "x? A: a B: b C: c D: d E: e F: f",
    ):
        with pytest.raises(InputError, match=r"q: mc_question: found .*expected 2 to 5 different"):
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
        ("qid", "q2", r"json\[1\]: qid: found q2 again, as in .*json\[0\]"),
        ("image_id", "../ct1", "plain name of a CT"),
        ("image_id", "a\\b", "plain name of a CT"),
        ("image_id", "..", "plain name of a CT"),
        ("question_type", "recognition", "medical reasoning, the type of splenomegaly grading"),
        ("answer", "Severe", "'Severe', option C, expected what correct_option D says, 'Mild'"),
        ("answer", "round", "'round', none of the options"),
        ("answer", float("nan"), "NaN"),
        ("answer", "nan", "answer: found 'nan'"),
        ("mc_question", "How? A: Normal B: nan C: Severe D: Mild", "option B: nan"),
    ],
)
def test_bad_records(
    rows: list[dict[str, Any]], write: Callable, field: str, value: Any, match: str
) -> None:
    rows[0][field] = value
    with pytest.raises(InputError, match=match):
        read_questions(write("q.json", rows))


@pytest.mark.parametrize(
    ("answer", "options", "match"),
    [
        ("220.0", "A: 180.0 B: 200.0 C: 220.0", "about what correct_option B says, '200.0'"),
        ("197.0", "A: 196.0 B: 200.0", "answer"),  # the other option is nearer
        ("200.0", "A: 200 B: 200.0", "options A and B, both 200"),
        ("199.96 cm3", "A: 180.0 B: 200.0", ""),
        ("0.04", "A: 0.2 B: 0.0", ""),  # rounded
        ("", "A: 180.0 B: 200.0", ""),  # counted when it is scored
        ("a lot", "A: 180.0 B: 200.0", ""),
    ],
)
def test_numbers_agree_with_their_option(
    rows: list[dict[str, Any]], write: Callable, answer: str, options: str, match: str
) -> None:
    row = {**rows[2], "answer": answer, "mc_question": f"What is it? {options}"}
    path = write("q.json", [row])
    if not match:
        assert read_questions(path).questions[0].answer == answer
        return
    with pytest.raises(InputError, match=match):
        read_questions(path)


def test_words_agree_with_their_option(rows: list[dict[str, Any]], write: Callable) -> None:
    rows[0] |= {"mc_question": "How? A: Mild B: Normal (no splenomegaly)", "correct_option": "B"}
    rows[0]["answer"] = "normal"
    assert len(read_questions(write("q.json", rows)).questions) == 3


def test_bad_files(rows: list[dict[str, Any]], write: Callable, tmp_path: Path) -> None:
    whole = write("q.json", rows).read_bytes()
    path = tmp_path / "bad.json"
    for data, match in (
        (whole[: len(whole) // 2], "JSON"),
        (b"{}", "questions"),
        (b"[]", "none"),
        (b"[1]", "an object"),
        (whole.replace(b'"qid": "q1"', b'"qid": "q1", "qid": "q4"'), "'qid' twice"),
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


README = (Path(tumorchain_jax.evaluation.deeptumorvqa.__path__[0]) / "README.md").read_text()


def test_examples_of_the_readme_are_read(tmp_path: Path) -> None:
    blocks = re.findall(r"^```(json|csv)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    (v2, v1, answer) = (text for _, text in blocks)
    for name, text in (("v2.json", v2), ("v1.csv", v1), ("answers.jsonl", answer)):
        (tmp_path / name).write_text(text)
    asked = read_questions(tmp_path / "v2.json")
    assert asked.questions[0].facts["organ"] == "spleen"
    assert read_answers(tmp_path / "answers.jsonl", "mc", asked).outputs == {"q1": "B"}
    assert read_questions(tmp_path / "v1.csv").version == "v1"


def test_the_readme_lists_every_subtype() -> None:
    answers = {"binary": "yes or no", "categorical": "one of the options' words"}
    rows = []
    for each in SUBTYPES.values():
        unit = UNITS[each.quantity] if each.quantity else ""
        answer = answers.get(each.kind, f"number in {unit}" if unit else "number")
        worth = "1 - relative error" if each.kind == "numeric" else "exact"
        rows.append(f"| {each.name} | {each.type} | {answer} | {worth} |")
    assert "\n".join(rows) in README
