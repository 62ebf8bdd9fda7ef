"""Slots: questions that join a running batch have the answers that they have alone."""

import pytest

from tumorchain_jax.inference.analyzer import TASKS, Analyzer
from tumorchain_jax.inference.slots import Question, Slots
from tumorchain_jax.phantoms.patient import make_patient
from tumorchain_jax.reasoning.generate import Sampling
from tumorchain_jax.reasoning.trace import Trace

pytestmark = pytest.mark.program
Words = list[tuple[str, tuple[tuple[int, str], ...]]]


def words(trace: Trace) -> Words:
    """What is the same in any batch; log-probabilities differ in their last digits."""
    return [(r.text, tuple((m.label, m.outcome) for m in r.organs)) for r in trace.rounds]


def test_question_that_joins_others_has_the_answer_that_it_has_alone() -> None:
    analyzer = Analyzer.load(batch_size=2, max_rounds=3, sampling=Sampling(0.7))
    patients = [make_patient(seed) for seed in (1, 2)]
    cases = [analyzer.prepare(each.ct, each.labels) for each in patients]
    texts = [TASKS["position"], "Is there a lesion in the liver?", TASKS["report"]]
    asked = [(case, text) for text in texts for case in cases]
    alone = [analyzer.run([each], seed=seed)[0].trace for seed, each in enumerate(asked)]

    slots, encoded = Slots(analyzer.runner), [analyzer.runner.encode(case) for case in cases]
    waiting = [
        Question(case, encoded[seed % 2], text, seed) for seed, (case, text) in enumerate(asked)
    ]
    found: dict[int, Trace] = {}
    seeds: dict[int, int] = {}
    joined_late, first = 0, True
    while waiting or slots.busy:
        idle = slots.idle[:1] if first else slots.idle  # the second joins after the first's round
        joined_late += not first and bool(waiting) and 0 < len(idle) < 2
        new = {number: waiting.pop(0) for number in idle[: len(waiting)]}
        if new:
            slots.admit(new)
        seeds |= {number: each.seed for number, each in new.items()}
        for number, progress in slots.step().items():
            trace = progress.answer.trace
            expected = words(alone[seeds[number]])[: len(trace.rounds)]
            assert [text for text, _ in words(trace)] == [text for text, _ in expected]
            assert words(trace)[:-1] == expected[:-1]  # the last one's organs are still open
            if progress.done:
                found[seeds[number]] = trace
        first = False
    assert [words(found[seed]) for seed in range(len(asked))] == [words(each) for each in alone]
    assert [found[s].stop_reason for s in range(len(asked))] == [t.stop_reason for t in alone]
    assert joined_late  # while another was between its rounds
    assert len({str(words(trace)) for trace in alone}) > 3  # so that a mix-up is seen


@pytest.mark.system(haste=True)
def test_dropped_question_leaves_its_slot() -> None:
    analyzer = Analyzer.load(batch_size=2, max_rounds=3)
    patient = make_patient(2)
    case = analyzer.prepare(patient.ct, patient.labels)
    scan = analyzer.runner.encode(case)
    slots = Slots(analyzer.runner)
    slots.admit({number: Question(case, scan, TASKS["position"]) for number in (0, 1)})
    slots.step()
    if slots.busy:
        slots.drop(0)
    assert 0 in slots.idle
    slots.admit({0: Question(case, scan, TASKS["position"])})
    expected = analyzer.run([(case, TASKS["position"])])[0].trace
    done = {}
    while slots.busy:
        done |= {n: p.answer.trace for n, p in slots.step().items() if p.done}
    assert words(done[0]) == words(expected)
