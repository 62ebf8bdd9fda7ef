"""A review page handed out to this machine alone, which saves each verdict as it is given."""

import secrets
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import write_file
from tumorchain_jax.engine.review.page import check_reviewers, page_name
from tumorchain_jax.engine.review.sample import Sample, read_sample
from tumorchain_jax.engine.review.verdicts import read_verdicts

HOST = "127.0.0.1"
MOST_BYTES = 50_000_000
"""Of a verdict file."""


class ReviewServer(ThreadingHTTPServer):
    """Serves one reviewer's page and verdict file, to whoever knows the address.

    Args:
        folder: of the review.
        port: 0 for any that is free.

    Raises:
        InputError: there is no page of that reviewer, or the port is taken.
    """

    daemon_threads = True

    def __init__(self, folder: Path, reviewer: str, port: int = 0):
        check_reviewers([reviewer])
        self.sample: Sample = read_sample(folder)
        self.page = folder / page_name(reviewer)
        if not self.page.is_file():
            hint = "make the review again, with --reviewers"
            raise InputError(folder, "reviewer", reviewer, "one who has a page", hint)
        self.reviewer = reviewer
        self.verdicts = folder / f"verdicts-{reviewer}.json"
        # Other users of this machine must not guess the address.
        self.token = secrets.token_urlsafe(24)
        try:
            super().__init__((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            found, expected = f"{port} ({error})", "a free port"
            raise InputError("command line", "--port", found, expected, "leave it out") from error

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that has gone; tell what else goes wrong."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    @property
    def address(self) -> str:
        """Where to point a browser at."""
        return f"http://{HOST}:{self.server_port}/{self.token}/"


class _Handler(BaseHTTPRequestHandler):
    server: ReviewServer

    def do_GET(self) -> None:
        """Hand out the page or the verdicts."""
        path = self._path()
        if path == "":
            self._answer(200, self.server.page.read_bytes(), "text/html; charset=utf-8")
        elif path == "verdicts" and self.server.verdicts.is_file():
            self._answer(200, self.server.verdicts.read_bytes(), "application/json")
        elif path == "verdicts":
            self._answer(204)  # none yet
        else:
            self._answer(404)

    def do_POST(self) -> None:
        """Save the verdicts, if they are such."""
        length = self.headers.get("Content-Length", "")
        if self._path() != "verdicts" or not length.isdecimal() or int(length) > MOST_BYTES:
            self._answer(404)
            return
        server, content = self.server, self.rfile.read(int(length))
        part = server.verdicts.with_name(f".{server.verdicts.name}.new")
        try:
            write_file(part, content)
            reviewer, _ = read_verdicts(part, server.sample)
            if reviewer != server.reviewer:
                raise InputError(part, "reviewer", reviewer, server.reviewer, "use that page")
        except InputError:
            part.unlink(missing_ok=True)
            self._answer(400)
        else:
            part.replace(server.verdicts)
            self._answer(204)

    def _path(self) -> str | None:
        """What is asked for, behind the token; None where the token or the host is another."""
        before = f"/{self.server.token}/"
        # A page from elsewhere that was led to this address by its name would send that name.
        if self.headers.get("Host") != f"{HOST}:{self.server.server_port}":
            return None
        return self.path[len(before) :] if self.path.startswith(before) else None

    def _answer(self, status: int, content: bytes = b"", kind: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: addresses hold the token."""
