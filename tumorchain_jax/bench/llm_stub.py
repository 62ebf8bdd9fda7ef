"""A server that answers as told, slowly, wrongly or not at all, and counts what it is asked.

with StubServer(Behaviour(latency_s=0.02, faults={"429": 0.1})) as server:
    endpoint = Endpoint("stub", server.url, "stub-1")
    ...
    assert server.paid == ...

`python -m tumorchain_jax.bench.llm_stub '{"latency_s": 0.02}'` runs one in a process of its own; it
prints its address, and ends with its standard input.
"""

import asyncio
import hashlib
import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

FAULTS = (
    "429", "500", "503", "hang", "disconnect", "broken", "truncated", "prose", "wrong_shape",
    "length",
)  # fmt: skip
"""`broken`: HTTP 200 that is no reply. The last four are replies, and paid for."""
SCHEMA_MARK = "of this schema and with nothing else: "
TOKEN = 4
"""Characters."""


@dataclass
class Behaviour:
    """What a stub does.

    Attributes:
        latency_s: of a reply.
        faults: share of requests by kind, see `FAULTS`.
        retry_after_s: with every 429 and 503; None: no such header.
        capacity: requests at once, above which it says 429; 0: no limit.
        rate: requests a second, above which it says 429; 0: no limit.
        schemas: `json_schema` and `json_object_schema` are enforced as named (and the other one is
            answered with 500); `refuses` says 500 to both; `text` writes prose whenever a format is
            asked for; `ignores` writes JSON of another form.
        status: of every reply; 200: the usual.
        message: of an error.
        key: that a request must bring; empty: none.
        seed: of the faults.
        say: text of a reply by the request; None: JSON of the schema, or a short sentence.
    """

    latency_s: float = 0.0
    faults: Mapping[str, float] = field(default_factory=dict)
    retry_after_s: float | None = 1.0
    capacity: int = 0
    rate: float = 0.0
    schemas: str = "json_schema"
    status: int = 200
    message: str = "as told"
    key: str = ""
    seed: int = 0
    say: Callable[[dict[str, Any]], str] | None = None


