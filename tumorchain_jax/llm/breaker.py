"""A breaker: when nothing succeeds, single calls are let through until one does."""

from collections.abc import Callable

FAULTS_IN_A_ROW = 20
SECONDS_WITHOUT = 3.0
"""Faults in a row, and seconds since the last success, that open the breaker."""
FEWEST_FAULTS = 3
"""Faults in a row before a run is given up: a single call may just be slow."""
LONGEST_PAUSE_S = 15.0
NEVER_ANSWERED_S = 30.0
"""Without a single success, how long a server that cannot be reached is waited for."""


class EndpointFailed(Exception):
    """An endpoint gave no reply for long; what was answered is kept, a rerun goes on."""


class Breaker:
    """Counts faults in a row.

    Args:
        name: of the endpoint, for messages.
        patience_s: without any success until the run is given up.
        clock: seconds.

    Attributes:
        is_open: whether single calls are let through alone.
    """

    def __init__(self, name: str, patience_s: float, clock: Callable[[], float]):
        self.is_open = False
        self._name, self._patience_s, self._clock = name, patience_s, clock
        self._in_a_row = 0
        self._trying = False
        self._pause_s = self._try_at = 0.0
        self._last_success = clock()
        self._ever = False

    def wait_s(self) -> float | None:
        """Seconds until the next single call; None while one is under way."""
        return None if self._trying else self._try_at - self._clock()

    def let_through(self) -> None:
        """Note that a call starts."""
        self._trying = self.is_open

    def succeeded(self) -> bool:
        """Note a success; returns whether that closed the breaker."""
        was_open, self.is_open, self._trying = self.is_open, False, False
        self._in_a_row, self._last_success, self._ever = 0, self._clock(), True
        return was_open

    def ignored(self) -> None:
        """Note a call that says nothing."""
        self._trying = False

    def failed(self, fault: str, wait_s: float) -> EndpointFailed | None:
        """Note a fault.

        Args:
            fault: what it was.
            wait_s: what the endpoint asks to wait.

        Returns:
            why the run is given up; None if it goes on.
        """
        now = self._clock()
        self._in_a_row += 1
        without = now - self._last_success
        unreachable = not self._ever and fault.startswith("no connection")
        patience = min(self._patience_s, NEVER_ANSWERED_S) if unreachable else self._patience_s
        if self.is_open:
            self._trying = False
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        elif self._in_a_row >= FAULTS_IN_A_ROW and without >= SECONDS_WITHOUT:
            self.is_open, self._pause_s = True, 1.0
        elif self._in_a_row < FEWEST_FAULTS or without < patience:
            return None
        self._try_at = now + max(self._pause_s, wait_s)
        if self._try_at - self._last_success <= patience:
            return None
        hint = "is the server running?" if unreachable else "what was answered is kept"
        return EndpointFailed(
            f"endpoint {self._name}: no reply for {without:.0f} s, the last fault was: {fault}; "
            f"{hint}, rerun the same command once it answers"
        )
