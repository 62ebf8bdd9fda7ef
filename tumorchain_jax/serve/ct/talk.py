"""One request about a CT and its events: the reply, whole or as a stream."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Protocol, runtime_checkable

from starlette.requests import Request

from tumorchain_jax.serve.ct.job import Again, Answered, Event, Job, Token, Wrote
from tumorchain_jax.serve.ct.question import CTRequest
from tumorchain_jax.serve.ct.reply import headline, round_of, usage
from tumorchain_jax.serve.ct.store import Stored
from tumorchain_jax.serve.http import sent
from tumorchain_jax.serve.refusal import Refusal

LOOK_S = 0.5
"""Seconds between two looks whether a client is still there."""


@runtime_checkable
class Replies(Protocol):
    """What a talk needs of the application."""

    async def submit(self, asked: CTRequest, file: Stored, events: asyncio.Queue[Event]) -> Job:
        """Queue a question; its events come into the queue."""

    def head(self, kind: str) -> dict[str, Any]:
        """Fields that all replies begin with."""

    def finished(
        self, event: Answered, asked: CTRequest, file: Stored, started: float
    ) -> dict[str, Any]:
        """The metadata of an answer; it is counted."""

    def release(self, asked: CTRequest, file: Stored) -> None:
        """Delete a scan that came within its request."""


class Talk:
    """One request and its events.

    Args:
        started: on the monotonic clock, when the request came.
    """

    def __init__(
        self, api: Replies, request: Request, asked: CTRequest, file: Stored, started: float
    ):
        self._api, self._request, self._asked = api, request, asked
        self._file, self._started = file, started
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._job: Job | None = None

    async def begin(self) -> None:
        """Queue the question."""
        self._job = await self._api.submit(self._asked, self._file, self._events)

    async def next(self) -> Token | Wrote | Again | Answered:
        """The next event; a refusal is raised, and a client that has gone ends its job."""
        while True:
            try:
                async with asyncio.timeout(LOOK_S):
                    event = await self._events.get()
            except TimeoutError:
                if await self._request.is_disconnected():
                    raise Refusal(499, "the client has gone") from None
                continue
            if isinstance(event, Refusal):
                raise event
            return event

    def end(self) -> None:
        """Nobody waits any more."""
        if self._job is not None:
            self._job.cancelled.set()
        self._api.release(self._asked, self._file)

    async def whole(self) -> dict[str, Any]:
        """The reply as one."""
        while not isinstance(event := await self.next(), Answered):
            pass
        message = {"role": "assistant", "content": headline(event.report), "refusal": None}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        metadata = self._api.finished(event, self._asked, self._file, self._started)
        self.end()
        head = self._api.head("chat.completion")
        return {**head, "choices": [choice], "usage": usage(event.report), "metadata": metadata}

    async def chunks(self, event: Token | Wrote | Again | Answered) -> AsyncIterator[str]:
        """Typed deltas, then the answer as `content`.

        `token`: some text of a round, in `reasoning_content`, where many clients look for it;
        `round`: a round that is written, with its organs; `again`: the chain restarts.
        """
        head = self._api.head("chat.completion.chunk")

        def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> str:
            choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
            return sent({**head, "choices": [choice], **more})

        try:
            yield chunk({"role": "assistant", "content": ""})
            while not isinstance(event, Answered):
                yield chunk(_delta(event))
                event = await self.next()
            yield chunk({"content": headline(event.report)})
            metadata = self._api.finished(event, self._asked, self._file, self._started)
            yield chunk({}, "stop", metadata=metadata)
            if self._asked.stream_usage:
                yield sent({**head, "choices": [], "usage": usage(event.report)})
            yield "data: [DONE]\n\n"
        except Refusal as refusal:
            yield sent(refusal.body())
        finally:
            self.end()


def _delta(event: Token | Wrote | Again) -> dict[str, Any]:
    if isinstance(event, Again):
        return {"type": "again"}
    if isinstance(event, Token):
        return {"type": "token", "number": event.number, "reasoning_content": event.text}
    rounds = event.report.to_dict()["rounds"]
    return {"type": "round", "round": {"number": len(rounds), **round_of(rounds[-1])}}
