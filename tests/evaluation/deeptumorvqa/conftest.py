"""Question files of our own words, small enough to be read here."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROWS: list[dict[str, Any]] = [
    {
        "qid": "q1",
        "image_id": "ct1",
        "question": "How large is the spleen?",
        "answer": "Mild",
        "mc_question": "How large is the spleen? A: Normal B: Moderate C: Severe D: Mild",
        "correct_option": "D",
        "question_type": "medical reasoning",
        "question_subtype": "splenomegaly grading",
    },
    {
        "qid": "q2",
        "image_id": "ct1",
        "question": "Does the liver hold a lesion?",
        "answer": "Yes",
        "mc_question": "Does the liver hold a lesion? A: No B: Yes",
        "correct_option": "B",
        "question_type": "recognition",
        "question_subtype": "liver lesion existence",
    },
    {
        "qid": "q3",
        "image_id": "ct2",
        "question": "What is the volume of the spleen in cm3?",
        "answer": "200.0",
        "mc_question": "What is the volume of the spleen in cm3? A: 180.0 B: 200.0 C: 220.0",
        "correct_option": "B",
        "question_type": "measurement",
        "question_subtype": "organ volume measurement",
    },
]
V1_NAMES = {
    "qid": "Question ID",
    "image_id": "Image ID",
    "question": "Question",
    "answer": "Answer",
    "mc_question": "Multiple-choice Question",
    "correct_option": "Correct Option",
    "question_type": "Question Type",
    "question_subtype": "Question Subtype",
}


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    return [dict(row) for row in ROWS]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a question file: JSON, JSON lines, or version 1's CSV, by the name's ending."""

    def make(name: str, rows: list[dict[str, Any]], **header: Any) -> Path:
        path = tmp_path / name
        if path.suffix == ".csv":
            with path.open("w", newline="") as file:
                writer = csv.DictWriter(file, list(V1_NAMES.values()))
                writer.writeheader()
                for row in rows:
                    named = {V1_NAMES[key]: value for key, value in row.items()}
                    subtype = str(row["question_subtype"]).replace(" ", "_")
                    writer.writerow({**named, "Question Subtype": subtype})
        elif path.suffix == ".jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        else:
            head = {"version": "2.0.0", "num_questions": len(rows), **header}
            path.write_text(json.dumps({**head, "questions": rows}))
        return path

    return make


@pytest.fixture
def answer(tmp_path: Path) -> Callable[..., Path]:
    """Write a file of answers, qid -> text."""

    def make(texts: dict[str, str], name: str = "answers.jsonl", **about: str) -> Path:
        path = tmp_path / name
        lines = [json.dumps({"qid": q, "raw_output": t, **about}) for q, t in texts.items()]
        path.write_text("\n".join(lines) + "\n")
        return path

    return make
