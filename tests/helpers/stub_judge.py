"""An OpenAI-compatible server on loopback that judges as it is told, and counts its calls."""

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tumorchain_jax.evaluation.chain.rubric import DIMENSIONS

Answer = Callable[[dict[str, Any], int], tuple[int, bytes]]
"""(request, times that this very request came before) -> status and body."""


def judgement(marks: dict[str, Any], agrees: bool = True, total: Any = None) -> str:
    """The JSON of a reply with these marks."""
    names = ("s1_finding", "s2_impression", "s3_reasoning")
    levels = zip(names, DIMENSIONS.values(), strict=True)
    scoring = {name: {each: marks[each] for each in level} for name, level in levels}
    total = sum(marks.values()) if total is None else total
    return json.dumps(
        {"conclusion_agrees": agrees, "scoring": scoring, "overall_score": f"{total}/100"}
    )


def completion(text: str, finish: str = "stop", **message: Any) -> tuple[int, bytes]:
    """A whole reply of the API."""
    choice = {
        "index": 0,
        "finish_reason": finish,
        "message": {"role": "assistant", "content": text, **message},
    }
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    body = {"id": "x", "object": "chat.completion", "model": "stub", "choices": [choice]}
    return 200, json.dumps({**body, "usage": usage}).encode()


@contextmanager
def stub(answer: Answer) -> Iterator[tuple[str, Counter[str]]]:
    """Serve; yields the base URL and how often each request came."""
    calls: Counter[str] = Counter()
    guard = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            key = json.dumps(asked, sort_keys=True)
            with guard:
                before = calls[key]
                calls[key] += 1
            status, body = answer(asked, before)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", calls
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
