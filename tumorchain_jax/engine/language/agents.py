"""Agents by rules and by language models, as the command line chooses them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.engine.agents.pipeline import RULES
from tumorchain_jax.engine.agents.protocol import Agents
from tumorchain_jax.engine.language.calibrator import LanguageCalibrator
from tumorchain_jax.engine.language.extractor import LanguageExtractor
from tumorchain_jax.engine.language.model import SAMPLING, Doubts, Model
from tumorchain_jax.engine.language.prompts import AGENTS, read_prompt
from tumorchain_jax.engine.language.reasoner import LanguageReasoner
from tumorchain_jax.engine.language.summarizer import LanguageSummarizer
from tumorchain_jax.llm.blocking import BlockingClients
from tumorchain_jax.llm.endpoint import Endpoint, read_endpoints
from tumorchain_jax.llm.request import Sampling

MAKERS = {
    "extractor": LanguageExtractor,
    "reasoner": LanguageReasoner,
    "calibrator": LanguageCalibrator,
    "summarizer": LanguageSummarizer,
}
BACKEND_HINT = "--agent reasoner=llm:NAME, with [endpoint.NAME] in the file of --endpoints"


@dataclass(frozen=True)
class Backends:
    """Agents that are ready.

    Attributes:
        agents: of the pipeline.
        clients: of the endpoints; None if all agents are by rules.
        doubts: what was set aside of models' replies.
    """

    agents: Agents
    clients: BlockingClients | None
    doubts: Doubts


def chosen_endpoints(chosen: Mapping[str, str], file: Path | None) -> dict[str, Endpoint]:
    """Endpoints of the agents that have one.

    Args:
        chosen: agent -> `rules` or `llm:NAME`; agents left out are by rules.
        file: of endpoints, see `llm/README.md`.

    Raises:
        InputError: an agent or backend is unknown, or the file lacks an endpoint.
    """
    known: dict[str, Endpoint] | None = None
    found: dict[str, Endpoint] = {}
    for agent, backend in chosen.items():
        if agent not in AGENTS:
            expected = f"one of {', '.join(AGENTS)}"
            raise InputError("command line", "--agent", agent, expected, BACKEND_HINT)
        if backend == "rules":
            continue
        kind, _, name = backend.partition(":")
        if kind != "llm" or not name:
            raise InputError("command line", "--agent", backend, "rules or llm:NAME", BACKEND_HINT)
        if file is None:
            expected = "a file with that endpoint"
            raise InputError("command line", "--endpoints", "none", expected, BACKEND_HINT)
        known = read_endpoints(file) if known is None else known
        if name not in known:
            raise InputError(file, "endpoint", name, f"one of {', '.join(known)}", BACKEND_HINT)
        found[agent] = known[name]
    return found


def check_families(endpoints: Mapping[str, Endpoint], same_family: bool) -> None:
    """Refuse a reviewer of the writer's own family of models: it agrees with itself.

    Args:
        same_family: permit it.

    Raises:
        InputError: Reasoner and Calibrator share a family.
    """
    if same_family or not {"reasoner", "calibrator"} <= endpoints.keys():
        return
    shared = endpoints["reasoner"].families & endpoints["calibrator"].families
    if shared:
        expected = "models of two families for Reasoner and Calibrator"
        hint = "choose another model, or --same-family to say otherwise"
        raise InputError("command line", "--agent", f"{min(shared)} twice", expected, hint)


@contextmanager
def open_backends(
    chosen: Mapping[str, str],
    file: Path | None,
    journal: Path,
    *,
    same_family: bool = False,
    prompts: Path | None = None,
    sampling: Sampling = SAMPLING,
    **options: Any,
) -> Iterator[Backends]:
    """Make the agents; connections and the journal are closed at the end.

    Args:
        chosen, file: as for `chosen_endpoints`.
        journal: file of the replies.
        same_family: permit models of one family for Reasoner and Calibrator.
        prompts: folder of prompts to use instead of the package's, `AGENT.md` each.
        sampling: of the replies.
        options: of `llm.client.Client`: allow_remote, budget, ...

    Raises:
        InputError: the choice cannot be had, or an endpoint may not be used.
    """
    endpoints = chosen_endpoints(chosen, file)
    check_families(endpoints, same_family)
    doubts = Doubts()
    if not endpoints:
        yield Backends(RULES, None, doubts)
        return
    with BlockingClients(journal, **options) as clients:
        made: dict[str, Any] = {agent: getattr(RULES, agent) for agent in AGENTS}
        names = dict(RULES.names)
        for agent, endpoint in endpoints.items():
            clients.client(endpoint)  # refused before any work is done
            model = Model(clients, endpoint, read_prompt(agent, prompts), doubts, sampling)
            made[agent] = MAKERS[agent](model)
            names[agent] = model.name
        yield Backends(Agents(**made, names=tuple(names.items())), clients, doubts)
