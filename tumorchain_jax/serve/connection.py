"""Connections that have a time limit for what comes before a request's body."""

import asyncio
import resource
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 15.0
"""Seconds in which the head of a request must have come."""
MOST_CONNECTIONS = 4096


class TimedConnection(H11Protocol):
    """Closes a connection that sends no whole head of a request in time.

    Otherwise idle connections, and heads that come letter by letter, would fill the server up.
    """

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Wait for the first head."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take some of a request."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._watch()
        else:
            self._unwatch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._unwatch()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(HEAD_S, self._close)

    def _unwatch(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _close(self) -> None:
        self._late = None
        if self.conn.their_state is h11.IDLE:
            self.transport.abort()


def allow_connections() -> None:
    """Raise the limit on open files, so that idle connections do not use them all up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * MOST_CONNECTIONS
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
