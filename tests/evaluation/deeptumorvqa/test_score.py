import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.deeptumorvqa.document import rescore, score_files, to_json
from tumorchain_jax.evaluation.deeptumorvqa.score import RULES, Item, score_fixed
from tumorchain_jax.evaluation.deeptumorvqa.tables import document_text

SPLEEN = {"A": "Normal", "B": "Moderate", "C": "Severe", "D": "Mild"}


def item(number: int, output: str, truth: str = "A", subtype: str = "splenomegaly grading") -> Item:
    options = SPLEEN if truth in SPLEEN else {}
    return Item(f"q{number}", f"ct{number // 2}", subtype, options, truth, output, output)


def test_versions_give_the_same_table(
    rows: list[dict[str, Any]], write: Callable, answer: Callable
) -> None:
    given = answer({"q1": "D", "q2": "Answer: B", "q3": "180.0"})
    found = [score_files(write(name, rows), given, "mc", RULES) for name in ("q.csv", "q.json")]
    assert found[0]["scores"] == found[1]["scores"]
    assert [document["version"] for document in found] == ["v1", "v2"]
    fixed = found[0]["scores"]["fixed"]
    assert (fixed["micro"]["of_asked"], fixed["n_answered"]) == (66.67, 3)
    assert found[0]["scores"]["upstream"]["overall"]["accuracy"] == 0.3333  # "Answer" reads A
    assert found[0]["scores"]["v1"]["by_subtype"]["splenomegaly grading"]["value"] == 100


def test_free_form(rows: list[dict[str, Any]], write: Callable, answer: Callable) -> None:
    given = answer({"q1": "mild splenomegaly", "q2": "I cannot tell", "q3": "0.19 L"})
    document = score_files(write("q.json", rows), given, "freeform", ("fixed",))
    fixed = document["scores"]["fixed"]
    assert fixed["abstained"] == {"refusal": 1}
    assert fixed["micro"]["of_asked"] == 65.0
    assert fixed["micro"]["of_answered"] == 97.5
    volume = fixed["by_subtype"]["organ volume measurement"]
    assert volume["tolerance"] == {"5 %": 100.0, "10 %": 100.0, "20 %": 100.0, "50 %": 100.0}
    assert (volume["mean_absolute_error"], volume["unit"], volume["mra10"]) == (10.0, "cm3", 100.0)
    assert volume["chance"] is None
    assert fixed["by_subtype"]["liver lesion existence"]["sensitivity"] is None


def test_micro_and_macro_differ() -> None:
    many = [item(n, "A") for n in range(90)]
    few = [item(n, "B", subtype="fatty liver") for n in range(90, 100)]
    found = score_fixed([*many, *few], "mc")
    assert found["micro"]["of_asked"] == 90.0
    assert found["macro"]["of_asked"] == 50.0
    assert found["by_type"]["medical reasoning"]["of_asked"] == 90.0
    assert found["by_subtype"]["fatty liver"]["chance"] == found["micro"]["chance"] == 25.0
    assert found["by_subtype"]["fatty liver"]["majority"] == 100.0


