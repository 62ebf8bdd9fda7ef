"""The Calibrator: planted faults of every kind are caught, chains that are right pass."""

import random
from dataclasses import replace
from functools import cache

import pytest
from engine_cases import knowing, known_case
from engine_faults import FAULTS

from tumorchain_jax.engine.agents.calibrator import calibrate
from tumorchain_jax.engine.agents.pipeline import Settings, _Work
from tumorchain_jax.engine.agents.protocol import Chain, View
from tumorchain_jax.engine.agents.reasoner import reason
from tumorchain_jax.engine.case import Step
from tumorchain_jax.engine.graph.load import shipped_graph

PLANTED = 200


@cache
def drafts() -> list[tuple[View, Chain]]:
    """Chains of organs of 150 cases, as the Reasoner writes them."""
    made = []
    for seed in range(150):
        case, facts = known_case(seed)
        settings: Settings = knowing(facts)
        work = _Work(case, settings, shipped_graph())
        for organ in work._organs():
            view = work.view(organ, 1, "", "")
            made.append((view, reason(view)))
    return made


def test_right_chains_pass() -> None:
    issues = [calibrate(view, chain) for view, chain in drafts()]
    assert len(issues) > 700
    assert not any(issues), [issue for issue in issues if issue][:5]


@pytest.mark.parametrize("kind", FAULTS)
def test_planted_faults_are_caught(kind: str) -> None:
    rng = random.Random(kind)
    planted, missed = 0, []
    pool = [d for d in drafts() if len(d[1]) > 2]
    for _ in range(20_000):
        view, chain = rng.choice(pool)
        faulty = FAULTS[kind](rng, view, chain)
        if faulty is None or faulty == chain:
            continue
        planted += 1
        if not calibrate(view, faulty):
            missed.append([step.text for step in faulty])
        if planted == PLANTED:
            break
    assert planted == PLANTED
    assert len(missed) <= 0.01 * planted, missed[:3]


@pytest.mark.parametrize("kind", ["density", "size", "polarity", "sub-organ"])
def test_words_without_their_claims_are_caught(kind: str) -> None:
    """A fault in the sentence alone, or in the claim alone."""
    rng = random.Random(kind)
    checked = 0
    for view, chain in drafts():
        faulty = FAULTS[kind](rng, view, chain) if len(chain) > 2 else None
        if faulty is None or faulty == chain:
            continue
        for number, (old, new) in enumerate(zip(chain, faulty, strict=True)):
            if old != new:
                checked += 1
                for step in (replace(old, text=new.text), replace(old, claims=new.claims)):
                    mixed = (*chain[:number], step, *chain[number + 1 :])
                    assert calibrate(view, mixed), (old, step)
    assert checked > 100


def test_a_conflict_is_named_once_and_left_out_of_the_next_draft() -> None:
    case, facts = known_case(3, tumour=True)
    (density,) = [f for f in facts if f.attribute == "density" and f.lesion == 1][:1]
    other = "isodense" if density.value != "isodense" else "hypodense"
    facts = (*facts, replace(density, value=other))
    work = _Work(case, knowing(facts), shipped_graph())
    view = work.view(density.organ, 1, "", "")
    issue = calibrate(view, reason(view))
    assert issue.startswith("conflict: ")
    again = work.view(density.organ, 2, "suspected_cause", issue)
    chain = reason(again)
    assert not calibrate(again, chain)
    assert not any(
        c.relation == "density" for s in chain for c in s.claims if c.subject.endswith("1")
    )


def test_steps_that_claim_nothing_are_refused() -> None:
    view, chain = next(d for d in drafts() if d[1])
    assert "claims nothing" in calibrate(view, (*chain, Step("reasoning", "all is well", ())))
    assert "is none of" in calibrate(view, (replace(chain[0], level="guess"), *chain[1:]))


def test_pathology_cannot_be_shown() -> None:
    case, facts = known_case(3, tumour=True)
    work = _Work(case, knowing(facts), shipped_graph())
    with pytest.raises(ValueError, match="fenced off"):
        View(case.id, "liver", work.pathology, (), ())
