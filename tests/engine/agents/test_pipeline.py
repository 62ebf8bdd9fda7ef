"""A case end to end: fences, rounds, rejection, pathology that differs, the same bytes again."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from engine_cases import CODE_WORD, Paper, knowing, known_case

from tumorchain_jax.anatomy.organs import labels_named
from tumorchain_jax.data.record_file import RecordFile
from tumorchain_jax.data.schema import SUBTASKS, Record
from tumorchain_jax.engine.agents.pipeline import Settings, process
from tumorchain_jax.engine.agents.protocol import STRATEGIES, Agents, Chain, View
from tumorchain_jax.engine.agents.reasoner import reason
from tumorchain_jax.engine.agents.traces import record_line, verify
from tumorchain_jax.engine.case import Case, CaseResult, Document
from tumorchain_jax.engine.facts import Fact
from tumorchain_jax.evaluation.answers import judge

REPORT = """FINDINGS: There is a 35 mm ill-defined hypodense mass in the head of the pancreas.
The liver, stomach and colon are unremarkable. The esophagus is unremarkable.
No enlarged lymph nodes. No metastasis.
IMPRESSION: Findings suggest a tumour of the pancreas.
"""


def made(seed: int, **changes: object) -> tuple[Case, CaseResult]:
    case, facts = known_case(seed)
    return case, process(case, knowing(facts, **changes))


def test_a_report_as_written_gives_records_of_the_tumour() -> None:
    documents = Document("radiology", REPORT), Document("pathology", "Adenocarcinoma, pT2 pN1.")
    case = Case("a", "p", ("s",), documents)
    result = process(case)
    assert verify(result, case) == ()
    answers = {(r.subtask, r.answer) for r in result.records}
    assert {("tumor", "T2"), ("node", "N1"), ("tumor_position", "pancreas")} <= answers
    assert ("segment_localization", "head of the pancreas") in answers
    assert {r.subtask for r in result.records} >= {"density", "boundary", "count", "cot_report"}
    assert result.discordant == ("pancreas: CT gives N0, pathology N1",)


def test_same_again_and_in_any_order() -> None:
    first = [made(seed)[1] for seed in range(8)]
    again = [made(seed)[1] for seed in reversed(range(8))]
    assert first == again[::-1]


def test_records_can_be_judged_and_looked_at() -> None:
    """The own text of each record is right; organs that a round names are looked at next."""
    subtasks = set()
    for seed in range(25):
        case, result = made(seed)
        for record in result.records:
            subtasks.add(record.subtask)
            assert judge(record, record.rounds[-1].text).right, record
            assert Record.from_json(record.to_json()) == record
            assert record.answer.lower() not in record.question.lower().split()
            assert record.rounds[0].look_at == ()
            looked: set[int] = set()
            for before, after in zip(record.rounds, record.rounds[1:], strict=False):
                named = {label for m in labels_named(before.text) for label in m.labels}
                assert set(after.look_at) <= named
                looked |= set(after.look_at)
            assert record.organ == 0 or record.organ in looked
        assert case.patient == f"patient-{seed}"
    assert subtasks == {s for each in SUBTASKS.values() for s in each} - {"organ_position"}


def test_prepare_reads_all_records(tmp_path: Path) -> None:
    lines, scans = [], []
    for seed in range(12):
        case, result = made(seed, mix="paper")
        scans += case.scans
        lines += [record_line(record, case.scans) for record in result.records]
    path = tmp_path / "records.jsonl"
    path.write_text("".join(line + "\n" for line in lines))
    records = RecordFile(path, scans)
    assert sum(records.count(scan) for scan in scans) == len(lines)
    assert not any(records.repeated(scan) for scan in scans)


def test_what_pathology_says_reaches_no_chain_of_ct() -> None:
    """A code word that only pathology holds, and the stage that it states."""
    shown: list[View] = []

    def watching(view: View) -> Chain:
        shown.append(view)
        return reason(view)

    for seed in range(20):
        case, facts = known_case(seed, tumour=True)
        pathology = [f for f in facts if f.source.kind == "pathology"]
        marked = [replace(f, value=f"{f.value}{CODE_WORD}") for f in pathology]
        facts = (*(f for f in facts if f not in pathology), *marked)
        settings = knowing(facts)
        agents = replace(settings.agents, reasoner=watching)
        result = process(case, replace(settings, agents=agents))
        ct = {"finding", "impression"}
        chains = [s.text for t in result.traces for s in t.steps if s.level in ct]
        assert chains
        assert CODE_WORD not in " ".join(chains)
    assert shown
    assert CODE_WORD not in repr(shown)
    assert not any(f.source.kind == "pathology" for v in shown for f in (*v.facts, *v.around))


def test_an_issue_that_the_summarizer_sends_back_says_nothing_of_pathology() -> None:
    ct, pathology = Paper("c", "radiology"), Paper("c", "pathology")
    ct.say("colon", "finding", "mass", polarity="absent")
    pathology.say("colon", "T", "T3")
    (first, found), (second, more) = ct.finish(), pathology.finish()
    case = Case("c", "p", ("s",), (first, second))
    issues: list[str] = []

    def watching(view: View) -> Chain:
        issues.append(view.issue)
        return reason(view)

    settings = knowing((*found, *more))
    result = process(case, replace(settings, agents=replace(settings.agents, reasoner=watching)))
    assert issues == ["", *["look again at the impression of the colon"] * 2]
    assert result.discordant == ("colon: pathology stages a tumour that CT does not show",)
    assert [r.reason for r in result.rejected] == [f"TNM: {result.discordant[0]}"]
    assert not {"tumor", "node"} & {r.subtask for r in result.records if r.answer != "no"}
    assert {("tumor_position", "none")} <= {(r.subtask, r.answer) for r in result.records} | {
        ("tumor_position", "none")
    }


@pytest.mark.parametrize("wrong", [1, 2, 9])
def test_wrong_drafts_are_tried_again_and_become_rounds_to_recover_from(wrong: int) -> None:
    case, facts = known_case(3, tumour=True)
    tries: dict[str, int] = {}
    strategies = set()

    def erring(view: View) -> Chain:
        strategies.add(view.strategy)
        tries[view.organ] = tries.get(view.organ, 0) + 1
        chain = reason(view)
        if tries[view.organ] > wrong:
            return chain
        return (replace(chain[0], text=chain[0].text + " with necrosis"), *chain[1:])

    settings = knowing(facts)
    result = process(case, replace(settings, agents=replace(settings.agents, reasoner=erring)))
    assert strategies <= {"", *STRATEGIES}
    if wrong >= 3:
        assert not result.records
        assert {r.attempts for r in result.rejected} == {3}
        assert all("necrosis" in r.reason for r in result.rejected)
        return
    assert not result.rejected
    assert verify(result, case) == ()
    given = [r for record in result.records for r in record.rounds if r.given]
    assert given
    assert all("with necrosis" in each.text for each in given)
    for record, trace in zip(result.records, result.traces, strict=True):
        if any(each.given for each in record.rounds):
            assert not record.rounds[-1].given
            assert "with necrosis" not in record.rounds[-1].text + record.reasoning
        faults = [r for r in trace.reviews if r.issue]
        assert len(faults) >= wrong or record.subtask == "cot_report"


def test_strategies_are_drawn_and_wider_views_show_the_neighbours() -> None:
    seen: dict[str, list[View]] = {"widen_region": [], "suspected_cause": []}

    def never(view: View) -> Chain:
        if view.strategy:
            seen[view.strategy].append(view)
        return ()

    for seed in range(12):
        case, facts = known_case(seed)
        settings = knowing(facts)
        process(case, replace(settings, agents=replace(settings.agents, reasoner=never)))
    assert all(len(views) > 15 for views in seen.values())
    wide = [v for v in seen["widen_region"] if v.organ == "stomach"]
    assert all({f.organ for f in v.around} & {"liver", "pancreas", "colon"} for v in wide)
    assert all(view.issue for views in seen.values() for view in views)


def test_agents_keep_their_names_in_traces() -> None:
    _, result = made(1)
    names = {trace.agents for trace in result.traces}
    assert names == {knowing(()).agents.names}


def test_a_case_without_facts_gives_no_record() -> None:
    def blind(case: Case) -> tuple[Fact, ...]:
        return ()

    agents = replace(knowing(()).agents, extractor=blind)
    assert isinstance(agents, Agents)
    case = Case("e", "p", ("s",), (Document("radiology", ""),))
    result = process(case, Settings(agents=agents))
    assert (result.records, result.rejected) == ((), ())
    assert json.dumps(result.discordant) == "[]"
