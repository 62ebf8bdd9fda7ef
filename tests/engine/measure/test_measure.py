"""The measure: facts that are the truth score 1, and each kind of error costs what it should."""

import json
from collections import Counter
from dataclasses import replace

import pytest

from tumorchain_jax.cli.main import main
from tumorchain_jax.engine.facts import Fact
from tumorchain_jax.engine.measure.agents import FAULT_KINDS, known_facts, plant_faults
from tumorchain_jax.engine.measure.cases import case_of
from tumorchain_jax.engine.measure.identifiers import identifiers_found
from tumorchain_jax.engine.measure.matching import MEASURES, Comparison, compare
from tumorchain_jax.engine.measure.scores import rate, score
from tumorchain_jax.phantoms.reports.cases import ReportCase, make_case
from tumorchain_jax.phantoms.reports.styles import STYLES


def reports(count: int = 40) -> list[ReportCase]:
    names = list(STYLES)
    return [make_case(seed, STYLES[names[seed % len(names)]]) for seed in range(count)]


def changed(facts: tuple[Fact, ...], attribute: str, **fields: object) -> tuple[Fact, ...] | None:
    """Change the first current fact of lesion 1 of an attribute."""
    for number, fact in enumerate(facts):
        if fact.attribute == attribute and fact.lesion == 1 and fact.is_current and (
            fact.source.kind == "radiology" and fact.organ in ("liver", "pancreas", "stomach")
        ):  # fmt: skip
            return (*facts[:number], replace(fact, **fields), *facts[number + 1 :])
    return None


def test_facts_that_are_the_truth_are_all_right():
    right = Counter()
    for report in reports():
        facts = known_facts(case_of(report), report.statements)
        found = compare(facts, report.statements)
        assert found.wrong.total() == found.missed.total() == 0, report.id
        assert found.taken == found.sure == 0
        assert {f.id for f in facts if f.attribute in ("size", "T", "density")} <= found.true | {
            f.id for f in facts if f.time == "prior"
        }
        right += found.right
    assert {measure for measure in MEASURES if right[measure]} == {*MEASURES}


def test_lesion_numbers_do_not_matter_and_swapped_sizes_do():
    checked = 0
    for report in reports(80):
        truth = report.statements
        facts = known_facts(case_of(report), truth)
        other = tuple(replace(f, lesion=f.lesion and f.lesion + 7) for f in facts)
        assert compare(other, truth).wrong.total() == 0
        sizes = {f.lesion: f for f in facts if f.attribute == "size" and f.is_current
                 and f.organ == "liver" and f.source.kind == "radiology"}  # fmt: skip
        if {1, 2} <= {*sizes} and sizes[1].value != sizes[2].value:
            value = {1: sizes[2].value, 2: sizes[1].value}
            swapped = tuple(
                replace(f, value=value[f.lesion]) if f in (sizes[1], sizes[2]) else f for f in facts
            )
            checked += compare(swapped, truth).wrong["size"] > 0
    assert checked


@pytest.mark.parametrize(
    ("attribute", "fields", "measure"),
    [
        ("finding", {"organ": "spleen"}, "location"),
        ("finding", {"part": "rectum"}, "location"),
        ("size", {"value": "777"}, "size"),
        ("density", {"value": "isotropic"}, "density"),
        ("shape", {"polarity": "absent"}, "shape"),
        ("boundary", {"time": "prior"}, "boundary"),
    ],
)
def test_error_costs_its_own_measure(attribute, fields, measure):
    costs = 0
    for report in reports(60):
        facts = changed(known_facts(case_of(report), report.statements), attribute, **fields)
        if facts is not None:
            found = compare(facts, report.statements)
            costs += bool(found.wrong[measure] or found.missed[measure])
    assert costs > 5


def test_negations_taken_as_present_are_counted():
    taken = unsaid = 0
    for report in reports():
        facts = known_facts(case_of(report), report.statements)
        found: Comparison = compare(
            tuple(replace(f, polarity="present", time="current") for f in facts), report.statements
        )
        taken, unsaid = taken + found.taken, unsaid + found.unsaid
    assert taken == unsaid > 50


def test_faults_are_planted_in_right_chains():
    planted, caught, clean = Counter(), Counter(), 0
    for seed in range(22):
        report = make_case(seed, STYLES["structured"])
        counts = plant_faults(case_of(report), report.statements, seed)
        planted, caught, clean = (
            planted + counts.planted,
            caught + counts.caught,
            clean + counts.clean,
        )
    assert {*planted} == {*FAULT_KINDS}
    assert len(FAULT_KINDS) >= 15
    assert clean > 50
    assert caught.total() > 0.8 * planted.total()


def test_identifiers_that_stay_are_counted():
    found, planted, _ = identifiers_found(make_case(3, STYLES["structured"], identifiers=True))
    assert planted.total() >= 4
    assert found.total() <= planted.total()
    nothing = identifiers_found(make_case(3, STYLES["structured"]))
    assert nothing[1].total() == 0


def test_sums_and_their_intervals():
    good = score([(1, 0, 0)] * 20)
    assert (good.f1, good.f1_interval) == (1.0, (1.0, 1.0))
    half = score([(1, 1, 1), (1, 0, 0), (0, 1, 1), (1, 1, 0)])
    assert half.f1 == pytest.approx(6 / 11)
    low, high = half.f1_interval
    assert low < half.f1 < high
    assert rate([(0, 0)]).as_dict() == {"hits": 0, "of": 0, "share": None, "interval": [None, None]}


def test_command_prints_every_style(capsys):
    words = ["engine", "score", "--patients", "2", "--workers", "1", "--seed", "2000000"]
    assert main([*words, "--style", "structured", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["patients"] == 2
    assert found["styles"]["structured"]["patients"] == 2
    assert found["agents"]["claims_without_trace"] == 0


def test_unknown_style_is_refused(capsys):
    assert main(["engine", "score", "--patients", "1", "--style", "klingon"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
