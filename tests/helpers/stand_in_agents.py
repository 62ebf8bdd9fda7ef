"""Stand-ins for the engine's agents: quick, deterministic, and as faulty as a test asks."""

import re
import time

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.schema import TASK_OF, Record, RoundTarget
from tumorchain_jax.engine.case import Case, CaseResult, Claim, Rejected, Review, Step, Trace
from tumorchain_jax.engine.facts import Fact, Source
from tumorchain_jax.engine.graph.load import shipped_graph

LIVER = 5


def say(case: Case) -> CaseResult:
    """Finds `hypodense` and `N cm` in the first report and makes a few records of them."""
    document = case.documents[0]
    facts = []
    asked_for = {"finding": r"mass", "density": r"hypodense|hyperdense", "size": r"\d+ mm"}
    for attribute, pattern in asked_for.items():
        if (found := re.search(pattern, document.text)) is not None:
            source = Source("radiology", document.sha256, *found.span(), found.group())
            value, unit = found.group().removesuffix(" mm"), "mm" * (attribute == "size")
            how = "present", "definite", "current"
            facts.append(Fact(case.id, "liver", "", 1, attribute, value, unit, *how, source))
    if len(facts) < 3:
        return CaseResult(tuple(facts), (), (), (Rejected("liver", "no lesion is described", 3),))
    graph = shipped_graph()
    edge = next(edge for edge in graph.edges if edge.relation == "arises_in")
    lesion, density, size = facts
    steps = (
        Step(
            "finding",
            f"First, the liver shows a {density.value} mass of {size.value} mm.",
            (
                Claim("mass", "density", density.value, (lesion.id, density.id)),
                Claim("mass", "size", f"{size.value} mm", (lesion.id, size.id)),
            ),
        ),
        Step(
            "impression",
            "Second, this suggests a tumour of the liver.",
            (Claim("mass", "suggests", "tumour", (lesion.id,), (edge.id,)),),
        ),
    )
    thought = " ".join(step.text for step in steps)
    asked = {
        "tumor_position": ("Which organ shows a tumour?", (), "liver"),
        "density": (
            "What is the density of the lesion?",
            ("hypodense", "hyperdense"),
            density.value,
        ),
        "count": ("How many lesions are there?", ("1", "2", "3"), "1"),
        "tumor": ("Which T category has the tumour of the liver?", (), "T2"),
        "cot_report": ("Write a report.", (), "a tumour of the liver"),
    }
    records, traces = [], []
    for subtask, (question, choices, answer) in asked.items():
        rounds = (
            RoundTarget("The liver needs a closer look."),
            RoundTarget(f"<think> {thought} </think> Thus, the answer is {answer}.", (LIVER,)),
        )
        made = Record(
            case.patient, 0, TASK_OF[subtask], subtask, LIVER, question, choices, rounds, thought,
            answer,
        )  # fmt: skip
        records.append(made)
        ids = tuple(fact.id for fact in facts)
        trace = Trace(
            "", case.id, "choice" if choices else "open", steps, ids, (edge.id,),
            (Review("calibrator", "", "", 1),), (("reasoner", "rules"),), graph.version,
        )  # fmt: skip
        traces.append(trace)
    differ = ("CT and pathology differ in T",) if len(case.documents) > 1 else ()
    return CaseResult(tuple(facts), tuple(records), tuple(traces), (), differ)


def say_slowly(case: Case) -> CaseResult:
    """Takes its time, so that a kill finds it at work."""
    time.sleep(0.01)
    return say(case)


def stumble(case: Case) -> CaseResult:
    """Fails on every case whose id ends with 7."""
    if case.id.endswith("7"):
        raise ValueError("a fault\nof the \ud800 agents")
    return say(case)


def give_up(case: Case) -> CaseResult:
    """Finds that what all cases need is not there."""
    raise InputError("endpoint", "model", "none", "one", "start it")
