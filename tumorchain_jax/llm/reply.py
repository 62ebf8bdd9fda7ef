"""What comes back: a reply with its cost, or the reason why there is none."""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

FailureKind = Literal["invalid", "length", "filtered", "refused", "broken", "deadline"]
"""invalid: not of the form asked for. length: cut off at `max_tokens`. filtered: the server (or
the model) declined. refused: HTTP 4xx. broken: HTTP 200 without a reply in it. deadline: no reply
in time. The first three were paid for and are kept; the others are asked again in the next run."""


@dataclass(frozen=True)
class Failure:
    """Why a request was set aside.

    Attributes:
        kind: for counts.
        reason: in one line.
    """

    kind: FailureKind
    reason: str


@dataclass(frozen=True)
class Usage:
    """Tokens and price.

    Attributes:
        prompt_tokens, completion_tokens: as the server counted; 0 where it did not.
        cost: by the endpoint's price; 0 without one.
        calls: replies that were paid for, now or in an earlier run.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    calls: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cost + other.cost,
            self.calls + other.calls,
        )


@dataclass(frozen=True)
class Reply:
    """The end of a request: an answer, or a failure.

    Attributes:
        text: what the model wrote last; empty if nothing came.
        value: the text read into `Request.answer`; None without one, or on failure.
        failure: why the request was set aside; None if all is well.
        keys: of the kept replies that led here, in their order; names for traces.
        usage: of all of them.
        model: as the server named it.
        from_journal: whether nothing had to be sent.
        logprobs: `choices[0].logprobs` of the last reply, where they were wanted.
    """

    text: str
    value: BaseModel | None
    failure: Failure | None
    keys: tuple[str, ...]
    usage: Usage
    model: str
    from_journal: bool
    logprobs: dict[str, Any] | None = None

    @property
    def ok(self) -> bool:
        """Whether there is an answer."""
        return self.failure is None
