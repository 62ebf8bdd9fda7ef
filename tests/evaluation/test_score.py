import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.schema import SUBTASKS, Record, RoundTarget
from tumorchain_jax.evaluation.items import Item, json_lines, make_item, read_items
from tumorchain_jax.evaluation.score import paired_difference, score, summary
from tumorchain_jax.evaluation.tables import summary_text

TASK_OF = {subtask: task for task, subtasks in SUBTASKS.items() for subtask in subtasks}


def item(patient: object, right: bool, subtask: str = "shape", **values: Any) -> Item:
    said = "round" if right else "irregular"
    plain = Item(
        str(patient), TASK_OF[subtask], subtask, "liver", "q?", (), "round", said, said, right
    )
    return replace(plain, **values)


def one_each(right: np.ndarray) -> list[Item]:
    return [item(patient, bool(r)) for patient, r in enumerate(right)]


def test_items_survive_the_file(tmp_path: Path) -> None:
    items = [
        item(1, True, text_only_right=False, answer="é\n\u2028\udc80"),
        item(2, False, choices=("round", "b"), organ="", parsed=""),
    ]
    (tmp_path / "items.jsonl").write_text(json_lines(items))
    assert read_items(tmp_path / "items.jsonl") == items
    assert len((tmp_path / "items.jsonl").read_text().splitlines()) == 2


GOOD = {**vars(item(1, True)), "choices": []}


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "3",
        json.dumps(GOOD)[:-1] + ', "right": false}',
        json.dumps({**GOOD, "confidence": float("nan")}),
        "{",
        b"\xff".decode("latin-1"),
        json.dumps({k: v for k, v in GOOD.items() if k != "truth"}),
        json.dumps({**GOOD, "more": 1}),
        json.dumps({**GOOD, "right": 1}),
        json.dumps({**GOOD, "right": False}),
        json.dumps({**GOOD, "parsed": ""}),
        json.dumps({**GOOD, "patient": " "}),
        json.dumps({**GOOD, "choices": ["round", "Round"]}),
        json.dumps({**GOOD, "choices": ["oval", "flat"]}),
        json.dumps({**GOOD, "confidence": 1.5}),
        json.dumps({**GOOD, "log_probability": 0.5}),
        json.dumps({**GOOD, "tumour_mm": -1.0}),
        json.dumps({**GOOD, "scan": -1}),
        json.dumps({**GOOD, "scan": True}),
        json.dumps({**GOOD, "text_only_right": "no"}),
        json.dumps({**GOOD, "patient": 7}),
        json.dumps({**GOOD, "choices": [1]}),
        json.dumps({**GOOD, "subtask": "size"}),
        json.dumps({**GOOD, "organ": "heart of gold"}),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, bad: str) -> None:
    path = tmp_path / "items.jsonl"
    path.write_text(f"{json.dumps(GOOD)}\n{bad}\n{json.dumps(GOOD)}\n", encoding="latin-1")
    with pytest.raises(InputError, match=r"items\.jsonl:2: "):
        read_items(path)


