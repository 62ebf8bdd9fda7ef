"""Answers: one that the chain does not give is caught, in every subtask."""

import random
from collections import Counter
from dataclasses import replace

from engine_cases import knowing, known_case

from tumorchain_jax.engine.agents.answer_check import answer_issue
from tumorchain_jax.engine.agents.ask import NO, VALUES, YES
from tumorchain_jax.engine.agents.pipeline import process
from tumorchain_jax.engine.graph.load import shipped_graph

OTHERS = {
    "tumor_position": ("liver", "pancreas", "stomach", "colon", "esophagus"),
    "segment_localization": ("cecum", "rectum", "liver segment V", "pylorus"),
    "count": ("1", "2", "3", "none"),
    "tumor": ("T1a", "T1b", "T2", "T3", "T4a"),
    "node": ("N0", "N1", "N2", "N3"),
    "metastasis": ("M0", "M1", "M1a"),
    "cot_report": ("a tumour of the liver", "a tumour of the colon", "no tumour"),
    **VALUES,
}


def test_answers_that_do_not_follow_are_caught() -> None:
    rng = random.Random(0)
    graph = shipped_graph()
    planted, caught = Counter[str](), Counter[str]()
    for seed in range(40):
        case, facts = known_case(seed)
        result = process(case, knowing(facts))
        for record, trace in zip(result.records, result.traces, strict=True):
            assert not answer_issue(record, trace.steps, graph), record
            if record.answer in (YES, NO):
                wrong = NO if record.answer == YES else YES
            else:
                same = record.answer.split(",")[0]
                options = [o for o in OTHERS[record.subtask] if not same.startswith(o)]
                wrong = rng.choice(options)
            planted[record.subtask] += 1
            caught[record.subtask] += bool(
                answer_issue(replace(record, answer=wrong), trace.steps, graph)
            )
    assert planted.keys() == OTHERS.keys()
    assert all(count > 10 for count in planted.values())
    missed = planted - caught
    assert sum(missed.values()) <= 0.01 * sum(planted.values()), missed
