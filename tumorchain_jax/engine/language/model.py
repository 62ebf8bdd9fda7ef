"""A language model as one of the agents: its endpoint, its prompt, and what it was wrong about."""

import json
import threading
from collections import Counter
from dataclasses import dataclass
from typing import Any, TypeVar

from tumorchain_jax.engine.language.prompts import Prompt
from tumorchain_jax.llm.answer import Answer
from tumorchain_jax.llm.blocking import BlockingClients
from tumorchain_jax.llm.endpoint import Endpoint
from tumorchain_jax.llm.request import Message, Request, Sampling

A = TypeVar("A", bound=Answer)
SAMPLING = Sampling(max_tokens=2048)


class Doubts:
    """Counts of what was set aside of models' replies, by agent and reason."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._guard = threading.Lock()

    def note(self, agent: str, reason: str, count: int = 1) -> None:
        """Count something that was set aside."""
        if count:
            with self._guard:
                self._counts[agent, reason] += count

    def lines(self) -> list[str]:
        """One line for each agent and reason, the most frequent first."""
        with self._guard:
            counts = self._counts.most_common()
        return [f"{agent}: {count} {reason}" for (agent, reason), count in counts]


@dataclass(frozen=True)
class Model:
    """A model behind an endpoint, told to be an agent.

    Attributes:
        clients: that the replies come through.
        doubts: shared by the agents of a run.
        sampling: of its replies.
    """

    clients: BlockingClients
    endpoint: Endpoint
    prompt: Prompt
    doubts: Doubts
    sampling: Sampling = SAMPLING

    @property
    def name(self) -> str:
        """As traces tell it: the model and the hash of its prompt."""
        return f"{self.endpoint.model} prompt:{self.prompt.version}"

    def ask(self, answer: type[A], data: dict[str, Any], attempt: int = 0) -> A | None:
        """Ask for an answer about data; None if the model gives none.

        The data travels as one JSON object, so that no text in it can pass for an instruction.
        """
        messages = (
            Message("system", self.prompt.text),
            Message("user", json.dumps(data, ensure_ascii=False)),
        )
        version = f"{self.prompt.agent}:{self.prompt.version}"
        request = Request(messages, answer, self.sampling, version, attempt)
        reply = self.clients.ask(self.endpoint, request)
        if reply.failure is not None:
            self.doubts.note(self.prompt.agent, f"replies without an answer ({reply.failure.kind})")
            return None
        assert isinstance(reply.value, answer)
        return reply.value

    def set_aside(self, reason: str, count: int = 1) -> None:
        """Count something of a reply that was not taken over."""
        self.doubts.note(self.prompt.agent, reason, count)
