"""Routes of the server of CTs: files, questions, what the page draws, numbers."""

import asyncio
import logging
import time
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tumorchain_jax.report.page import render
from tumorchain_jax.serve.ct.desk import Desk
from tumorchain_jax.serve.ct.job import Answered, Event, Job
from tumorchain_jax.serve.ct.metrics import Metrics
from tumorchain_jax.serve.ct.page_files import page_routes
from tumorchain_jax.serve.ct.question import CTRequest, ScanName, read_question
from tumorchain_jax.serve.ct.reply import public, record
from tumorchain_jax.serve.ct.store import Store, Stored
from tumorchain_jax.serve.ct.talk import Talk
from tumorchain_jax.serve.ct.upload import receive_inline, receive_upload
from tumorchain_jax.serve.ct.view import ScanView, scan_view
from tumorchain_jax.serve.fields import Fields
from tumorchain_jax.serve.http import ERRORS, check_key, guards, read_body
from tumorchain_jax.serve.refusal import Refusal
from tumorchain_jax.serve.reply_ids import reply_ids

SMALL_BODY = 1 << 16
SAVED = {
    "Content-Disposition": 'attachment; filename="report.html"',
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
"""A report is saved, not opened in this origin."""
log = logging.getLogger("tumorchain.serve")


def make_ct_app(desk: Desk, store: Store, name: str, key: str, anywhere: bool = False) -> Starlette:
    """Make the application.

    Args:
        name: of the model.
        key: that requests must bring; empty: none.
        anywhere: whether requests may name another host than this machine.
    """
    api = _Api(desk, store, name, key)
    counted = Middleware(_Counted, metrics=api.metrics)
    return Starlette(
        routes=[
            *page_routes(),
            Route("/health", api.health),
            Route("/ready", api.ready),
            Route("/metrics", api.numbers),
            Route("/v1/models", api.models),
            Route("/v1/files", api.upload, methods=["POST"]),
            Route("/v1/files/{id}", api.file),
            Route("/v1/files/{id}", api.delete, methods=["DELETE"]),
            Route("/v1/root", api.root),
            Route("/v1/scans/{id}", api.scan),
            Route("/v1/scans/{id}/{what}", api.voxels),
            Route("/v1/reports/{id}", api.report),
            Route("/v1/chat/completions", api.chat, methods=["POST"]),
        ],
        middleware=[counted, *guards(anywhere)],
        exception_handlers=ERRORS,
    )


class _Counted:
    """Counts and logs requests by their route; addresses and bodies are not logged."""

    def __init__(self, app: ASGIApp, metrics: Metrics):
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.monotonic(), 499

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, note)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._metrics.requests.labels(route, status).inc()
            took = round(time.monotonic() - started, 3)
            fields = {"method": scope["method"], "route": route, "status": status, "seconds": took}
            log.info("request", extra={"fields": fields})


