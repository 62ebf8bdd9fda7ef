"""One paid call: a slot, an exchange, retries within a deadline, and the reply on the disk."""

import asyncio
import random
import time
from collections.abc import Callable
from itertools import count
from typing import Any

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.llm.admission import Admission
from tumorchain_jax.llm.endpoint import Endpoint
from tumorchain_jax.llm.journal import Journal, Kept
from tumorchain_jax.llm.ledger import Budget, Ledger
from tumorchain_jax.llm.reply import Failure
from tumorchain_jax.llm.transport import Again, Answered, Refused, Transport

LONGEST_BACKOFF_S = 20.0
BROKEN_REPLIES = 3
"""Replies without a message in them, in one call, after which it is set aside."""
REFUSED_FROM_THE_START = 4
"""Requests refused before any was answered, after which the run stops."""
KEY, ADDRESS = "check the key", "check url and model; GET {url}/models lists what there is"
REMEDIES = {401: KEY, 403: KEY, 402: "top up the account", 404: ADDRESS}

Judge = Callable[[Answered], Failure | None]
"""What is wrong with a reply."""


class Caller:
    """Buys replies from an endpoint.

    Attributes:
        admission: its slots.
        ledger: what was sent, got and paid.
    """

    def __init__(self, endpoint: Endpoint, journal: Journal, budget: Budget, patience_s: float):
        self.endpoint, self._journal, self._budget = endpoint, journal, budget
        self.admission = Admission(endpoint.name, endpoint.concurrency, patience_s)
        self.ledger = Ledger()
        self._transport = Transport(endpoint, endpoint.key())
        self._refused = 0
        self._ending = asyncio.Event()

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()

    def end(self, reason: BaseException) -> None:
        """Send no more; calls in flight are waited for."""
        self.admission.end(reason)
        self._ending.set()

    async def buy(self, key: str, body: dict[str, Any], judge: Judge) -> Kept | Failure:
        """Get a reply and keep it.

        Raises:
            InputError: the endpoint refuses whatever it is sent, or the journal cannot be written.
            EndpointFailed: it gives no reply for long.
            Stopped: the budget is spent.
        """
        found = await self.attempt(key, body, judge)
        if not isinstance(found, Refused):
            return found
        self._refused += 1
        if not self.ledger.paid.calls and self._refused >= REFUSED_FROM_THE_START:
            raise self._fatal(found, "see what the server says; `omit` leaves fields out")
        return Failure("refused", f"HTTP {found.status} {found.message}")

    async def attempt(
        self, key: str, body: dict[str, Any], judge: Judge, server_errors: int | None = None
    ) -> Kept | Failure | Refused:
        """As `buy`, but give back how a request was refused.

        Args:
            server_errors: HTTP 500s after which the request counts as refused; None: never.
        """
        left_s, broken, errors = self.endpoint.deadline_s, 0, 0
        for number in count():
            timeout_s = min(self.endpoint.timeout_s, left_s)
            outcome, took_s = await self._exchange(key, body, judge, timeout_s, number > 0)
            if isinstance(outcome, Kept):
                return outcome
            if isinstance(outcome, Refused):
                if outcome.status in REMEDIES or outcome.status < 400:
                    raise self._fatal(outcome, REMEDIES.get(outcome.status, "give another url"))
                return outcome
            broken += outcome.fault.startswith("HTTP 200")
            if broken >= BROKEN_REPLIES:
                return Failure("broken", f"{outcome.fault}, {broken} times")
            errors += outcome.fault.startswith("HTTP 500")
            if server_errors is not None and errors >= server_errors:
                return Refused(500, outcome.fault)
            wait_s = _wait_s(outcome, number)
            left_s -= took_s + wait_s
            if left_s <= 0:
                reason = f"{outcome.fault}; not within {self.endpoint.deadline_s:g} s"
                return Failure("deadline", f"{reason} in {number + 1} exchanges")
            await self._pause(wait_s)
        raise AssertionError("a call has no last exchange")

    async def _exchange(
        self, key: str, body: dict[str, Any], judge: Judge, timeout_s: float, is_retry: bool
    ) -> tuple[Kept | Refused | Again, float]:
        """One exchange in a slot, counted, its reply kept; also the seconds that it took."""
        ticket = await self.admission.acquire(is_retry)
        started = time.perf_counter()
        try:
            self._budget.check(self._journal.spent.cost)
            self.ledger.sent += 1
            outcome = await self._transport.send(body, timeout_s)
        except BaseException as error:
            self.admission.ignored()
            if isinstance(error, asyncio.CancelledError):
                self.ledger.maybe_paid += 1
            else:
                self.end(error)
            raise
        if isinstance(outcome, Answered):
            try:
                kept = await self._keep(key, outcome, judge(outcome))
            finally:
                # Only now: a killed process then loses no more paid replies than it has slots.
                self.admission.succeeded(ticket, outcome.latency_s)
            return kept, time.perf_counter() - started
        if isinstance(outcome, Refused):
            self.ledger.faults[f"HTTP {outcome.status}"] += 1
            self.admission.ignored()
        else:
            self.ledger.faults[_kind(outcome.fault)] += 1
            self.ledger.maybe_paid += outcome.maybe_paid
            self.admission.failed(ticket, outcome.fault, outcome.is_load, outcome.after_s or 0.0)
            if self.admission.ended is not None:
                self._ending.set()
        return outcome, time.perf_counter() - started

    async def _keep(self, key: str, answered: Answered, failure: Failure | None) -> Kept:
        prompt, completion = answered.usage or (0, 0)
        price = self.endpoint.price
        kept = Kept(
            key,
            failure.kind if failure else "",
            failure.reason if failure else "",
            answered.text,
            "content_filter" if answered.refusal else answered.finish_reason,
            answered.model,
            prompt,
            completion,
            price.of(prompt, completion) if price else 0.0,
            round(answered.latency_s, 6),
            answered.logprobs,
        )
        self.ledger.paid = self.ledger.paid + kept.usage
        self.ledger.uncounted += answered.usage is None
        try:
            # A reply that has been paid for is kept even if nobody waits for it any more.
            await asyncio.shield(self._journal.put(kept))
        except InputError as error:
            self.end(error)
            raise
        return kept

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._ending.wait()
        except TimeoutError:
            pass

    def _fatal(self, refused: Refused, remedy: str) -> InputError:
        """End the run: every further call would be refused."""
        endpoint = self.endpoint
        if refused.status in (401, 403):
            name = endpoint.key_env or "no key_env is named"
            remedy = f"{KEY} in the environment variable ({name})"
        error = InputError(
            f"endpoint {endpoint.name} ({endpoint.url}, model {endpoint.model})",
            "request",
            f"HTTP {refused.status} {refused.message}".strip(),
            "a reply",
            remedy.format(url=endpoint.url),
        )
        self.end(error)
        return error


def _wait_s(again: Again, number: int) -> float:
    """Seconds until the next exchange of a call: ever longer, and never less than asked."""
    backoff = min(LONGEST_BACKOFF_S, 0.5 * 2**number) * random.uniform(0.5, 1.0)
    if again.after_s:
        return max(again.after_s * random.uniform(1.01, 1.1), backoff / 4)
    return backoff


def _kind(fault: str) -> str:
    """The first words of a fault, for counts."""
    return " ".join(fault.split()[:2])
