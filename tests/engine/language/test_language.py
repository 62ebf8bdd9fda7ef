"""Agents by language models: what they may say, what they are shown, and what becomes of lies."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from llm_questions import endpoint

from tumorchain_jax.bench.llm_stub import Behaviour, StubServer, instance
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.engine.agents.pipeline import Settings, process
from tumorchain_jax.engine.agents.traces import verify
from tumorchain_jax.engine.case import Case, CaseResult, Document
from tumorchain_jax.engine.language.agents import (
    Backends,
    check_families,
    chosen_endpoints,
    open_backends,
)
from tumorchain_jax.engine.language.extractor import statements_form
from tumorchain_jax.engine.language.prompts import AGENTS, read_prompt, shipped_prompt
from tumorchain_jax.engine.text.extract import extract
from tumorchain_jax.llm.answer import closed_schema

CODE_WORD = "xylophone"
CT = (
    "FINDINGS: There is a hypodense, irregular mass in the pancreatic head measuring 35 mm. "
    "The liver is normal, with no focal lesion. No enlarged lymph nodes. No distant metastases.\n"
    "IMPRESSION: Pancreatic tumour."
)
PATHOLOGY = f"Pancreas: {CODE_WORD} adenocarcinoma. pT2 pN0 cM0."
CASE = Case(
    "c1", "p1", ("s1",), (Document("radiology", CT), Document("pathology", PATHOLOGY))
)  # fmt: skip
PROMPT_OF = {shipped_prompt(agent).text: agent for agent in AGENTS}


def agent_of(body: dict[str, Any]) -> str:
    return PROMPT_OF.get(body["messages"][0]["content"], "probe")


def honest(body: dict[str, Any]) -> str:
    """What a good model would reply."""
    agent = agent_of(body)
    if agent == "probe":
        return json.dumps(instance(body["response_format"]["json_schema"]["schema"]))
    data = json.loads(body["messages"][1]["content"].split("\n\n")[0])
    if agent == "extractor":
        document = next(d for d in CASE.documents if d.text == data["text"])
        facts = [f for f in extract(CASE) if f.source.document == document.sha256]
        return json.dumps({"statements": [_statement(fact) for fact in facts]})
    if agent == "reasoner":
        return json.dumps({"steps": _steps(data["statements"])})
    if agent == "calibrator":
        return json.dumps({"step": None, "verdict": "right"})
    return json.dumps({"T": "T2", "N": "N0", "M": "M0"})


def _statement(fact: Any) -> dict[str, Any]:
    names = ("organ", "attribute", "value", "unit", "polarity", "certainty", "time")
    return {"quote": fact.source.quote} | {name: getattr(fact, name) for name in names}


def _steps(statements: list[dict[str, str]]) -> list[dict[str, Any]]:
    """A sentence for each statement; where a lesion lies is said with what it is."""
    place = {s["subject"]: s for s in statements if s["relation"] == "location"}
    steps = []
    for said in statements:
        ids, text = [said["id"]], f"the {said['subject']} shows {said['object']}"
        if said["relation"] == "location":
            continue
        if said["level"] == "impression":
            text = f"this suggests {said['object']}"
        elif said["level"] == "reasoning":
            text = f"{said['subject']} {said['relation']} {said['object']}"
        elif said["relation"] == "finding" and said["subject"] in place:
            where = place[said["subject"]]
            ids.append(where["id"])
            text += f" in the {where['object']}"
        steps.append({"statements": ids, "text": text})
    return steps


def endpoints_file(folder: Path, url: str) -> Path:
    path = folder / "endpoints.toml"
    tables = [
        f'[endpoint.{name}]\nurl = "{url}"\nmodel = "{model}"\n'
        for name, model in (("a", "qwen-1"), ("b", "claude-1"))
    ]
    path.write_text("\n".join(tables))
    return path


ALL = {"extractor": "llm:a", "reasoner": "llm:a", "calibrator": "llm:b", "summarizer": "llm:a"}


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., tuple[CaseResult, Backends, StubServer]]]:
    """Runs the case with models that reply as told."""
    servers: list[StubServer] = []

    def work(
        say: Callable[[dict], str], chosen: dict[str, str] = ALL
    ) -> tuple[CaseResult, Backends, StubServer]:
        server = StubServer(Behaviour(say=say))
        server.__enter__()
        servers.append(server)
        file = endpoints_file(tmp_path, server.url)
        with open_backends(chosen, file, tmp_path / f"j{len(servers)}") as backends:
            return process(CASE, Settings(agents=backends.agents)), backends, server

    yield work
    for server in servers:
        server.__exit__(None, None, None)


def test_honest_models_make_the_records_of_the_rules(run: Callable) -> None:
    result, backends, server = run(honest)
    by_rules = process(CASE)
    assert verify(result, CASE) == ()
    assert len(result.records) == len(by_rules.records) > 10
    assert [r.answer for r in result.records] == [r.answer for r in by_rules.records]
    assert result.facts == by_rules.facts
    names = dict(result.traces[0].agents)
    assert names["reasoner"] == f"qwen-1 prompt:{shipped_prompt('reasoner').version}"
    assert names["calibrator"].startswith("claude-1 prompt:")
    assert backends.doubts.lines() == []
    assert {agent_of(body) for body in server.bodies.values()} == {*AGENTS, "probe"}


def test_pathology_reaches_neither_reasoner_nor_calibrator(run: Callable) -> None:
    _, _, server = run(honest)
    seen = {
        agent: json.dumps([b for b in server.bodies.values() if agent_of(b) == agent])
        for agent in AGENTS
    }
    assert CODE_WORD in seen["extractor"]
    for agent in ("reasoner", "calibrator"):
        assert "pancreas" in seen[agent]
        assert CODE_WORD not in seen[agent]
        assert PATHOLOGY[-15:] not in seen[agent]
        assert "pT2" not in seen[agent]


def lying(change: Callable[[str, Any], Any]) -> Callable[[dict[str, Any]], str]:
    """An honest model whose replies are changed."""

    def say(body: dict[str, Any]) -> str:
        return json.dumps(change(agent_of(body), json.loads(honest(body))))

    return say


def _other_organ(agent: str, reply: Any) -> Any:
    for each in reply.get("statements", []) if agent == "extractor" else []:
        each["organ"] = "liver" if each["organ"] == "pancreas" else each["organ"]
    return reply


def _denied(agent: str, reply: Any) -> Any:
    for each in reply.get("statements", []) if agent == "extractor" else []:
        each["polarity"] = "absent"
    return reply


def _invented_quote(agent: str, reply: Any) -> Any:
    for each in reply.get("statements", []) if agent == "extractor" else []:
        each["quote"] = "a large mass in the left lobe of the liver"
    return reply


def _half_read(agent: str, reply: Any) -> Any:
    if agent == "extractor":
        kept = [s for s in reply["statements"] if s["value"] not in ("mass", "tumour")]
        reply["statements"] = kept
    return reply


def _embellished(agent: str, reply: Any) -> Any:
    for each in reply.get("steps", []) if agent == "reasoner" else []:
        each["text"] += " and invades the left kidney"
    return reply


def _other_size(agent: str, reply: Any) -> Any:
    for each in reply.get("steps", []) if agent == "reasoner" else []:
        each["text"] = each["text"].replace("35 mm", "53 mm")
    return reply


def _wrong_citations(agent: str, reply: Any) -> Any:
    for each in reply.get("steps", []) if agent == "reasoner" else []:
        each["statements"] = ["S1"]
    return reply


def _left_out(agent: str, reply: Any) -> Any:
    if agent == "reasoner":
        reply["steps"] = reply["steps"][-1:]
    return reply


def claims(result: CaseResult) -> set[tuple[str, str, str]]:
    """All triples that the accepted records claim."""
    steps = [step for trace in result.traces for step in trace.steps]
    return {(c.subject, c.relation, c.object) for step in steps for c in step.claims}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_other_organ, "extractor"), (_denied, "extractor"), (_invented_quote, "extractor"),
        (_half_read, "extractor"), (_embellished, "invades"), (_other_size, "has size 35 mm"),
        (_wrong_citations, "step"), (_left_out, "a step is missing"),
    ],
)  # fmt: skip
def test_lies_are_never_in_accepted_records(
    run: Callable, change: Callable[[str, Any], Any], told: str
) -> None:
    result, backends, _ = run(lying(change))
    assert verify(result, CASE) == ()
    truths = {fact.to_json() for fact in extract(CASE)}
    assert all(fact.to_json() in truths for fact in result.facts)
    assert claims(result) <= claims(process(CASE))
    of_pancreas = [r for r in result.records if "pancrea" in r.question and r.answer != "no"]
    assert of_pancreas == []
    reasons = " ".join((*backends.doubts.lines(), *(r.reason for r in result.rejected)))
    assert told in reasons


def test_reviewer_that_finds_faults_or_says_nothing_lets_nothing_pass(run: Callable) -> None:
    def strict(agent: str, reply: Any) -> Any:
        return {"step": 1, "verdict": "unsupported"} if agent == "calibrator" else reply

    result, backends, _ = run(lying(strict))
    assert result.records == ()
    assert "step 1: the reviewer calls it unsupported" in result.rejected[0].reason
    assert any("drafts called unsupported" in line for line in backends.doubts.lines())

    def silent(agent: str, reply: Any) -> Any:
        return "nothing" if agent == "calibrator" else reply

    result, backends, _ = run(lying(silent))
    assert result.records == ()
    assert "no verdict" in result.rejected[0].reason


def test_stages_that_the_model_does_not_confirm_are_left_out(run: Callable) -> None:
    def other(agent: str, reply: Any) -> Any:
        return {"T": "T4", "N": "N0", "M": "unknown"} if agent == "summarizer" else reply

    result, backends, _ = run(lying(other))
    subtasks = {r.subtask for r in result.records if "pancreas" in r.question}
    assert "node" in subtasks
    assert not {"tumor", "metastasis"} & {
        r.subtask for r in result.records if r.answer.startswith(("T", "M"))
    }
    assert "summarizer: 2 stages that were not confirmed" in backends.doubts.lines()


def test_instructions_in_a_report_travel_as_data(run: Callable) -> None:
    _, _, server = run(honest)
    for body in server.bodies.values():
        if agent_of(body) in AGENTS:
            system, user = body["messages"]
            assert CT not in system["content"]
            assert isinstance(json.loads(user["content"]), dict)


def test_quote_comes_before_what_it_says() -> None:
    schema = closed_schema(statements_form())
    item = schema["properties"]["statements"]["items"]
    assert next(iter(item["properties"])) == "quote"
    assert "pancreas" in item["properties"]["organ"]["enum"]


def test_same_family_is_refused_for_writer_and_reviewer() -> None:
    one, two = (endpoint("http://localhost/v1") for _ in range(2))
    with pytest.raises(InputError, match="two families"):
        check_families({"reasoner": one, "calibrator": two}, same_family=False)
    check_families({"reasoner": one, "calibrator": two}, same_family=True)
    check_families({"reasoner": one}, same_family=False)


@pytest.mark.parametrize(
    "chosen",
    [{"writer": "rules"}, {"reasoner": "gpt"}, {"reasoner": "llm:"}, {"reasoner": "llm:z"}],
)
def test_wrong_choices_are_refused(tmp_path: Path, chosen: dict[str, str]) -> None:
    with pytest.raises(InputError):
        chosen_endpoints(chosen, endpoints_file(tmp_path, "http://localhost/v1"))


def test_endpoints_file_is_needed() -> None:
    with pytest.raises(InputError, match="--endpoints"):
        chosen_endpoints({"reasoner": "llm:a"}, None)
    assert chosen_endpoints({"reasoner": "rules"}, None) == {}


def test_prompts_of_a_folder_go_before_the_packages(tmp_path: Path) -> None:
    (tmp_path / "reasoner.md").write_text("Write.")
    own = read_prompt("reasoner", tmp_path)
    assert own.text == "Write."
    assert own.version != shipped_prompt("reasoner").version
    assert read_prompt("calibrator", tmp_path) == shipped_prompt("calibrator")
    (tmp_path / "extractor.md").write_text(" \n")
    with pytest.raises(InputError):
        read_prompt("extractor", tmp_path)
