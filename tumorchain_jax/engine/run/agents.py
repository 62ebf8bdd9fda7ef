"""The agents of a run, made from what the command line asks for."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tumorchain_jax import __version__
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.text import printable
from tumorchain_jax.engine.agents.pipeline import RULES, Settings, process
from tumorchain_jax.engine.case import Case
from tumorchain_jax.engine.graph.load import shipped_graph
from tumorchain_jax.engine.run.run import check_output
from tumorchain_jax.engine.run.work import Prepare, Process, as_it_is
from tumorchain_jax.engine.text.deidentify import deidentify

AGENTS = tuple(agent for agent, _ in RULES.names)
BY_RULES = "rules"
REPLIES = "replies.sqlite"


@dataclass(frozen=True)
class Choice:
    """What the command line asks for.

    Attributes:
        backends: `AGENT=rules` or `AGENT=llm:NAME`; agents left out are by rules.
        endpoints: file of language models' endpoints; None if no agent is one.
        budget: stop before more is spent; None for no limit.
        allow_remote: permit endpoints on other machines.
        allow_raw: send reports with names, dates and numbers.
        same_family: permit models of one family for Reasoner and Calibrator.
        mix: of tasks, `natural` or `paper`.
    """

    backends: tuple[str, ...] = ()
    endpoints: Path | None = None
    budget: float | None = None
    allow_remote: bool = False
    allow_raw: bool = False
    same_family: bool = False
    mix: str = "natural"

    def by_agent(self) -> dict[str, str]:
        """Agent -> backend, of all agents.

        Raises:
            InputError: a word is no `AGENT=BACKEND`, or an agent is there twice.
        """
        chosen: dict[str, str] = {}
        for word in self.backends:
            agent, _, backend = word.partition("=")
            if agent not in AGENTS or not backend or agent in chosen:
                expected = f"AGENT=BACKEND, each of {', '.join(AGENTS)} once"
                raise InputError("command line", "--agent", repr(word), expected, "change it")
            chosen[agent] = backend
        return {agent: chosen.get(agent, BY_RULES) for agent in AGENTS}

    @property
    def all_by_rules(self) -> bool:
        """Whether no agent is a language model."""
        return set(self.by_agent().values()) == {BY_RULES}


@dataclass(frozen=True)
class Made:
    """Agents that are ready.

    Attributes:
        process: what they do with a case.
        prepare: what is done with a case before they see it.
        settings: all that their work depends on, as JSON.
        share_memory: whether they must work as threads of this process.
        note: what the progress tells of them.
        told: what to tell at the end, one line each.
    """

    process: Process
    prepare: Prepare
    settings: Mapping[str, Any]
    share_memory: bool = False
    note: Callable[[], str] = str
    told: Callable[[], Sequence[str]] = tuple


@contextmanager
def made(choice: Choice, folder: Path) -> Iterator[Made]:
    """Make the agents; endpoints are closed at the end.

    Args:
        folder: of the run; replies of language models are kept in it.

    Raises:
        InputError: the choice cannot be had.
    """
    how = Settings(mix="paper" if choice.mix == "paper" else "plain")
    if choice.all_by_rules:
        names = dict(RULES.names)
        yield Made(partial(process, settings=how), as_it_is, _settings(choice, names))
        return
    # The HTTP client is imported where it is used.
    from tumorchain_jax.engine.language.agents import chosen_endpoints, open_backends

    backends = choice.by_agent()
    for endpoint in chosen_endpoints(backends, choice.endpoints).values():
        endpoint.check_address(choice.allow_remote)  # before a folder is made
    check_output(folder)
    replies = folder / ".engine" / REPLIES
    replies.parent.mkdir(parents=True, exist_ok=True)
    with open_backends(
        backends,
        choice.endpoints,
        replies,
        same_family=choice.same_family,
        allow_remote=choice.allow_remote,
        budget=choice.budget,
        tell=_tell,
    ) as opened:
        clients = opened.clients
        assert clients is not None

        def note() -> str:
            lines = [f"{name}: {each.line()}" for name, each in clients.progress.items()]
            return "; ".join(lines)

        yield Made(
            partial(process, settings=replace(how, agents=opened.agents)),
            as_it_is if choice.allow_raw else without_identifiers,
            _settings(choice, dict(opened.agents.names)),
            share_memory=True,
            note=note,
            told=lambda: [note(), *opened.doubts.lines()],
        )


def _settings(choice: Choice, names: Mapping[str, str]) -> dict[str, Any]:
    return {
        "mix": choice.mix,
        "agents": dict(names),
        "identifiers": "kept" if choice.allow_raw or choice.all_by_rules else "replaced",
        "engine": __version__,
        "graph": shipped_graph().version,
    }


def without_identifiers(case: Case) -> Case:
    """Replace names, dates, numbers and addresses in a case's reports."""
    documents = tuple(
        replace(document, text=deidentify(document.text).text) for document in case.documents
    )
    return replace(case, documents=documents)


def threads(count: int) -> Executor:
    """Threads of this process, for agents that wait for endpoints most of the time."""
    return ThreadPoolExecutor(count)


def _tell(line: str) -> None:
    print(printable(f"tumorchain: {line}", allowed=""), file=sys.stderr, flush=True)