def test_intervals_draw_cts_together() -> None:
    # Both questions of a CT are right or both are wrong: as few facts as there are CTs.
    pairs = score_fixed([item(n, "A" if n // 2 % 2 else "B") for n in range(80)], "mc")
    alone = score_fixed([item(2 * n, "A" if n % 2 else "B") for n in range(80)], "mc")
    wide, narrow = (
        found["micro"]["ci95"][1] - found["micro"]["ci95"][0] for found in (pairs, alone)
    )
    assert wide == pytest.approx(narrow * 2**0.5, rel=0.15)
    few = score_fixed([item(n, "AB"[n % 2]) for n in range(10)], "mc")
    # Wilson's, as if both questions of each of five CTs were one.
    assert few["micro"]["ci95"] == [17.04, 82.96]
    # Of ten CTs: one question each, or all alike.
    for numbers in (range(0, 20, 2), range(20)):
        single = score_fixed([item(n, "A") for n in numbers], "mc")
        assert single["micro"]["ci95"] == [72.25, 100.0]


def test_errors_are_no_answers() -> None:
    found = score_fixed([item(n, "[ERROR] ValueError: A batch of size 0") for n in range(50)], "mc")
    assert (found["n_answered"], found["n_asked"], found["abstained"]) == (0, 50, {"error": 50})
    assert found["micro"]["of_answered"] is None


def test_unreadable_truth_is_counted_and_left_out() -> None:
    items = [item(0, "200", "unknown", "organ volume measurement")]
    assert score_fixed(items, "freeform") == {
        "n_asked": 0,
        "bad_truth": 1,
        "n_answered": 0,
        "abstained": {},
    }
    found = score_fixed([*items, item(2, "200", "100", "organ volume measurement")], "freeform")
    assert (found["bad_truth"], found["micro"]["n"], found["micro"]["of_asked"]) == (1, 1, 0.0)


def test_json_is_scored_again_to_the_same_bytes(
    rows: list[dict[str, Any]], write: Callable, answer: Callable, tmp_path: Path
) -> None:
    given = answer({"q1": "D", "q2": "\u6b63 B", "q3": "180.0"}, model="m", input="3D CT")
    document = score_files(write("q.json", rows), given, "mc", RULES)
    path = tmp_path / "score.json"
    path.write_text(to_json(document))
    assert to_json(rescore(path)) == path.read_text()
    for change in (
        {"items": [1]},
        {"items": document["items"][1:]},
        {"items": []},
        {"items": document["items"][:2] + document["items"][:1]},
        {"items": [{**document["items"][0], "truth": "Z"}, *document["items"][1:]]},
        {"benchmark": "x"},
        {"scores": {"other": 1}},
        {"format": "x"},
    ):
        path.write_text(json.dumps({**document, **change}))
        with pytest.raises(InputError):
            rescore(path)
    text = document_text(document)
    for shown in ("DeepTumorVQA v2, mc, fixed rules", "upstream's rules", "model: m", "3D CT"):
        assert shown in text
    assert text.count(document["questions"]["sha256"]) == 3


def test_bad_answers(
    rows: list[dict[str, Any]], write: Callable, answer: Callable, tmp_path: Path
) -> None:
    questions = write("q.json", rows)
    sound = {"q1": "D", "q2": "B", "q3": "B"}

    def refuse(path: Path, match: str) -> None:
        with pytest.raises(InputError, match=match):
            score_files(questions, path, "mc", ("fixed",))

    refuse(answer({"q1": "D"}), "none for 2 of 3 questions, the first q2")
    refuse(answer({**sound, "q9": "D"}), "q9")
    refuse(answer(sound, format="freeform"), "format")
    refuse(answer(sound, questions="another"), "questions")
    path = answer(sound)
    path.write_text(path.read_text() + path.read_text())
    refuse(path, "q1 again")
    lines = [{"qid": f"q{n}", "raw_output": "D", "model": f"m{n}"} for n in (1, 2)]
    path.write_text("\n".join(map(json.dumps, lines)))
    refuse(path, "m1 and m2")
    lines[1].pop("model")
    path.write_text("\n".join(map(json.dumps, lines)))
    refuse(path, "m1 and not stated")
    path.write_text('{"qid": "q1"}')
    refuse(path, "raw_output or pred_answer")
    path.write_bytes(b'{"qid": "q1", "raw')
    refuse(path, "JSON")
    other = tmp_path / "answers.json"
    twice = b'[{"qid": "q1", "raw_output": "A", "raw_output": "B"}]'
    for data, match in (
        (b"[", "JSON"),
        (twice, "'raw_output' twice"),
        (b"{}", "results"),
        (b"[3]", "an object"),
    ):
        other.write_bytes(data)
        refuse(other, match)
    partial = score_files(questions, answer({"q1": "D"}), "mc", ("fixed",), partial=True)
    assert "PARTIAL: 1 of 3" in document_text(partial)


def test_results_of_the_benchmarks_runner(
    rows: list[dict[str, Any]], write: Callable, tmp_path: Path
) -> None:
    path = tmp_path / "vqa.json"
    results = [{"qid": row["qid"], "raw_output": "B", "pred_answer": "D"} for row in rows]
    path.write_text(json.dumps({"n_processed": 3, "results": results}, indent=2))
    found = score_files(write("q.json", rows), path, "mc", ("fixed", "upstream"))
    assert found["scores"]["fixed"]["micro"]["of_asked"] == 66.67  # of raw_output
    assert found["scores"]["upstream"]["overall"]["accuracy"] == 0.3333  # of pred_answer


@pytest.mark.system
def test_ten_thousand_answers_without_jax(write: Callable, answer: Callable) -> None:
    rows = [
        {
            "qid": f"q{n}",
            "image_id": f"ct{n % 991}",
            "question": "How large is the spleen?",
            "answer": "Mild",
            "mc_question": "How large is the spleen? A: Normal B: Moderate C: Severe D: Mild",
            "correct_option": "D",
            "question_type": "medical reasoning",
            "question_subtype": "splenomegaly grading",
        }
        for n in range(10_000)
    ]
    texts = {row["qid"]: "[ERROR] RuntimeError: 2.00 GiB, A" for row in rows}
    files = str(write("q.json", rows)), str(answer(texts))
    program = (
        "import sys, time; start = time.process_time()\n"
        "from tumorchain_jax.cli.main import main\n"
        "code = main(['deeptumorvqa', 'score', '--rules', 'both', '--questions', sys.argv[1],"
        " '-i', sys.argv[2]])\n"
        "assert not {'jax', 'flax'} & set(sys.modules), 'JAX was imported'\n"
        "print(f'{time.process_time() - start:.1f} s', file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *files], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1, done.stderr
    assert "0 answered of 10000 (error 10000)" in done.stdout


def test_speed_is_not_lost_to_the_bootstrap() -> None:
    start = time.process_time()
    score_fixed([item(n, "A") for n in range(2000)], "mc")
    assert time.process_time() - start < 20  # an accident, not a measurement
