"""The client: asks models behind OpenAI-compatible endpoints, and pays for no reply twice.

    async with Client(endpoint, Path("replies.sqlite")) as client:
        reply = await client.ask(Request((Message("user", "..."),), Size))
        async for position, reply in client.stream(requests):
            ...

`ask_all` does the same for a list, without `async`; `llm/blocking.py` is for threads.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from pydantic import BaseModel

from tumorchain_jax.core.errors import InputError, Stopped
from tumorchain_jax.llm.answer import AnswerError, closed_schema, read_answer
from tumorchain_jax.llm.caller import Caller
from tumorchain_jax.llm.endpoint import Endpoint
from tumorchain_jax.llm.journal import Journal, Kept
from tumorchain_jax.llm.ledger import Budget, Ledger
from tumorchain_jax.llm.probe import Form, Probed, probe, response_format
from tumorchain_jax.llm.progress import Progress
from tumorchain_jax.llm.reply import Failure, Reply, Usage
from tumorchain_jax.llm.request import Message, Request
from tumorchain_jax.llm.transport import Answered, Refused

DRAWS = 2
"""Of one request: each may be repaired once, so at most four replies are paid for."""
REDRAWN_AT = 0.5
"""Least temperature of a further draw; at 0 a server would say the same again."""
SCHEMA_TEXT = "Reply with one JSON object of this schema and with nothing else: "


class Client:
    """Asks the model of one endpoint.

    Args:
        endpoint: where it is.
        journal: file of the replies, or one that is open already and shared with other clients
            of this process.
        allow_remote: whether texts may leave this machine.
        budget: the most that all replies of the journal may cost; None: no limit.
        draws: of a request whose replies fail.
        patience_s: how long an endpoint that answers nothing is waited for.
        total: number of requests, for the progress.
        tell: takes a line of news: what the probe found, a damaged journal.

    Raises:
        InputError: the endpoint may not be used, its key is missing, another process has the
            journal.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        journal: Path | Journal,
        *,
        allow_remote: bool = False,
        budget: float | None = None,
        draws: int = DRAWS,
        patience_s: float = 240.0,
        total: int | None = None,
        tell: Callable[[str], None] | None = None,
    ):
        endpoint.check_address(allow_remote)
        endpoint.key()  # refused here if it is not there
        self.endpoint, self.total = endpoint, total
        self._budget = Budget(budget, endpoint)
        self._draws, self._patience_s, self._tell = draws, patience_s, tell
        self._given = journal
        self._under_way: dict[str, asyncio.Future[Kept | Failure]] = {}
        self._probed: asyncio.Task[Probed] | None = None
        self._started = time.monotonic()

    async def __aenter__(self) -> "Client":
        options = {} if self._tell is None else {"tell": self._tell}
        given = self._given
        self._journal = given if isinstance(given, Journal) else Journal(given, **options)
        self._caller = Caller(self.endpoint, self._journal, self._budget, self._patience_s)
        self._started = time.monotonic()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._probed is not None:
            self._probed.cancel()
            await asyncio.gather(self._probed, return_exceptions=True)
        await self._caller.close()
        if not isinstance(self._given, Journal):
            await self._journal.close()

    @property
    def ledger(self) -> Ledger:
        """What was sent, got and paid in this run."""
        return self._caller.ledger

    @property
    def spent(self) -> Usage:
        """Of all replies in the journal."""
        return self._journal.spent

    def stop(self, reason: str = "as asked") -> None:
        """Send nothing more: calls in flight are waited for and kept, others raise `Stopped`."""
        self._caller.end(Stopped(reason))

    async def ask(self, request: Request) -> Reply:
        """Answer a request, from the journal or from the endpoint.

        A reply that fails its check is repaired once, then drawn again.

        Returns:
            an answer, or the reason why the request was set aside.

        Raises:
            InputError: the endpoint refuses whatever it is sent, or the journal cannot be written.
            EndpointFailed: it gives no reply for long.
            Stopped: the budget is spent, or `stop` was called.
        """
        paid_now = False
        got: list[Kept] = []
        failure: Failure | None = None
        for redraw in range(self._draws):
            drawn = _redrawn(request, redraw)
            for repair in (False, True):
                asked = drawn.repaired(failure.reason) if repair and failure else drawn
                kept, bought = await self._reply(asked)
                paid_now = paid_now or bought
                if isinstance(kept, Failure):
                    return self._ended(got, None, kept, paid_now)
                self.ledger.from_journal += not bought
                got.append(kept)
                value, failure = _judged(asked, kept)
                if failure is None or failure.kind == "filtered":
                    return self._ended(got, value, failure, paid_now)
        return self._ended(got, None, failure, paid_now)

    def _ended(
        self, got: list[Kept], value: BaseModel | None, failure: Failure | None, paid_now: bool
    ) -> Reply:
        if failure is None:
            self.ledger.done += 1
        else:
            self.ledger.set_aside[failure.kind] += 1
        last = got[-1] if got else None
        return Reply(
            last.text if last else "",
            value,
            failure,
            tuple(kept.key for kept in got),
            sum((kept.usage for kept in got), Usage()),
            last.model if last else "",
            not paid_now,
            json.loads(last.logprobs) if last and last.logprobs else None,
        )

    async def _reply(self, request: Request) -> tuple[Kept | Failure, bool]:
        """A reply, and whether it was bought now; one that is under way is waited for."""
        key = request.key(self.endpoint.model, self.endpoint.snapshot)
        while (other := self._under_way.get(key)) is not None:
            await asyncio.wait([other])
            if not other.cancelled():
                return other.result(), True
        kept = self._journal.get(key)
        if kept is not None:
            return kept, False
        result: asyncio.Future[Kept | Failure] = asyncio.get_running_loop().create_future()
        self._under_way[key] = result
        try:
            body = await self._body(request)
            bought = await self._caller.buy(key, body, lambda reply: _fault(request, reply))
            result.set_result(bought)
            return bought, True
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError):
                result.cancel()
            else:
                result.set_exception(error)
                result.exception()  # nobody else may be waiting for it
            raise
        finally:
            del self._under_way[key]

    async def _body(self, request: Request) -> dict[str, Any]:
        """The request as the API takes it."""
        endpoint, sampling = self.endpoint, request.sampling
        messages = request.messages
        body: dict[str, Any] = {"model": endpoint.model}
        if request.answer is not None:
            form = (await self.probe()).form
            schema = closed_schema(request.answer)
            if wanted := response_format(form, schema):
                body["response_format"] = wanted
            if form in ("json_object", "prompt"):
                messages = _with_schema(messages, json.dumps(schema, ensure_ascii=False))
        body["messages"] = [message.to_json() for message in messages]
        body |= {"temperature": sampling.temperature, "top_p": sampling.top_p}
        body |= {endpoint.tokens_field: sampling.max_tokens, "seed": sampling.seed}
        if sampling.logprobs:
            body |= {"logprobs": True, "top_logprobs": sampling.logprobs}
        if sampling.thinking:
            body |= endpoint.switch(sampling.thinking)
        return {name: value for name, value in body.items() if name not in endpoint.omit}

    async def probe(self) -> Probed:
        """Find out what the server does with a schema; once.

        Raises:
            InputError: it enforces none although the endpoint must.
        """
        if self._probed is None or self._probed.cancelled():
            self._probed = asyncio.create_task(self._probe())
        return await asyncio.shield(self._probed)

    async def _probe(self) -> Probed:
        wanted = self.endpoint.schema
        if wanted not in ("auto", "enforced"):
            return Probed(cast(Form, wanted), False, ())
        found = await probe(self.endpoint, self._try)
        if self._tell is not None:
            self._tell(f"endpoint {self.endpoint.name}: {found.line()}")
        if wanted == "enforced" and not found.enforced:
            hint = 'choose another server, or schema = "auto": replies are then validated here'
            subject = f"endpoint {self.endpoint.name}"
            error = InputError(subject, "schema", found.line(), "an enforced schema", hint)
            self._caller.end(error)
            raise error
        return found

    async def _try(self, key: str, body: dict[str, Any]) -> Kept | Refused:
        kept = self._journal.get(key)
        if kept is not None:
            self.ledger.from_journal += 1
            return kept
        found = await self._caller.attempt(key, body, lambda reply: None, server_errors=2)
        return Refused(0, found.reason) if isinstance(found, Failure) else found

    async def stream(self, requests: Iterable[Request]) -> AsyncIterator[tuple[int, Reply]]:
        """Answer requests as they can be; yields (position, reply) in the order of completion.

        Requests are taken as they are needed: at most twice the endpoint's concurrency are held.

        Raises:
            as `ask`; first all calls in flight are waited for, and their replies kept.
        """
        coming = enumerate(requests)
        ended: asyncio.Queue[tuple[int, Reply] | None] = asyncio.Queue(self.endpoint.concurrency)
        errors: list[BaseException] = []

        async def work() -> None:
            try:
                while not errors and (item := next(coming, None)) is not None:
                    reply = await self.ask(item[1])
                    await ended.put((item[0], reply))
            except Exception as error:
                errors.append(error)
            finally:
                if not cancelled:
                    await ended.put(None)

        cancelled = False
        tasks = [asyncio.create_task(work()) for _ in range(2 * self.endpoint.concurrency)]
        try:
            for _ in tasks:
                while (item := await ended.get()) is not None:
                    yield item
            if errors:
                raise errors[0]
        finally:
            cancelled = True
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def progress(self) -> Progress:
        """Numbers of the run at this moment."""
        ledger, admission, price = self.ledger, self._caller.admission, self.endpoint.price
        set_aside = ledger.set_aside.total()
        seconds = max(time.monotonic() - self._started, 1e-6)
        return Progress(
            ledger.done,
            set_aside,
            self.total,
            ledger.from_journal,
            admission.in_flight,
            int(admission.limit),
            admission.ceiling,
            (ledger.done + set_aside) / seconds,
            ledger.faults.total(),
            ledger.paid.prompt_tokens + ledger.paid.completion_tokens,
            self.spent.cost,
            price.currency if price else "",
            admission.breaker.is_open,
        )


