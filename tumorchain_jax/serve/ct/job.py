"""A question on its way, and what its client is told."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from tumorchain_jax.report.report import Report
from tumorchain_jax.serve.ct.cases import Ready
from tumorchain_jax.serve.ct.store import Stored
from tumorchain_jax.serve.refusal import Refusal


@dataclass(frozen=True)
class Token:
    """Some text of a round that is being written.

    Attributes:
        number: of the round, from 1.
    """

    number: int
    text: str


@dataclass(frozen=True)
class Wrote:
    """A round was written; the report has the rounds so far."""

    report: Report


@dataclass(frozen=True)
class Again:
    """The chain named an organ that was not looked for: it is segmented, and the chain restarts."""


@dataclass(frozen=True)
class Answered:
    """The chain has ended."""

    report: Report


Event: TypeAlias = Token | Wrote | Again | Answered | Refusal


@dataclass(eq=False)
class Job:
    """A question on its way.

    Attributes:
        tell: takes what happens, in a thread of the desk.
        organs: merged labels to be segmented before it is asked.
        stream: whether it is told each token.
        rounds_written, told: rounds so far, and characters of the next one that were told.
        cancelled: set when nobody waits any more.
    """

    file: Stored
    mask: Stored | None
    question: str
    seed: int
    rounds: int | None
    deadline: float
    tell: Callable[[Event], None]
    organs: set[int]
    stream: bool = False
    ready: Ready | None = None
    rounds_written: int = 0
    told: int = 0
    cancelled: threading.Event = field(default_factory=threading.Event)

    def tell_text(self, text: str) -> None:
        """Tell what is new in the text of the round that is being written."""
        if self.stream and len(text) > self.told:
            self.tell(Token(self.rounds_written + 1, text[self.told :]))
            self.told = len(text)
