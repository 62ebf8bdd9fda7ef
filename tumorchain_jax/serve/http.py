"""What all applications share: keys, hosts, bodies of limited length, errors in OpenAI's form."""

import asyncio
import hmac
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tumorchain_jax.serve.refusal import Refusal

BODY_S = 30.0
"""Seconds in which a body must have come."""
LOCAL = ["127.0.0.1", "localhost", "[::1]"]


class SameOrigin:
    """Refuses requests that a page of another origin makes in its reader's name."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer 403."""
        if scope["type"] == "http":
            headers = Request(scope).headers
            origin = headers.get("origin")
            if origin is not None and urlsplit(origin).netloc != headers.get("host"):
                refusal = Refusal(403, "requests of pages of other origins are not answered")
                await JSONResponse(refusal.body(), refusal.status)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def guards(anywhere: bool) -> list[Middleware]:
    """Middleware that keeps the pages of other sites out.

    Args:
        anywhere: whether requests may name another host than this machine.
    """
    # A page of the web whose name leads here must not ask in its reader's name.
    hosts = Middleware(TrustedHostMiddleware, allowed_hosts=["*"] if anywhere else LOCAL)
    return [hosts, Middleware(SameOrigin)]


def check_key(request: Request, key: str) -> None:
    """Raise Refusal (401) for a request without the key; an empty key is none."""
    if not key:
        return
    given = request.headers.get("authorization", "").removeprefix("Bearer ")
    if not hmac.compare_digest(given.encode(), key.encode()):
        raise Refusal(401, "the key is missing or wrong")


async def read_body(request: Request, most: int) -> bytes:
    """The body of a request.

    Raises:
        Refusal: (413) it is too long; (408) it takes too long to come.
    """
    parts, size = [], 0
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise Refusal(413, f"the body has more than {most} bytes")
                parts.append(part)
    except TimeoutError:
        raise Refusal(408, f"the body did not come within {BODY_S:.0f} s") from None
    return b"".join(parts)


def sent(values: Mapping[str, Any]) -> str:
    """An event of a stream."""
    return f"data: {json.dumps(values)}\n\n"


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return JSONResponse(error.body(), error.status, headers=error.headers)


async def _not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path[:80]}: {error.detail}"
    return JSONResponse(Refusal(error.status_code, message).body(), error.status_code)


async def _gone(request: Request, error: Exception) -> Response:
    """Nobody is there to read it; a traceback for each client that vanished would fill the log."""
    return Response(status_code=499)


ERRORS: Mapping[Any, Any] = {
    Refusal: _refused,
    HTTPException: _not_found,
    ClientDisconnect: _gone,
}
"""Handlers of what routes raise."""
