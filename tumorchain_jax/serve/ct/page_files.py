"""The page, from the package: it asks for nothing of another machine, and its policy forbids it."""

from collections.abc import Awaitable, Callable
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tumorchain_jax import NOTICE

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
PAGE = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    "/planes.js": ("planes.js", "text/javascript"),
}


def page_routes() -> list[Route]:
    """Routes of the page and what belongs to it; no key is asked for, as nothing is private."""
    return [Route(path, _handler(name, kind)) for path, (name, kind) in PAGE.items()]


def _handler(name: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
    folder = files("tumorchain_jax.serve.ct") / "page"
    content = (folder / name).read_text("utf-8").replace("{{ notice }}", NOTICE)

    async def serve(request: Request) -> Response:
        return Response(content, media_type=kind, headers=HEADERS)

    return serve
