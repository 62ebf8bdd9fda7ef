"""Questions: shares, letters, options, answers that their question does not tell."""

import itertools
from collections import Counter
from functools import cache

import pytest
from engine_cases import knowing, known_case

from tumorchain_jax.data.schema import Record
from tumorchain_jax.engine.agents.ask import ALIKE, VALUES
from tumorchain_jax.engine.agents.pipeline import process
from tumorchain_jax.engine.agents.questions import REQUESTS, SHARES, WORDINGS, without_request
from tumorchain_jax.engine.case import Trace
from tumorchain_jax.engine.graph.load import shipped_graph
from tumorchain_jax.reasoning.question_kind import question_kind
from tumorchain_jax.reasoning.question_scope import out_of_scope

CASES = 60


@cache
def asked(mix: str) -> tuple[list[Record], list[Trace]]:
    records: list[Record] = []
    traces: list[Trace] = []
    for seed in range(CASES):
        case, facts = known_case(seed)
        result = process(case, knowing(facts, mix=mix))
        records += result.records
        traces += result.traces
    return records, traces


def test_paper_shares_of_tasks() -> None:
    records, _ = asked("paper")
    assert len(records) >= 36 * CASES
    counts = Counter(record.task for record in records)
    for task, share in SHARES.items():
        assert abs(counts[task] / len(records) - share) < 0.005, task


@pytest.mark.parametrize("mix", ["plain", "paper"])
def test_no_answer_of_a_subtask_is_in_the_great_majority(mix: str) -> None:
    records, _ = asked(mix)
    for subtask in {record.subtask for record in records}:
        answers = Counter(r.answer for r in records if r.subtask == subtask)
        assert max(answers.values()) <= 0.62 * sum(answers.values()), (subtask, answers)


def test_no_question_is_asked_twice_of_a_scan() -> None:
    for mix in ("plain", "paper"):
        records, _ = asked(mix)
        asked_ = Counter((r.patient, r.question, tuple(sorted(r.choices))) for r in records)
        assert max(asked_.values()) == 1


def test_distinct_questions() -> None:
    records, _ = asked("paper")
    assert len({record.question for record in records}) >= 500 * len(records) / 10_000


def test_requests_change_neither_the_kind_nor_the_scope_of_a_question() -> None:
    words = {"organ": "liver", "lesion": "mass in the liver", "part": "liver segment VI"}
    for wording in itertools.chain(*WORDINGS.values()):
        text = wording.format(**words, value="round", things="lesions")
        for request in REQUESTS:
            whole = f"{text} {request}"
            assert without_request(whole) == text
            assert question_kind(whole) == question_kind(text)
            assert out_of_scope(whole) == out_of_scope(text) == ""


def test_letters_are_balanced_and_length_tells_nothing() -> None:
    records, _ = asked("paper")
    chosen = [record for record in records if len(record.choices) == 4]
    letters = Counter(record.choices.index(record.answer) for record in chosen)
    assert len(chosen) > 200
    assert all(abs(n / len(chosen) - 0.25) < 0.08 for n in letters.values()), letters
    longest = [r.answer == max(r.choices, key=len) for r in chosen]
    assert sum(longest) < 0.5 * len(longest)


def test_options_are_distinct_and_never_two_right() -> None:
    graph = shipped_graph()
    for record in itertools.chain(*(asked(mix)[0] for mix in ("plain", "paper"))):
        wrong = set(record.choices) - {record.answer}
        assert len(wrong) == max(0, len(record.choices) - 1)
        assert not wrong & set(ALIKE.get(record.answer, ()))
        if record.subtask == "segment_localization" and record.choices:
            wholes = set(graph.wholes(record.answer))
            assert not wholes & wrong
            assert not any(record.answer in graph.wholes(option) for option in wrong)
        if record.subtask in VALUES and record.choices:
            assert set(record.choices) <= set(VALUES[record.subtask])


def test_forms_and_wordings_are_used() -> None:
    records, traces = asked("paper")
    forms = Counter(trace.form for trace in traces)
    assert set(forms) == {"open", "choice"}
    for subtask in ("shape", "density", "boundary", "count", "cot_report", "segment_localization"):
        texts = {r.question.split(" the ")[0] for r in records if r.subtask == subtask}
        assert len(texts) >= 4, subtask
    assert all(len(set(wordings)) == len(wordings) > 1 for wordings in WORDINGS.values())