def test_a_question_is_asked_once(tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    others = [item(2, True), item(1, True, scan=1), item(1, True, choices=("round", "oval"))]
    path.write_text(json_lines([item(1, True), *others]))
    assert len(read_items(path)) == 4
    path.write_text(json_lines([item(1, True), *others, item(1, False, answer="another")]))
    with pytest.raises(InputError, match=r"jsonl:5: question: found that of line 1 again \(1: q"):
        read_items(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"items\.jsonl: path: found No such file.*check the path"):
        read_items(tmp_path / "items.jsonl")


def test_an_item_is_made_of_a_record() -> None:
    record = Record(
        "p", 0, "cot_report", "cot_report", 0, "q?", (), (RoundTarget("x"),), "",
        "a tumour of the colon",
    )  # fmt: skip
    made = make_item(record, "<think>x</think> Conclusion: a colonic mass.", text_only="no tumour")
    assert (made.organ, made.truth, made.parsed) == ("colorectum", "colon", "colon")
    assert (made.right, made.text_only_right) == (True, False)
    assert make_item(replace(record, organ=7), "").organ == "pancreas"
    assert make_item(replace(record, answer="no tumour"), "no tumour").organ == ""
    assert make_item(record, "").text_only_right is None


def test_score_by_hand() -> None:
    liver, none = {"truth": "liver"}, {"truth": "none"}
    items = [
        item(1, True, "tumor_position", **liver, text_only_right=True),
        item(2, False, "tumor_position", **liver, text_only_right=False),
        item(3, True, "tumor_position", **none, text_only_right=False),
        # Other forms of question have their own commonest truth.
        item(1, True, "tumor_position", truth="yes", text_only_right=False),
        item(2, False, "tumor_position", **none, choices=("none",), text_only_right=True),
        item(1, True, "node", truth="N0", organ="colorectum"),
        item(2, False, "node", truth="N1", organ="spleen", parsed=""),
    ]
    scored = score(items)
    position, node = scored["subtasks"]["tumor_position"], scored["subtasks"]["node"]
    assert (position["accuracy"], position["n"], position["unparsed"]) == (60.0, 5, 0)
    assert position["majority"] == 80.0  # liver 2 of 3, yes 1 of 1, none 1 of 1
    assert position["text_only"] == 40.0
    assert (node["accuracy"], node["n"], node["unparsed"]) == (50.0, 2, 1)
    assert (node["majority"], node["text_only"]) == (50.0, None)
    assert list(scored["subtasks"]) == ["tumor_position", "node"]
    assert (scored["average"], scored["majority"], scored["text_only"]) == (55.0, 65.0, None)
    assert (scored["n"], scored["patients"], scored["unparsed"]) == (7, 3, 1)
    assert json.loads(json.dumps(scored)) == scored


def test_organs_are_of_the_reports_alone() -> None:
    report = {"subtask": "cot_report"}
    scored = score(
        [
            item(1, True, **report),
            item(2, False, **report),
            item(3, True, **report, organ="colorectum"),
            item(4, False, **report, organ=""),  # a healthy patient's
            item(5, False, "tumor_position", organ="liver"),
        ]
    )
    assert {name: row["n"] for name, row in scored["organs"].items()} == {
        "liver": 2,
        "colorectum": 1,
    }
    assert scored["organs"]["liver"]["accuracy"] == 50.0
    assert scored["organ_average"] == 75.0
    without = score([item(5, False, "tumor_position")])
    assert (without["organs"], without["organ_average"]) == ({}, None)


def test_no_items_no_score() -> None:
    with pytest.raises(InputError, match="at least one"):
        score([])


def test_interval_of_independent_patients_is_scipys() -> None:
    right = np.random.default_rng(3).random(150) < 0.7
    row = score(one_each(right))["subtasks"]["shape"]
    peer = stats.bootstrap(
        (100.0 * right,), np.mean, n_resamples=4000, method="percentile", vectorized=True, rng=5
    )
    assert row["accuracy"] == round(100 * right.mean(), 1)
    assert row["ci95"] == pytest.approx(list(peer.confidence_interval), abs=1.0)


def test_repeating_a_patients_items_does_not_shrink_the_interval() -> None:
    right = np.random.default_rng(4).random(60) < 0.6
    once = one_each(right)
    tenfold = [replace(i, question=f"q{k}") for i in once for k in range(10)]
    assert score(tenfold)["subtasks"]["shape"]["ci95"] == score(once)["subtasks"]["shape"]["ci95"]
    assert score(tenfold)["ci95"] == score(once)["ci95"]
    # What drawing items, not patients, would have said.
    low, high = score(one_each(np.repeat(right, 10)))["ci95"]
    assert high - low < 0.5 * np.ptp(score(tenfold)["ci95"])


def clustered(seed: int) -> list[Item]:
    """40 patients, able or not, with 1 to 6 questions in two subtasks; one is rare."""
    rng = np.random.default_rng(seed)
    ability = np.random.default_rng(0).random(40)
    size = np.random.default_rng(1).integers(1, 7, 40)
    return [
        item(p, bool(rng.random() < ability[p]), "node" if k == 2 else "shape", question=f"q{k}")
        for p in range(40)
        for k in range(size[p])
    ]


def slow_average(items: list[Item]) -> float:
    shares = []
    for subtask in ("shape", "node"):
        right = [i.right for i in items if i.subtask == subtask]
        shares += [100 * sum(right) / len(right)] if right else []
    return sum(shares) / len(shares)


def slow_draws(*runs: list[Item]) -> np.ndarray:
    """Draw patients one by one, with all their items; the average of each run."""
    rng = np.random.default_rng(9)
    of = [{str(p): [i for i in run if i.patient == str(p)] for p in range(40)} for run in runs]
    draws = []
    for _ in range(500):
        drawn = rng.integers(0, 40, 40).astype(str)
        draws.append([slow_average([i for p in drawn for i in items[p]]) for items in of])
    return np.array(draws)


def test_interval_of_the_average_is_that_of_a_plain_loop() -> None:
    items = clustered(7)
    scored = score(items)
    assert scored["average"] == round(slow_average(items), 1)
    assert scored["ci95"] == pytest.approx(
        np.percentile(slow_draws(items)[:, 0], [2.5, 97.5]).tolist(), abs=1.5
    )
    assert score(items[::-1]) == scored


def test_difference_is_paired() -> None:
    a, b = clustered(7), clustered(8)
    found = paired_difference(a, b)
    draws = slow_draws(a, b)
    expected = np.percentile(draws[:, 0] - draws[:, 1], [2.5, 97.5])
    assert found["difference"] == round(slow_average(a) - slow_average(b), 2)
    assert found["ci95"] == pytest.approx(expected.tolist(), abs=1.5)
    # Able patients are able in both runs: unpaired draws would be wider.
    spread = draws.std(axis=0)
    unpaired = 2 * 1.96 * float(np.hypot(*spread))
    assert np.ptp(found["ci95"]) < 0.85 * unpaired
    assert (found["n"], found["patients"]) == (len(a), 40)


def test_difference_of_a_run_from_itself_is_nothing() -> None:
    a = clustered(7)
    assert paired_difference(a, a[::-1])["ci95"] == [0.0, 0.0]


def test_seeds_may_be_put_one_after_the_other() -> None:
    a, b = clustered(7), clustered(8)
    assert paired_difference(a * 3, b * 3)["ci95"] == paired_difference(a, b)["ci95"]


@pytest.mark.parametrize(
    "other",
    [
        [],
        [item(1, True)],
        [item(1, True), item(3, True)],
        [item(1, True), item(2, True), item(2, True)],
        [item(1, True), item(2, True, truth="irregular")],
        [item(1, True), item(2, True, question="another?")],
    ],
)
def test_runs_with_other_items_are_refused(other: list[Item]) -> None:
    with pytest.raises(InputError, match="two runs"):
        paired_difference([item(1, True), item(2, True)], other)


def test_the_summary_tells_the_organ_of_the_ill_apart() -> None:
    position = {"subtask": "tumor_position"}
    items = [
        item(1, True, **position, truth="liver"),
        item(2, False, **position, truth="colon"),
        item(3, True, **position, truth="none"),
        item(1, True, **position, truth="yes"),
        item(2, True, **position, truth="colon", choices=("colon", "none")),
    ]
    result = summary(items)
    assert {key: result[key] for key in score(items)} == score(items)
    rows = result["tumour_organ"]
    assert (rows["open"]["n"], rows["open"]["accuracy"]) == (2, 50.0)
    assert (rows["multiple_choice"]["n"], rows["multiple_choice"]["accuracy"]) == (1, 100.0)
    healthy = summary(items[2:4])["tumour_organ"]
    assert healthy == {"open": None, "multiple_choice": None}


def test_organ_of_the_tumour_is_scored_by_its_size(tmp_path: Path) -> None:
    sizes = {True: 10.0, False: 19.9}, {True: 40.0}, {False: None}
    items = [
        item(
            f"{n} {right}",
            right,
            "tumor_position",
            truth="liver",
            tumour_mm=size,
            parsed="liver" if right else "colon",
        )
        for n, each in enumerate(sizes)
        for right, size in each.items()
    ]
    rows = summary(items)["tumour_organ_by_size"]
    assert {name: (row["accuracy"], row["n"]) for name, row in rows.items()} == {
        "10-20 mm": (50.0, 2),
        "40+ mm": (100.0, 1),
    }
    text = summary_text(summary(items))
    assert "organ of a tumour of 10-20 mm: 50.0 [9.5, 90.5], n 2, majority 100.0" in text
    lines = json_lines(items)
    assert ["tumour_mm" in line for line in lines.splitlines()] == [True, True, True, False]
    (tmp_path / "items.jsonl").write_text(lines)
    assert read_items(tmp_path / "items.jsonl") == items
    assert "tumour_organ_by_size" not in summary(items[3:])