class StubServer:
    """A stub in a thread of its own.

    Attributes:
        behaviour: may be changed while it runs.
        asked: bodies of all requests, by their hash.
        paid: hashes of the requests that got a reply, with how often.
        statuses: of all replies.
        tokens: prompt and completion tokens of all paid replies.
        most_at_once: requests that were held at the same time.
    """

    def __init__(self, behaviour: Behaviour | None = None):
        self.behaviour = behaviour or Behaviour()
        self.asked: Counter[str] = Counter()
        self.paid: Counter[str] = Counter()
        self.bodies: dict[str, dict[str, Any]] = {}
        self.statuses: Counter[int] = Counter()
        self.tokens = [0, 0]
        self.at_once = self.most_at_once = 0
        self.url = ""
        self._random = random.Random(self.behaviour.seed)
        self._bucket, self._filled = 1.0, time.monotonic()
        self._ready = threading.Event()

    def __enter__(self) -> "StubServer":
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    @property
    def sent(self) -> int:
        """Requests that came."""
        return self.asked.total()

    def _run(self) -> None:
        asyncio.run(self.serve())

    async def serve(self) -> None:
        """Answer until the end."""
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        self._open: set[asyncio.StreamWriter] = set()
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, backlog=1024)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        self._ready.set()
        await self._end.wait()
        server.close()
        for writer in [*self._open]:
            writer.transport.abort()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                lines = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
                body = json.loads(await reader.readexactly(int(lines["content-length"])))
                self.at_once += 1
                self.most_at_once = max(self.most_at_once, self.at_once)
                try:
                    reply = await self._answer(body, lines.get("authorization", ""))
                finally:
                    self.at_once -= 1
                if not reply:
                    break
                writer.write(reply)
                await writer.drain()
        except (OSError, EOFError, asyncio.CancelledError):
            pass  # the client has gone, or the server ends
        finally:
            self._open.discard(writer)
            writer.close()

    async def _answer(self, body: dict[str, Any], authorization: str) -> bytes:
        told, digest = self.behaviour, _digest(body)
        self.asked[digest] += 1
        self.bodies[digest] = body
        fault = self._fault()
        if told.key and authorization != f"bearer {told.key}".lower():
            return self._error(401, f"incorrect key {authorization}")
        if told.status != 200:
            return self._error(told.status, told.message)
        if fault in ("429", "503") or self._is_full():
            return self._error(503 if fault == "503" else 429, "too many requests")
        if fault == "hang":
            self.at_once -= 1  # it takes none of the capacity, however long it lasts
            try:
                await asyncio.sleep(3600)
            finally:
                self.at_once += 1
        if told.latency_s:
            await asyncio.sleep(told.latency_s)
        if fault == "500":
            return self._error(500, "internal error")
        if fault == "disconnect":
            return b""
        if fault == "broken":
            return self._http(200, b'{"choices": [')
        form = body.get("response_format", {})
        if form.get("type") == "json_schema" and told.schemas in ("json_object_schema", "refuses"):
            return self._error(500, "unknown response_format")
        if "schema" in form and told.schemas in ("json_schema", "refuses"):
            return self._error(500, "unknown response_format")
        text, finish = self._text(body, form), "stop"
        if fault == "truncated":
            text = text[: len(text) // 2]
        elif fault == "prose":
            text = f"Sure! Here is what you asked for:\n{text}\nAnything else?"
        elif fault == "wrong_shape":
            text = '{"unexpected": [1, 2]}'
        elif fault == "length":
            text, finish = text[: len(text) // 2], "length"
        self.paid[digest] += 1
        return self._reply(body, text, finish)

    def _fault(self) -> str:
        drawn = self._random.random()
        for kind, share in self.behaviour.faults.items():
            if (drawn := drawn - share) < 0:
                return kind
        return ""

    def _is_full(self) -> bool:
        told = self.behaviour
        if told.capacity and self.at_once > told.capacity:
            return True
        if not told.rate:
            return False
        now = time.monotonic()
        burst = max(1.0, told.rate / 20)
        self._bucket = min(burst, self._bucket + (now - self._filled) * told.rate)
        self._filled = now
        if self._bucket < 1:
            return True
        self._bucket -= 1
        return False

    def _text(self, body: dict[str, Any], form: Mapping[str, Any]) -> str:
        told = self.behaviour
        if told.say is not None:
            return told.say(body)
        schema = form.get("schema") or form.get("json_schema", {}).get("schema")
        if schema is not None:
            if told.schemas == "text":
                return "I like green, as it is calm."
            if told.schemas == "ignores":
                return '{"colour": "green"}'
            return json.dumps(instance(schema))
        system = body["messages"][0]["content"]
        if isinstance(system, str) and SCHEMA_MARK in system:
            return json.dumps(instance(json.loads(system.split(SCHEMA_MARK)[1])))
        return "I like green, as it is calm."

    def _reply(self, body: dict[str, Any], text: str, finish: str) -> bytes:
        prompt, completion = len(json.dumps(body["messages"])) // TOKEN, len(text) // TOKEN + 1
        self.tokens[0] += prompt
        self.tokens[1] += completion
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": text},
            "finish_reason": finish,
        }
        usage = {"prompt_tokens": prompt, "completion_tokens": completion}
        usage["total_tokens"] = prompt + completion
        reply = {
            "id": "stub",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [choice],
            "usage": usage,
        }
        return self._http(200, json.dumps(reply).encode())

    def _error(self, status: int, message: str) -> bytes:
        content = json.dumps({"error": {"message": message, "type": "stub"}}).encode()
        asks = status in (429, 503) and self.behaviour.retry_after_s is not None
        return self._http(status, content, self.behaviour.retry_after_s if asks else None)

    def _http(self, status: int, content: bytes, retry_after_s: float | None = None) -> bytes:
        self.statuses[status] += 1
        extra = "" if retry_after_s is None else f"Retry-After: {retry_after_s:g}\r\n"
        head = f"HTTP/1.1 {status} Stub\r\nContent-Type: application/json\r\n{extra}"
        return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def instance(schema: Mapping[str, Any]) -> Any:
    """A value of a closed schema, always the same."""
    if "enum" in schema:
        return schema["enum"][0]
    if "anyOf" in schema:
        return instance(schema["anyOf"][0])
    kind = schema.get("type")
    if kind == "object":
        return {name: instance(each) for name, each in schema["properties"].items()}
    if kind == "array":
        return [instance(schema["items"])] * max(1, schema.get("minItems", 0))
    simple = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "null": None}
    return simple[str(kind)]


async def _until_input_ends(server: StubServer) -> None:
    serving = asyncio.create_task(server.serve())
    while not server.url:
        await asyncio.sleep(0.01)
    print(server.url, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    counts = {"sent": server.sent, "paid": server.paid.total(), "tokens": server.tokens}
    print(json.dumps(counts | {"statuses": server.statuses}), flush=True)
    serving.cancel()


if __name__ == "__main__":
    asyncio.run(_until_input_ends(StubServer(Behaviour(**json.loads(sys.argv[1])))))
