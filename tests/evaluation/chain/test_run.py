"""Judged runs: written whole, resumed, scored again to the byte, compared."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.chain.cases import draw_truth
from tumorchain_jax.evaluation.chain.compare import compare_judged, judged_text
from tumorchain_jax.evaluation.chain.judged import Judged, read_judged, to_lines
from tumorchain_jax.evaluation.chain.rubric import NAMES, Marks
from tumorchain_jax.evaluation.chain.rules import RulesJudge
from tumorchain_jax.evaluation.chain.run import judge_items, read_calibration, rescore
from tumorchain_jax.evaluation.chain.score import score
from tumorchain_jax.evaluation.chain.text import score_text
from tumorchain_jax.evaluation.chain.verdict import Case, ChainVerdict
from tumorchain_jax.evaluation.items import Item, json_lines, make_item
from tumorchain_jax.phantoms.records import patient_records

RUN = {"judge": "x", "calibration": None}


def items(patients: int = 2) -> list[Item]:
    """Chains that are right, but for one in three, which is another patient's."""
    made = []
    for seed in range(40, 40 + patients):
        records = patient_records(draw_truth(seed), 0)
        others = {r.subtask: r for r in patient_records(draw_truth(seed + 50), 0)}
        for number, record in enumerate(records):
            said = others.get(record.subtask, record) if number % 3 == 0 else record
            last = said.rounds[-1].text
            made.append(make_item(record, last, chain=said.reasoning))
    return made


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "items.jsonl"
    path.write_text(json_lines(items()))
    return path


