import json
from pathlib import Path

import pytest

from tumorchain_jax.cli.main import main


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    question = {
        "image_id": "ct1",
        "question": "Does the liver hold a lesion?",
        "answer": "Yes",
        "mc_question": "Does the liver hold a lesion? A: No B: Yes",
        "correct_option": "B",
        "question_type": "recognition",
        "question_subtype": "liver lesion existence",
    }
    questions = [{**question, "qid": f"q{n}"} for n in range(2)]
    (tmp_path / "q.json").write_text(json.dumps({"questions": questions}))
    return tmp_path


def run(*words: object) -> int:
    try:
        return main(["deeptumorvqa", *map(str, words)])
    except SystemExit as stop:  # argparse
        return int(stop.code or 0)


def test_from_answers_to_a_score_and_back(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    questions, answers = folder / "q.json", folder / "a.jsonl"
    assert run("predict", "--questions", questions, "--by", "majority", "-o", answers) == 0
    assert "2 answers by majority" in capsys.readouterr().out
    flags = ("--questions", questions, "-i", answers, "--rules", "both", "--json")
    assert run("score", *flags, "-o", folder / "out") == 0
    printed = capsys.readouterr().out
    assert (folder / "out" / "score.json").read_text() == printed
    assert "DeepTumorVQA v2, mc, fixed rules" in (folder / "out" / "score.txt").read_text()
    assert run("score", "--rescore", folder / "out" / "score.json", "--json") == 0
    assert capsys.readouterr().out == printed
    assert run("inspect", "--questions", questions) == 0
    assert "2 questions about 1 CTs" in capsys.readouterr().out


def test_only_errors_end_with_1(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [json.dumps({"qid": f"q{n}", "raw_output": "[ERROR] B"}) for n in range(2)]
    (folder / "a.jsonl").write_text("\n".join(lines))
    assert run("score", "--questions", folder / "q.json", "-i", folder / "a.jsonl") == 1
    assert "0 answered of 2 (error 2)" in capsys.readouterr().out


def test_bad_use_is_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    questions = folder / "q.json"
    (folder / "a.jsonl").write_text('{"qid": "q0", "raw_output": "B"}\n')
    header = {"version": "2.0.0", "questions": json.loads(questions.read_text())["questions"]}
    (folder / "v2.json").write_text(json.dumps(header))
    (folder / "cut.json").write_text('{"questions": [{"qid"')
    for words, said in (
        (("score",), "--questions"),
        (("score", "--questions", questions), "-i"),
        (("score", "--questions", questions, "-i", folder / "a.jsonl"), "none for 1 of 2"),
        (("score", "--questions", folder / "cut.json", "-i", folder / "a.jsonl"), "JSON"),
        (("score", folder / "a.jsonl"), "unexpected arguments"),
        (("score", "--rescore", folder / "a.jsonl"), "`tumorchain deeptumorvqa score --json`"),
        (("score", "--questions", questions, "--masks", "true"), "unknown flag --masks"),
        (("predict", "--questions", questions, "-o", folder / "p.txt"), ".jsonl"),
        (("predict", "--questions", questions, "-o", folder / "p.jsonl", "--by", "x"), "--by"),
        (
            ("predict", "--questions", questions, "-o", folder / "p.jsonl", "--slices", "x"),
            "--by endpoint NAME as well",
        ),
        (
            (
                "predict",
                "--questions",
                questions,
                "-o",
                folder / "p.jsonl",
                "--by",
                "endpoint",
                "x",
            ),
            "axial-16-even",
        ),
        (
            (
                "predict",
                "--questions",
                questions,
                "-o",
                folder / "p.jsonl",
                "--by",
                "majority",
                "--mismatched",
            ),
            "nothing that majority does not use",
        ),
        (("score", "--rescore", folder / "a.jsonl", "--rules", "both"), "--rules"),
        (("inspect", "--questions", folder / "v2.json", "--version", "v1"), "that of a file of v1"),
        (("export", "--questions", questions, "-o", folder / "t"), "--scans"),
        (("predict", "--questions", questions, "-o", folder / "p.jsonl"), "--scans"),
        (("cases", folder / "a.jsonl", "--rules", "both"), "invalid choice"),
        (("cases", folder / "a.jsonl"), "id: found no such field"),
    ):
        assert run(*words) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert said in error
