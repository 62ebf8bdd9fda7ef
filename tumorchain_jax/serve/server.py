"""The server as a process: its address, its key, its end."""

import ipaddress
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.serve.connection import (
    MOST_CONNECTIONS,
    TimedConnection,
    allow_connections,
)

SHORTEST_KEY = 16
KEY_HINT = 'python -c "import secrets; print(secrets.token_urlsafe(32))" makes one'


def read_key(path: Path | None, host: str) -> str:
    """Read the key that requests must bring; empty for none, on this machine alone.

    Raises:
        InputError: there is none although others can reach the address, or it is too short.
    """
    if path is None:
        if not is_local(host):
            found, expected = f"--host {host} without one", "a key, as others can reach it"
            raise InputError("command line", "--api-key-file", found, expected, KEY_HINT)
        return ""
    try:
        key = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(path, "key", str(error), "a file with a key", KEY_HINT) from error
    if len(key) < SHORTEST_KEY or not key.isprintable() or " " in key:
        found = f"{len(key)} characters"  # not the key itself
        expected = f"at least {SHORTEST_KEY}, printable and without spaces"
        raise InputError(path, "key", found, expected, KEY_HINT)
    return key


def is_local(host: str) -> bool:
    """Whether an address is of this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Server(uvicorn.Server):
    """Says when it is told to end, before the last requests are done."""

    def __init__(self, config: uvicorn.Config, closing: Callable[[], None]):
        super().__init__(config)
        self._closing = closing

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take SIGINT or SIGTERM."""
        # Not in the handler itself: it may interrupt a thread that holds what closing waits for.
        threading.Thread(target=self._closing, name="closing", daemon=True).start()
        # uvicorn's own handler raises the signal again once it is done, which would end the process
        # before uploads are deleted.
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True


def run(
    app: Starlette,
    host: str,
    port: int,
    ready: Callable[[str], None],
    closing: Callable[[], None] = lambda: None,
) -> None:
    """Serve until SIGINT or SIGTERM; requests that are under way are finished.

    Args:
        ready: takes the address once requests can come.
        closing: called when the end has begun.

    Raises:
        InputError: the address is taken, or not of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        found, expected = f"{host}:{port} ({error})", "an address that is free"
        raise InputError("command line", "--port", found, expected, "name another") from error
    listener.listen(128)
    name = f"[{host}]" if ":" in host else host
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        timeout_keep_alive=15,
        http=TimedConnection,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=120,
        lifespan="off",
        server_header=False,
    )
    allow_connections()
    ready(f"http://{name}:{listener.getsockname()[1]}")
    try:
        _Server(config, closing).run(sockets=[listener])
    finally:
        listener.close()
