"""The HTTP side: routes, keys, limits, and replies in OpenAI's form."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tumorchain_jax.serve.chat_request import ChatRequest, read_request
from tumorchain_jax.serve.decoding import Chosen
from tumorchain_jax.serve.http import ERRORS, check_key, guards, read_body, sent
from tumorchain_jax.serve.refusal import Refusal
from tumorchain_jax.serve.reply_ids import reply_ids
from tumorchain_jax.serve.worker import Done, Event, Job, Piece, Worker

LARGEST_BODY = 4 << 20
LOOK_S = 0.5
"""Seconds between two looks whether a client is still there."""


def make_app(worker: Worker, key: str, anywhere: bool = False) -> Starlette:
    """Make the application.

    Args:
        worker: that answers.
        key: that requests must bring; empty: none.
        anywhere: whether requests may name another host than this machine.
    """
    api = _Api(worker, key)
    return Starlette(
        routes=[
            Route("/health", api.health),
            Route("/v1/models", api.models),
            Route("/v1/chat/completions", api.chat, methods=["POST"]),
        ],
        middleware=guards(anywhere),
        exception_handlers=ERRORS,
    )


class _Api:
    def __init__(self, worker: Worker, key: str):
        self._worker, self._key = worker, key
        self._next_id = reply_ids()
        self._started = int(time.time())

    async def health(self, request: Request) -> Response:
        """Numbers of the queue; no key is asked for."""
        return JSONResponse(self._worker.health())

    async def models(self, request: Request) -> Response:
        """The one model."""
        check_key(request, self._key)
        model = {"id": self._worker.name, "object": "model", "created": self._started}
        model["owned_by"] = "tumorchain"
        return JSONResponse({"object": "list", "data": [model]})

    async def chat(self, request: Request) -> Response:
        """A reply, whole or in pieces."""
        check_key(request, self._key)
        asked = read_request(await read_body(request, LARGEST_BODY))
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[Event] = asyncio.Queue()

        def tell(event: Event) -> None:
            loop.call_soon_threadsafe(events.put_nowait, event)

        # Reading a long conversation takes a while; others are answered meanwhile.
        job = await asyncio.to_thread(self._worker.submit, asked, tell)
        if asked.stream:
            first = await self._next(request, job, events)
            if isinstance(first, Refusal):
                raise first
            chunks = self._chunks(request, asked, job, events, first)
            return StreamingResponse(chunks, media_type="text/event-stream")
        text, logprobs = "", []
        while True:
            event = await self._next(request, job, events)
            if isinstance(event, Refusal):
                raise event
            if isinstance(event, Done):
                break
            text += event.text
            logprobs += self._logprobs(event)
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": text, "refusal": None},
            "finish_reason": event.finish_reason,
            "logprobs": None if asked.logprobs is None else {"content": logprobs},
        }
        body = {**self._head("chat.completion"), "choices": [choice], "usage": _usage(event)}
        return JSONResponse(body)

    async def _next(self, request: Request, job: Job, events: asyncio.Queue[Event]) -> Event:
        """The next event; a client that has gone ends its job."""
        while True:
            try:
                async with asyncio.timeout(LOOK_S):
                    return await events.get()
            except TimeoutError:
                if await request.is_disconnected():
                    job.cancelled.set()
                    raise Refusal(499, "the client has gone") from None
            except asyncio.CancelledError:
                job.cancelled.set()
                raise

    async def _chunks(
        self,
        request: Request,
        asked: ChatRequest,
        job: Job,
        events: asyncio.Queue[Event],
        event: Event,
    ) -> AsyncIterator[str]:
        head = self._head("chat.completion.chunk")

        def chunk(delta: dict[str, Any], finish: str | None, logprobs: Any = None) -> str:
            choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": logprobs}
            return sent({**head, "choices": [choice]})

        try:
            yield chunk({"role": "assistant", "content": ""}, None)
            while not isinstance(event, Done):
                if isinstance(event, Refusal):
                    yield sent(event.body())
                    return
                content = self._logprobs(event)
                wanted = None if asked.logprobs is None else {"content": content}
                yield chunk({"content": event.text}, None, wanted)
                event = await self._next(request, job, events)
            yield chunk({}, event.finish_reason)
            if asked.stream_usage:
                yield sent({**head, "choices": [], "usage": _usage(event)})
            yield "data: [DONE]\n\n"
        finally:
            job.cancelled.set()

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self._next_id(),
            "object": kind,
            "created": int(time.time()),
            "model": self._worker.name,
            "system_fingerprint": None,
        }

    def _logprobs(self, piece: Piece) -> list[dict[str, Any]]:
        return [self._logprob(chosen, text) for chosen, text in piece.tokens]

    def _logprob(self, chosen: Chosen, text: str) -> dict[str, Any]:
        likeliest = [
            _named(self._worker.token_text(token), logprob) for token, logprob in chosen.likeliest
        ]
        return {**_named(text, chosen.logprob), "top_logprobs": likeliest}


def _named(text: str, logprob: float) -> dict[str, Any]:
    return {"token": text, "logprob": max(logprob, -9999.0), "bytes": [*text.encode()]}


def _usage(done: Done) -> dict[str, int]:
    return {
        "prompt_tokens": done.prompt_tokens,
        "completion_tokens": done.completion_tokens,
        "total_tokens": done.prompt_tokens + done.completion_tokens,
    }
