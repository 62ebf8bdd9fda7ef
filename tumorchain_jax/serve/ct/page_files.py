"""The page, from the package: it asks for nothing of another machine, and its policy forbids it."""

from importlib.resources import files
from importlib.resources.abc import Traversable

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
KINDS = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}
OWN = ("index.html", "page.css", "page.js", "answers.js", "icon.svg")
OF_REPORTS = ("viewer.css", "viewer.js")
"""The viewer that reports have too."""


def page_routes() -> list[Route]:
    """Routes of the page and what belongs to it; no key is asked for, as nothing is private."""
    own = files("tumorchain_jax.serve.ct") / "page"
    of_reports = files("tumorchain_jax.report")
    routes = [_route(own, name) for name in OWN]
    return routes + [_route(of_reports, name) for name in OF_REPORTS]


def _route(folder: Traversable, name: str) -> Route:
    content = (folder / name).read_text("utf-8").replace("{{ notice }}", NOTICE)
    kind = KINDS[name.rpartition(".")[2]]

    async def serve(request: Request) -> Response:
        return Response(content, media_type=kind, headers=HEADERS)

    return Route("/" if name == "index.html" else f"/{name}", serve)