class _Api:
    def __init__(self, desk: Desk, store: Store, name: str, key: str):
        self._desk, self._store, self._name, self._key = desk, store, name, key
        self.metrics = Metrics(desk)
        self._next_id = reply_ids()
        self._started = int(time.time())
        self._view: tuple[str, ScanView] | None = None

    async def health(self, request: Request) -> Response:
        """Numbers of the queue and what is compiled; no key is asked for."""
        return JSONResponse({"model": self._name, **self._desk.health()})

    async def ready(self, request: Request) -> Response:
        """Whether questions are taken; no key is asked for."""
        if self._desk.closing or not self._desk.warm:
            raise Refusal(503, "the server is going down, or not up yet", retry_after_s=5)
        return JSONResponse({"ready": True})

    async def numbers(self, request: Request) -> Response:
        """Prometheus' text."""
        check_key(request, self._key)
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4")

    async def models(self, request: Request) -> Response:
        """The one model."""
        check_key(request, self._key)
        model = {"id": self._name, "object": "model", "created": self._started}
        model["owned_by"] = "tumorchain"
        return JSONResponse({"object": "list", "data": [model]})

    async def upload(self, request: Request) -> Response:
        """Keep an upload, or name a path under the root."""
        check_key(request, self._key)
        self._check_open()
        if request.headers.get("content-type", "").startswith("application/json"):
            fields = Fields(await read_body(request, SMALL_BODY))
            path = fields.text("path")
            fields.refuse_others()
            return JSONResponse((await asyncio.to_thread(self._store.in_root, path)).to_dict())
        made = await receive_upload(request, self._store, self._desk.limits)
        self.metrics.uploads.inc(made.size)
        return JSONResponse(made.to_dict())

    async def file(self, request: Request) -> Response:
        """What is known of a file."""
        check_key(request, self._key)
        return JSONResponse(self._store.get(request.path_params["id"]).to_dict())

    async def delete(self, request: Request) -> Response:
        """Delete an upload."""
        check_key(request, self._key)
        name = request.path_params["id"]
        self._store.delete(name)
        await asyncio.to_thread(self._forget, name)
        return JSONResponse({"id": name, "object": "file", "deleted": True})

    def _forget(self, file_id: str) -> None:
        self._desk.cases.forget(file_id)
        if self._view and self._view[0] == file_id:
            self._view = None

    async def root(self, request: Request) -> Response:
        """Paths of the scans under the root."""
        check_key(request, self._key)
        paths = await asyncio.to_thread(self._store.listing)
        return JSONResponse({"root": self._store.root is not None, "scans": paths})

    async def scan(self, request: Request) -> Response:
        """What the page needs to draw a scan; it is prepared if it is not."""
        view = await self._viewed(request)
        return JSONResponse(view.info)

    async def voxels(self, request: Request) -> Response:
        """The small copy's `greys` or `labels`, C order."""
        what = request.path_params["what"]
        if what not in ("greys", "labels"):
            raise Refusal(404, "of a scan there are greys and labels")
        view = await self._viewed(request)
        array = view.greys if what == "greys" else view.labels
        return Response(array.tobytes(), media_type="application/octet-stream")

    async def _viewed(self, request: Request) -> ScanView:
        check_key(request, self._key)
        self._check_open()
        stored = self._store.get(request.path_params["id"])
        if self._view is not None and self._view[0] == stored.id:
            return self._view[1]
        view = await asyncio.to_thread(lambda: scan_view(self._desk.cases.get(stored, None)))
        self._view = stored.id, view
        return view

    async def report(self, request: Request) -> Response:
        """The report of an answer as a page, as long as its scan is kept ready."""
        check_key(request, self._key)
        found = self._desk.cases.report(request.path_params["id"])
        page = await asyncio.to_thread(render, found)
        return HTMLResponse(page, headers=SAVED)

    def _check_open(self) -> None:
        if self._desk.closing:
            raise Refusal(503, "the server is going down", retry_after_s=30)

    async def chat(self, request: Request) -> Response:
        """An answer, whole or round by round."""
        check_key(request, self._key)
        self._check_open()
        started = time.monotonic()
        body = await read_body(request, self._desk.limits.inline)
        most_rounds = self._desk.analyzer.runner.max_rounds
        asked = await asyncio.to_thread(read_question, body, most_rounds)
        del body
        if asked.model != self._name:
            raise Refusal(
                404, f"model: there is no {asked.model!r:.80}, only {self._name}", "model"
            )
        self._desk.check(asked.question)
        file = await asyncio.to_thread(self._stored, asked.scan)
        talk = Talk(self, request, asked, file, started)
        try:
            await talk.begin()
            if asked.stream:
                first = await talk.next()
                return StreamingResponse(talk.chunks(first), media_type="text/event-stream")
            return JSONResponse(await talk.whole())
        except BaseException:
            talk.end()
            raise

    def _stored(self, name: ScanName) -> Stored:
        if name.content:
            return receive_inline(name.content, name.filename, self._store, self._desk.limits)
        if name.path:
            return self._store.in_root(name.path)
        return self._store.get(name.file_id)

    async def submit(self, asked: CTRequest, file: Stored, events: asyncio.Queue[Event]) -> Job:
        """Queue a question; its events come into the queue."""
        loop = asyncio.get_running_loop()

        def tell(event: Event) -> None:
            loop.call_soon_threadsafe(events.put_nowait, event)

        mask = None if asked.mask is None else await asyncio.to_thread(self._stored, asked.mask)
        options = asked.seed, asked.rounds, tell, asked.stream
        return self._desk.submit(file, mask, asked.question, *options)

    def head(self, kind: str) -> dict[str, Any]:
        """Fields that all replies begin with."""
        return {
            "id": self._next_id(),
            "object": kind,
            "created": int(time.time()),
            "model": self._name,
            "system_fingerprint": None,
        }

    def finished(
        self, event: Answered, asked: CTRequest, file: Stored, started: float
    ) -> dict[str, Any]:
        """The metadata of an answer; it is counted."""
        report = public(event.report, file.name)
        made = record(report)
        # A scan that came within its request goes with the reply, and so would the report.
        made["report_id"] = None if asked.scan.content else self._desk.cases.keep(file.id, report)
        outcome = "answered" if made["answered"] else "abstained"
        self.metrics.answers.labels(outcome).inc()
        self.metrics.seconds.observe(time.monotonic() - started)
        return made

    def release(self, asked: CTRequest, file: Stored) -> None:
        """Delete a scan that came within its request."""
        if asked.scan.content and file.id in self._store:
            self._store.delete(file.id)
            self._forget(file.id)
