"""What a run will take, before anything is paid.

A sample of the cases is worked on by rules, and what language models would be asked is counted on
the way: the very requests, as long as the models say what the rules do.
"""

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tumorchain_jax.engine.agents.pipeline import RULES, Settings, process
from tumorchain_jax.engine.agents.protocol import Agents
from tumorchain_jax.engine.cases import ListedCase
from tumorchain_jax.engine.language.agents import MAKERS, check_families, chosen_endpoints
from tumorchain_jax.engine.language.model import A, Doubts, Model
from tumorchain_jax.engine.language.prompts import read_prompt
from tumorchain_jax.engine.run.agents import Choice
from tumorchain_jax.llm.answer import closed_schema
from tumorchain_jax.llm.blocking import BlockingClients
from tumorchain_jax.llm.endpoint import Endpoint

MOST_SAMPLED = 200
CHARACTERS_OF_TOKEN = 4
TOKENS_A_SECOND = 50
"""Assumed of a reply; with the endpoint's concurrency it gives the hours."""
_REPLIES = {"calibrator": 40, "summarizer": 40}
"""Characters of a reply, of agents whose replies are all alike."""


@dataclass(frozen=True)
class _Counting(Model):
    """A model that counts what it is asked, and says nothing."""

    counts: Counter[str] = field(default_factory=Counter)

    def ask(self, answer: type[A], data: dict[str, Any], attempt: int = 0) -> A | None:
        schema = json.dumps(closed_schema(answer))
        characters = len(self.prompt.text) + len(json.dumps(data, ensure_ascii=False)) + len(schema)
        self.counts.update(calls=1, asked=characters)
        return None

    def set_aside(self, reason: str, count: int = 1) -> None:
        pass


def plan(cases: Sequence[ListedCase], choice: Choice) -> dict[str, Any]:
    """Count cases and reports, and what language models will be asked for them.

    Returns:
        Counts; of each agent that is a language model `calls`, `prompt_tokens`,
        `completion_tokens` and `price`; `price` and `hours` in all. A price is None where an
        endpoint has none.

    Raises:
        InputError: the choice of agents cannot be had.
    """
    endpoints = chosen_endpoints(choice.by_agent(), choice.endpoints)
    check_families(endpoints, choice.same_family)
    counts: dict[str, Counter[str]] = {agent: Counter() for agent in endpoints}
    settings = Settings("paper" if choice.mix == "paper" else "plain")
    settings = replace(settings, agents=_counted(endpoints, counts))
    sample = cases[:: max(1, -(-len(cases) // MOST_SAMPLED))]
    began, records = time.process_time(), 0
    for case in sample:
        records += len(process(case.read(), settings).records)
    seconds, times = time.process_time() - began, len(cases) / max(1, len(sample))
    agents = {agent: _cost(counts[agent], times, endpoint) for agent, endpoint in endpoints.items()}
    waiting = sum(
        each["completion_tokens"] / TOKENS_A_SECOND / endpoints[agent].concurrency
        for agent, each in agents.items()
    )
    prices = [each["price"] for each in agents.values()]
    return {
        "cases": len(cases),
        "patients": len({case.patient for case in cases}),
        "scans": sum(len(case.scans) for case in cases),
        "reports": dict(Counter(report.kind for case in cases for report in case.reports)),
        "records": round(records * times),
        "sampled": len(sample),
        "agents": agents,
        "price": None if None in prices else sum(prices),
        "hours": (seconds * times + waiting) / 3600,
    }


def _counted(endpoints: Mapping[str, Endpoint], counts: Mapping[str, Counter[str]]) -> Agents:
    """The agents by rules; those that are to be language models are asked too, and counted."""
    clients = BlockingClients(Path())  # never opened: nothing is sent
    made: dict[str, Any] = {agent: getattr(RULES, agent) for agent, _ in RULES.names}
    for agent, endpoint in endpoints.items():
        prompt = read_prompt(agent, None)
        model = _Counting(clients, endpoint, prompt, Doubts(), counts=counts[agent])
        made[agent] = _beside(agent, MAKERS[agent](model), made[agent], counts[agent])
    return Agents(**made, names=RULES.names)


def _beside(agent: str, asked: Any, rule: Any, counts: Counter[str]) -> Any:
    def act(*seen: Any) -> Any:
        before = counts["calls"]
        asked(*seen)
        result = rule(*seen)
        if counts["calls"] > before:
            said = _REPLIES.get(agent) or sum(_length(each) for each in result)
            counts["said"] += said
        return result

    return act


def _length(part: Any) -> int:
    """Characters of a fact or a step in a reply."""
    return len(part.text) + 60 if hasattr(part, "text") else len(part.source.quote) + 140


def _cost(counts: Counter[str], times: float, endpoint: Endpoint) -> dict[str, Any]:
    asked, said = (round(counts[name] * times / CHARACTERS_OF_TOKEN) for name in ("asked", "said"))
    return {
        "model": endpoint.model,
        "calls": round(counts["calls"] * times),
        "prompt_tokens": asked,
        "completion_tokens": said,
        "price": None if endpoint.price is None else endpoint.price.of(asked, said),
    }


def text(facts: Mapping[str, Any]) -> str:
    """The plan as lines."""
    reports = ", ".join(f"{count} of {kind}" for kind, count in facts["reports"].items())
    lines = [
        f"cases: {facts['cases']} of {facts['patients']} patients, {facts['scans']} scans",
        f"reports: {reports}",
        f"records: about {facts['records']}, from a sample of {facts['sampled']} cases",
    ]
    for agent, each in facts["agents"].items():
        price = "no price known" if each["price"] is None else f"price {each['price']:.2f}"
        tokens = f"{each['prompt_tokens']} + {each['completion_tokens']} tokens"
        lines.append(f"{agent}, {each['model']}: {each['calls']} calls, {tokens}, {price}")
    if not facts["agents"]:
        lines.append("calls: 0, all agents are by rules")
    price = "not known" if facts["price"] is None else f"{facts['price']:.2f}"
    lines.append(f"price: {price}; hours on one core: {facts['hours']:.2f}")
    return "\n".join(lines)
