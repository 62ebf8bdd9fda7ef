"""The agents of a run, made from what the command line asks for."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tumorchain_jax import __version__
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.engine.agents.pipeline import Settings, process
from tumorchain_jax.engine.graph.load import shipped_graph
from tumorchain_jax.engine.run.work import Process

AGENTS = ("extractor", "reasoner", "calibrator", "summarizer")
RULES = "rules"


@dataclass(frozen=True)
class Choice:
    """What the command line asks for.

    Attributes:
        backends: `AGENT=BACKEND`, for agents that are not by rules.
        endpoints: file of language models' endpoints; None if no agent is one.
        budget: stop before more is spent; None for no limit.
        allow_remote: permit endpoints on other machines.
        allow_raw: send reports with names, dates and numbers.
        mix: of tasks, `natural` or `paper`.
    """

    backends: tuple[str, ...] = ()
    endpoints: Path | None = None
    budget: float | None = None
    allow_remote: bool = False
    allow_raw: bool = False
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
        return {agent: chosen.get(agent, RULES) for agent in AGENTS}


@dataclass(frozen=True)
class Made:
    """Agents that are ready.

    Attributes:
        process: what they do with a case.
        settings: all that their work depends on, as JSON.
        share_memory: whether they must work as threads of this process.
        note: what the progress tells of them.
    """

    process: Process
    settings: Mapping[str, Any]
    share_memory: bool = False
    note: Callable[[], str] = str


@contextmanager
def made(choice: Choice, folder: Path) -> Iterator[Made]:
    """Make the agents; endpoints are closed at the end.

    Args:
        folder: of the run; replies of language models are kept in it.

    Raises:
        InputError: the choice cannot be had.
    """
    backends = choice.by_agent()
    settings = {
        "mix": choice.mix,
        "agents": backends,
        "engine": __version__,
        "graph": shipped_graph().version,
    }
    how = Settings(mix="paper" if choice.mix == "paper" else "plain")
    yield Made(partial(process, settings=how), settings)


def threads(count: int) -> Executor:
    """Threads of this process, for agents that wait for endpoints most of the time."""
    return ThreadPoolExecutor(count)
