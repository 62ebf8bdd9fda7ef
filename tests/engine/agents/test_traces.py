"""Traces: every claim resolves, and no change of one token goes unseen."""

import random
import string
from dataclasses import replace

import pytest
from engine_cases import knowing, known_case

from tumorchain_jax.engine.agents.pipeline import process
from tumorchain_jax.engine.agents.traces import record_id, record_line, step_problems, verify
from tumorchain_jax.engine.case import Case, CaseResult, Claim, Step
from tumorchain_jax.engine.graph.load import shipped_graph

GRAPH = shipped_graph()


def results(count: int) -> list[tuple[Case, CaseResult]]:
    made = []
    for seed in range(count):
        case, facts = known_case(seed)
        made.append((case, process(case, knowing(facts))))
    return made


RESULTS = results(30)


def test_every_claim_of_right_records_resolves() -> None:
    claims = 0
    for case, result in RESULTS:
        assert verify(result, case) == ()
        claims += sum(len(s.claims) for t in result.traces for s in t.steps)
    assert claims > 1500


def test_every_impression_cites_an_edge() -> None:
    steps = [s for _, r in RESULTS for t in r.traces for s in t.steps if s.level == "impression"]
    assert len(steps) > 150
    assert all(claim.edges for step in steps for claim in step.claims)


def mutated(rng: random.Random, text: str) -> str:
    """Change one token of a text: another number, word, or spelling."""
    words = text.split(" ")
    at = rng.randrange(len(words))
    word = words[at]
    change = rng.choice(("drop", "letter", "other", "digit"))
    if change == "drop" and len(words) > 1:
        del words[at]
    elif change == "other":
        words[at] = rng.choice(("no", "left", "hyperdense", "T4", "7", "liver", "possible"))
    elif change == "digit" and any(c.isdigit() for c in word):
        words[at] = "".join(str((int(c) + 1) % 10) if c.isdigit() else c for c in word)
    else:
        place = rng.randrange(len(word)) if word else 0
        words[at] = word[:place] + rng.choice(string.ascii_lowercase) + word[place + 1 :]
    return " ".join(words)


def mutate(rng: random.Random, result: CaseResult) -> CaseResult:
    """Change one token of a chain, an answer, a question, a span, or an id."""
    number = rng.randrange(len(result.records))
    record, trace = result.records[number], result.traces[number]
    facts = result.facts
    match rng.choice(
        ("chain", "answer", "question", "span", "fact", "edge", "id", "claim", "step")
    ):
        case "chain":
            at = rng.randrange(len(record.rounds))
            each = record.rounds[at]
            changed = replace(each, text=mutated(rng, each.text))
            record = replace(
                record, rounds=(*record.rounds[:at], changed, *record.rounds[at + 1 :])
            )
        case "answer":
            record = replace(record, answer=mutated(rng, record.answer))
        case "question":
            record = replace(record, question=mutated(rng, record.question))
        case "span":
            at = rng.randrange(len(facts))
            source = facts[at].source
            field = rng.choice(("start", "end"))
            source = replace(source, **{field: getattr(source, field) + rng.choice((-2, -1, 1))})
            facts = (*facts[:at], replace(facts[at], source=source), *facts[at + 1 :])
        case "id":
            trace = replace(trace, record=mutated(rng, trace.record))
        case kind:
            steps = list(trace.steps)
            at = rng.randrange(len(steps))
            step = steps[at]
            claim = rng.choice(step.claims)
            new = claim
            if kind == "fact" and claim.facts:
                new = replace(claim, facts=(mutated(rng, claim.facts[0]), *claim.facts[1:]))
            elif kind == "edge" and claim.edges:
                new = replace(claim, edges=(mutated(rng, claim.edges[0]), *claim.edges[1:]))
            elif kind == "step":
                step = replace(step, text=mutated(rng, step.text))
            else:
                field = rng.choice(("subject", "object"))
                new = replace(claim, **{field: mutated(rng, getattr(claim, field))})
            claims = tuple(new if each is claim else each for each in step.claims)
            steps[at] = replace(step, claims=claims)
            trace = replace(trace, steps=tuple(steps))
    records = (*result.records[:number], record, *result.records[number + 1 :])
    traces = (*result.traces[:number], trace, *result.traces[number + 1 :])
    return replace(result, records=records, traces=traces, facts=facts)


def test_a_thousand_changes_of_one_token_are_caught() -> None:
    rng = random.Random(11)
    made, missed = 0, []
    while made < 1000:
        case, result = rng.choice(RESULTS)
        at = rng.randrange(len(result.records))
        one = replace(
            result, records=result.records[at : at + 1], traces=result.traces[at : at + 1]
        )
        changed = mutate(rng, one)
        if changed != one:
            made += 1
            if not verify(changed, case):
                missed.append((one.traces, changed.traces, changed.records))
    assert not missed, len(missed)


@pytest.mark.parametrize("letter", ["T", "N", "M"])
def test_wrong_stages_are_caught(letter: str) -> None:
    """T, N and M are the Summarizer's: what pathology states, and what imaging alone gives."""
    rng = random.Random(letter)
    planted = 0
    for _, result in RESULTS:
        facts = {fact.id: fact for fact in result.facts}
        known = tuple(f for f in result.facts if f.source.kind != "pathology")
        for record, trace in zip(result.records, result.traces, strict=True):
            for step in trace.steps:
                claim = step.claims[0]
                if claim.relation not in (letter, f"imaging {letter}"):
                    continue
                other = rng.choice([d for d in "01234" if d not in claim.object])
                new = letter + other
                wrong = Step(
                    step.level,
                    step.text.replace(claim.object, new),
                    (replace(claim, object=new), *step.claims[1:]),
                )
                planted += 1
                assert not list(step_problems(record.subtask, step, known, facts, GRAPH))
                assert list(step_problems(record.subtask, wrong, known, facts, GRAPH)), wrong
    assert planted >= 30


def test_a_step_beyond_its_subtask_is_caught() -> None:
    """The paper's task boundary: where a lesion lies is told without its density."""
    for _, result in RESULTS:
        facts = {fact.id: fact for fact in result.facts}
        for density in (f for f in result.facts if f.attribute == "density"):
            claim = Claim(
                f"{density.organ} lesion {density.lesion}", "density", density.value, (density.id,)
            )
            step = Step("finding", f"it is {density.value}", (claim,))
            known = tuple(f for f in result.facts if f.source.kind != "pathology")
            (problem,) = step_problems("segment_localization", step, known, facts, GRAPH)
            assert "beyond" in problem
            assert not list(step_problems("density", step, known, facts, GRAPH))


def test_ids_are_of_content() -> None:
    (case, result), *_ = RESULTS
    ids = [record_id(record_line(record, case.scans)) for record in result.records]
    assert ids == [trace.record for trace in result.traces]
    assert len(set(ids)) == len(ids)