def test_a_judged_run_is_scored_again_to_the_byte(saved: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    values, text = judge_items(saved, out, RulesJudge(), None, "nano")
    assert {path.name for path in out.iterdir()} == {
        "judged.jsonl", "score.json", "score.txt", "results.html",
    }  # fmt: skip
    assert json.dumps(rescore(out)[0]) == json.dumps(values)
    assert rescore(out)[1] == text == (out / "score.txt").read_text()
    assert json.loads((out / "score.json").read_text()) == values
    assert values["asked"] == values["judged"] == len(items())
    assert 0 < values["cot_e"]["mean"] < 100
    assert 0 < values["f1"]["mean"] < 100
    assert "NOT CALIBRATED" in text
    page = (out / "results.html").read_text()
    assert "TumorChain-7B, paper" in page
    assert "not calibrated" in page
    assert "http" not in page.replace("http-equiv", "")


@dataclass
class Stopping:
    """A judge that is stopped at its n-th chain."""

    at: int
    seen: list[Case] = field(default_factory=list)
    name: str = RulesJudge().name
    workers: int = 1

    def judge(self, case: Case) -> ChainVerdict:
        if len(self.seen) == self.at:
            raise KeyboardInterrupt
        self.seen.append(case)
        return RulesJudge().judge(case)

    def swapped(self) -> "Stopping":
        return self


def test_a_stopped_run_goes_on_where_it_was(saved: Path, tmp_path: Path) -> None:
    whole, _ = judge_items(saved, None, RulesJudge())
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        judge_items(saved, out, Stopping(5))
    assert not out.exists()
    kept = tmp_path / ".out.judged.jsonl"
    with kept.open("a") as file:
        file.write('{"patient": "cut in the mid')
    rest = Stopping(1000)
    assert judge_items(saved, out, rest)[0] == whole
    assert len(rest.seen) == len(items()) - 5
    assert not kept.exists()


def test_kept_rows_of_another_judge_are_refused(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        judge_items(saved, tmp_path / "out", Stopping(2))
    with pytest.raises(InputError, match=r"judged\.jsonl: judge: found rules"):
        judge_items(saved, tmp_path / "out", replace(RulesJudge(), name="another"))


def test_items_without_a_reference_are_refused(saved: Path) -> None:
    saved.write_text(json_lines([replace(each, reference="") for each in items(1)]))
    with pytest.raises(InputError, match=r"items.jsonl:1: reference: found none"):
        judge_items(saved, None, RulesJudge())


def test_a_calibration_of_another_judge_is_refused(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="calibration: judge: found other"):
        judge_items(saved, None, RulesJudge(), {"judge": "other"})
    (tmp_path / "c.json").write_text("{}")
    with pytest.raises(InputError, match="calibration: found no"):
        read_calibration(tmp_path / "c.json")


def test_changed_rows_are_refused(saved: Path, tmp_path: Path) -> None:
    judge_items(saved, tmp_path / "out", RulesJudge())
    path = tmp_path / "out" / "judged.jsonl"
    first, *rest = path.read_text().splitlines()
    changes: list[tuple[str, object]] = [
        ("state", "fine"), ("marks", {"existence": 1}), ("marks", None), ("harm", [1, 2, -3]),
        ("right", "yes"), ("subtask", "x"), ("patient", 3), ("why", "x"), ("scan", True),
    ]  # fmt: skip
    for field_name, value in changes:
        path.write_text("\n".join([json.dumps({**json.loads(first), field_name: value}), *rest]))
        with pytest.raises(InputError, match=rf"judged.jsonl:1: {field_name}"):
            read_judged(path)
    path.write_text("\n".join(rest) + "\n")
    with pytest.raises(InputError, match=r"chains: found \d+, expected \d+, as score.json says"):
        rescore(tmp_path / "out")


def row(number: int, mark: int | None, why: str = "invalid: x", state: str = "failed") -> Judged:
    marks = None if mark is None else Marks(dict.fromkeys(NAMES, mark))
    return Judged(
        f"p{number % 10}", 0, "shape", f"q{number}", (), "round", "judged" if marks else state,
        "" if marks else why, dict(marks.of) if marks else None, bool(marks) or None, True,
        (1.0, 0.0, 1.0),
    )  # fmt: skip


def test_failures_are_counted_and_bounded_and_never_a_number() -> None:
    rows = [row(n, 8) for n in range(90)] + [row(n, None) for n in range(90, 95)]
    rows += [row(n, None, "empty", "abstained") for n in range(95, 100)]
    values = score(rows, RUN)
    assert values["cot_e"]["mean"] == 80
    assert values["cot_e"]["bounds"] == [round(7200 / 95, 2), round(7700 / 95, 2)]
    assert values["cot_e"]["of_all_asked"] == round(7200 / 95, 2)
    assert values["failed"] == {"n": 5, "why": {"invalid": 5}}
    assert values["abstained"] == {"n": 5, "why": {"empty": 5}}
    assert (values["answered"], values["judged"], values["usable"]) == (95, 90, False)
    assert "UNUSABLE, over 2 % failed" in score_text(values)
    assert score(rows[:90] + rows[94:95], RUN)["usable"]
    nothing = score(rows[90:95], RUN)
    assert nothing["cot_e"] is None
    assert "UNUSABLE, 0 judged" in score_text(nothing)
    assert values["precision"]["mean"] == 100
    assert values["recall"]["mean"] == 50


def test_conclusions_are_corrected_for_the_judges_errors() -> None:
    rows = [replace(row(n, 8), patient=f"p{n % 25}", agrees=n % 5 > 1) for n in range(200)]
    binary = {"n_right": 400, "called_right_of_right": 360, "n_wrong": 400,
              "called_right_of_wrong": 40}  # fmt: skip
    found = score(rows, {**RUN, "calibration": {"binary": binary}})["agrees_corrected"]
    # (.6 + .9 - 1) / (.9 + .9 - 1)
    assert found["mean"] == pytest.approx(62.5)
    assert found["ci95"][0] < 62.5 < found["ci95"][1]
    useless = {**binary, "called_right_of_wrong": 360}
    assert score(rows, {**RUN, "calibration": {"binary": useless}})["agrees_corrected"] is None


def arms(failed_a: int, failed_b: int) -> tuple[list[Judged], list[Judged]]:
    def arm(failed: int, mark: int) -> list[Judged]:
        return [row(n, None if n < failed else mark) for n in range(400)]

    return arm(failed_a, 8), arm(failed_b, 7)


@pytest.mark.parametrize(
    ("failed", "usable"), [((0, 0), True), ((3, 0), True), ((9, 9), False), ((6, 1), False)]
)
def test_runs_that_failed_apart_are_not_compared(failed: tuple[int, int], usable: bool) -> None:
    values = compare_judged(*arms(*failed))
    assert values["usable"] is usable
    assert ("UNUSABLE" in judged_text(values, ("a", "b"))) is not usable
    assert values["cot_e"]["difference"] == 10
    assert values["cot_e"]["p"] == pytest.approx(2 / 1024, rel=0.01)
    assert values["S_FC"]["p_holm"] == pytest.approx(6 / 1024, rel=0.01)


def test_rows_are_paired_by_question_scan_and_choices(tmp_path: Path) -> None:
    twins = [replace(row(1, mark), choices=c, scan=s)
             for mark, c, s in ((2, (), 0), (4, ("x", "y"), 0), (9, (), 1))]  # fmt: skip
    others = [replace(each, marks=dict.fromkeys(NAMES, 10)) for each in twins]
    assert compare_judged(twins, others[::-1])["cot_e"]["difference"] == -50
    (tmp_path / "judged.jsonl").write_text(to_lines(twins))
    assert read_judged(tmp_path / "judged.jsonl") == twins
    (tmp_path / "judged.jsonl").write_text(to_lines([*twins, twins[1]]))
    with pytest.raises(InputError, match=r"judged.jsonl:4: question: found that of line 2 again"):
        read_judged(tmp_path / "judged.jsonl")


def test_few_patients_have_a_wide_interval_or_none() -> None:
    values = score([row(n, 8) for n in range(40)], RUN)  # four chains of ten patients each
    assert values["cot_e"]["ci95"] == pytest.approx([49.02, 94.33], abs=0.01)  # Wilson's, 8 of 10
    assert values["f1"]["ci95"] is None
    assert "too few for an interval" in score_text(values)


def test_other_questions_are_not_compared() -> None:
    a, b = arms(0, 0)
    with pytest.raises(InputError, match="the same questions"):
        compare_judged(a, b[1:])
