"""How many calls may be in flight at one endpoint, and how fast they start.

Both are found out while running. The limit doubles until something goes wrong, then grows by a
little and shrinks by the share of calls that went wrong (AIMD on 429, 5xx, timeouts and latency).
Where calls are turned away, their pace is that of the ones that succeeded. Faults that stay as
frequent when there is less load have another cause: they become the floor above which all this
reacts. When nothing succeeds at all, a breaker (`llm/breaker.py`) lets single calls through, and
gives up after a while.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from statistics import median

from tumorchain_jax.llm.breaker import Breaker

FIRST_LIMIT = 4
"""A dead key costs at most this many calls."""
EPOCH = 20
"""Outcomes between two changes, at least; a full limit if that is more."""
SHORT_EPOCH, SHORT_EPOCH_S = 6, 1.0
"""Or these outcomes, where they took so many seconds."""
TURNED_AWAY = 8
"""Calls turned away in a row, and nothing else, that end an epoch early."""
TOLERANCE = 0.05
SLOW, TOO_SLOW = 4.0, 8.0
"""Times the least latency at which the limit stops growing, and shrinks."""


class Admission:
    """Slots of one endpoint.

    Args:
        name: of the endpoint, for messages.
        ceiling: the most calls in flight.
        patience_s: without any success until the run is given up.
        clock: seconds; for tests.

    Attributes:
        limit: calls that may be in flight now.
        pace: calls that may start in a second now.
        in_flight: calls that are.
    """

    def __init__(
        self,
        name: str,
        ceiling: int,
        patience_s: float = 240.0,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.ceiling = ceiling
        self.limit, self.pace, self.in_flight = float(min(FIRST_LIMIT, ceiling)), math.inf, 0
        self.breaker = Breaker(name, patience_s, clock)
        self._clock = clock
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._woken = 0  # of those that waited, not yet in a slot: nobody overtakes them
        self._timer: asyncio.TimerHandle | None = None
        self._next_start = 0.0
        self._ended: BaseException | None = None
        self._doubling = True
        self._floor = 0.0
        self._before: tuple[float, float, float, bool] | None = None
        self._least_latency, self._typical_latency = math.inf, 0.0
        self._epoch = self._clean = 0
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        self._epoch += 1
        self._began = self._clock()
        self._successes = self._faults = self._turned_away = 0
        self._latencies: list[float] = []
        self._was_full = False

    @property
    def ended(self) -> BaseException | None:
        """Why no more calls are let through; None while they are."""
        return self._ended

    def end(self, reason: BaseException) -> None:
        """Let no more calls through: those that wait raise `reason`, those in flight go on."""
        if self._ended is None:
            self._ended = reason
        self._wake()

    async def acquire(self, is_retry: bool = False) -> int:
        """Wait for a slot; a retry goes before new calls.

        Returns:
            a ticket, to give back with the outcome.

        Raises:
            BaseException: what `end` was given.
        """
        is_first = is_retry
        while True:
            if self._ended is not None:
                raise self._ended.with_traceback(None)  # raised by many
            if self._is_free():
                if is_first or not (self._waiting or self._woken):
                    break
                self._wake()  # those that came before
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            if is_first:
                self._waiting.appendleft(turn)
            else:
                self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._woken -= 1
                    self._wake()  # the turn goes to the next
                raise
            self._woken -= 1
            is_first = True
        self.in_flight += 1
        self.breaker.let_through()
        now = self._clock()
        self._next_start = max(now, self._next_start) + 1 / self.pace
        self._was_full = self._was_full or self.in_flight >= int(self.limit)
        return self._epoch

    def _is_free(self) -> bool:
        wait_s = self.breaker.wait_s()
        if self.breaker.is_open:
            free = wait_s is not None and wait_s <= 0
        else:
            wait_s = self._next_start - self._clock()
            free = wait_s <= 0 and self.in_flight < max(1, int(self.limit))
        if wait_s is not None and wait_s > 0 and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._on_timer)
        return free

    def _on_timer(self) -> None:
        self._timer = None
        self._wake()

    def _wake(self) -> None:
        """Let as many go on as may; each looks again whether it is free."""
        count = len(self._waiting)
        if self._ended is None:
            free = max(1, int(self.limit) - self.in_flight - self._woken)
            count = min(count, 1 if self.breaker.is_open or self.pace < math.inf else free)
        while self._waiting and count:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self._woken += 1
                count -= 1

    def _release(self) -> None:
        self.in_flight -= 1
        self._wake()

    def succeeded(self, ticket: int, latency_s: float) -> None:
        """Count a reply, and give its slot back."""
        if self.breaker.succeeded():
            self._doubling, self._before, self.pace = True, None, math.inf
            self.limit = float(min(FIRST_LIMIT, self.ceiling))
            self._begin_epoch()
        if ticket == self._epoch:
            self._successes += 1
            self._latencies.append(latency_s)
            self._look()
        self._release()

    def failed(self, ticket: int, fault: str, is_load: bool, wait_s: float = 0.0) -> None:
        """Count a fault, and give its slot back.

        Args:
            fault: what it was, for a message.
            is_load: whether the endpoint turned the call away.
            wait_s: what the endpoint asks to wait.
        """
        problem = self.breaker.failed(fault, wait_s)
        if problem is not None:
            self.end(problem)
        if ticket == self._epoch and not self.breaker.is_open:
            self._faults += 1
            self._turned_away += is_load
            self._look()
        if is_load and self._typical_latency and not self.breaker.is_open:
            # The next call in this slot would be turned away at once: rest as long as a call takes.
            asyncio.get_running_loop().call_later(self._typical_latency, self._release)
        else:
            self._release()

    def ignored(self) -> None:
        """Give back a slot whose call says nothing about load: a 4xx, or a cancelled call."""
        self.breaker.ignored()
        self._release()

    def _look(self) -> None:
        outcomes = self._successes + self._faults
        nothing_else = outcomes == self._turned_away >= TURNED_AWAY
        if self._clock() - self._began < self._typical_latency:
            return  # the last change shows in what was started since
        slow = outcomes >= SHORT_EPOCH and self._clock() - self._began >= SHORT_EPOCH_S
        if outcomes >= max(EPOCH, self.limit) or slow or nothing_else:
            self._adjust()
            self._begin_epoch()

    def _adjust(self) -> None:
        outcomes = self._successes + self._faults
        slowness = self._slowness()
        share = self._faults / outcomes
        spread = 2 * math.sqrt(self._floor * (1 - self._floor) / outcomes)
        if share > self._floor + max(TOLERANCE, spread):
            self._shrink(share)
            return
        if share < self._floor:
            self._floor += 0.2 * (share - self._floor)
        self._before, self._clean = None, self._clean + 1
        if slowness > TOO_SLOW and self.limit > FIRST_LIMIT:
            self._doubling = False
            self.limit *= 0.9
        elif self._was_full and slowness < SLOW:
            grown = 2 * self.limit if self._doubling else self.limit + max(1.0, 0.05 * self.limit)
            self.limit = min(grown, float(self.ceiling))
        achieved = self._successes / max(self._clock() - self._began, 1e-3)
        self.pace *= min(2.0, 1 + 0.1 * 4 ** (self._clean - 1))
        if self.pace > 8 * achieved:
            self.pace = math.inf  # it is something else that binds

    def _shrink(self, share: float) -> None:
        if self._successes and self._before is not None and share >= 0.8 * self._before[0]:
            # Less load, as many faults: they have another cause.
            _, self.limit, self.pace, self._doubling = self._before
            self._floor, self._before = share, None
            return
        self._before = share, self.limit, self.pace, self._doubling
        self._clean = 0
        excess = (share - self._floor) / (1 - self._floor)
        self._doubling = False
        if self._turned_away and (self.limit < 2 or self.pace < math.inf):
            # One at a time is too many: a server that counts calls a second.
            seconds = max(self._clock() - self._began, 1e-3)
            achieved = self._successes / seconds / (1 - self._floor)
            self.pace = min(self.pace, achieved or self._faults / seconds / 4)
        self.limit = max(1.0, self.limit * max(0.75 if self._successes else 0.5, 1 - excess))

    def _slowness(self) -> float:
        """Median latency of the epoch, in multiples of the least one."""
        if not self._latencies:
            return 1.0
        self._typical_latency = median(self._latencies)
        self._least_latency = min(1.01 * self._least_latency, self._typical_latency)
        return self._typical_latency / max(self._least_latency, 1e-6)
