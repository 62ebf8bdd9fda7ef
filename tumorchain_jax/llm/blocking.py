"""The client for code that is not asynchronous: its calls may come from many threads at once."""

import asyncio
import threading
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any

from tumorchain_jax.llm.client import Client
from tumorchain_jax.llm.endpoint import Endpoint
from tumorchain_jax.llm.journal import Journal
from tumorchain_jax.llm.progress import Progress
from tumorchain_jax.llm.reply import Reply, Usage
from tumorchain_jax.llm.request import Request


class BlockingClients:
    """Clients of several endpoints that share one journal, in a thread of their own.

    with BlockingClients(Path("replies.sqlite")) as clients:
        reply = clients.ask(endpoint, request)

    Args:
        journal: file of the replies.
        options: of every `Client`.
    """

    def __init__(self, journal: Path, **options: Any):
        self._path, self._options = journal, options
        self._clients: dict[str, Client] = {}
        self._guard = threading.Lock()

    def __enter__(self) -> "BlockingClients":
        tell = self._options.get("tell")
        self._journal = Journal(self._path, **({"tell": tell} if tell else {}))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        async def close() -> None:
            for client in self._clients.values():
                await client.__aexit__(None, None, None)
            await self._journal.close()

        asyncio.run_coroutine_threadsafe(close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def ask(self, endpoint: Endpoint, request: Request) -> Reply:
        """As `Client.ask`; the calling thread waits."""
        return self.submit(endpoint, request).result()

    def submit(self, endpoint: Endpoint, request: Request) -> "Future[Reply]":
        """As `ask`, without waiting."""
        client = self.client(endpoint)
        return asyncio.run_coroutine_threadsafe(client.ask(request), self._loop)

    def client(self, endpoint: Endpoint) -> Client:
        """The client of an endpoint, made when it is first wanted.

        Raises:
            InputError: as `Client`.
        """
        with self._guard:
            if endpoint.name not in self._clients:
                client = Client(endpoint, self._journal, **self._options)
                opened = asyncio.run_coroutine_threadsafe(client.__aenter__(), self._loop)
                self._clients[endpoint.name] = opened.result()
            return self._clients[endpoint.name]

    def stop(self, reason: str = "as asked") -> None:
        """Send nothing more; calls in flight are waited for."""
        for client in self._clients.values():
            self._loop.call_soon_threadsafe(client.stop, reason)

    @property
    def spent(self) -> Usage:
        """Of all replies in the journal."""
        return self._journal.spent

    @property
    def progress(self) -> dict[str, Progress]:
        """Numbers of each endpoint."""
        return {name: client.progress for name, client in self._clients.items()}