def ask_all(
    endpoint: Endpoint,
    journal: Path,
    requests: Iterable[Request],
    on_progress: Callable[[Progress], None] | None = None,
    **options: Any,
) -> list[Reply]:
    """Answer requests, in their order.

    Args:
        on_progress: called after each of them.
        options: of `Client`.

    Raises:
        as `Client` and `Client.ask`.
    """

    async def run() -> dict[int, Reply]:
        replies = {}
        async with Client(endpoint, journal, **options) as client:
            async for position, reply in client.stream(requests):
                replies[position] = reply
                if on_progress is not None:
                    on_progress(client.progress)
        return replies

    replies = asyncio.run(run())
    return [replies[position] for position in range(len(replies))]


def _redrawn(request: Request, redraw: int) -> Request:
    if redraw == 0:
        return request
    sampling = request.sampling
    temperature = max(sampling.temperature, REDRAWN_AT)
    drawn = replace(sampling, temperature=temperature, seed=sampling.seed + redraw)
    return replace(request, sampling=drawn, redraw=request.redraw + redraw)


def _with_schema(messages: tuple[Message, ...], schema: str) -> tuple[Message, ...]:
    """The messages with the schema at the end of the instruction, for servers that ignore it."""
    text = SCHEMA_TEXT + schema
    first = messages[0]
    if first.role == "system" and isinstance(first.content, str):
        return (Message("system", f"{first.content}\n\n{text}"), *messages[1:])
    return (Message("system", text), *messages)


def _fault(request: Request, reply: Answered) -> Failure | None:
    finish = "content_filter" if reply.refusal else reply.finish_reason
    return _read(request, finish, reply.text)[1]


def _judged(request: Request, kept: Kept) -> tuple[BaseModel | None, Failure | None]:
    return _read(request, kept.finish_reason, kept.text)


def _read(request: Request, finish: str, text: str) -> tuple[BaseModel | None, Failure | None]:
    """The answer in a reply, or what is wrong with it."""
    if finish == "content_filter":
        return None, Failure("filtered", "the server declined to answer")
    if finish == "length":
        limit = request.sampling.max_tokens
        return None, Failure("length", f"the reply was cut off at {limit} tokens; be shorter")
    if finish != "stop":
        return None, Failure("invalid", "the reply has no proper end")
    if not text.strip():
        return None, Failure("invalid", "the reply is empty")
    if request.answer is None:
        return None, None
    try:
        return read_answer(request.answer, text), None
    except AnswerError as error:
        return None, Failure("invalid", str(error))
