"""One HTTP exchange with an endpoint, and what it means."""

import asyncio
import email.utils
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import httpx2

from tumorchain_jax.core.text import printable
from tumorchain_jax.llm.endpoint import Endpoint

LARGEST_BODY = 16 << 20
SHOWN = 160
"""Characters of a server's message that are shown."""
LOAD = {429, 503, 529}


@dataclass(frozen=True)
class Answered:
    """HTTP 200 with a reply in it.

    Attributes:
        text: the message; empty if it has none.
        refusal: whether the model declined.
        usage: prompt and completion tokens; None where the server does not count.
        logprobs: as given, as JSON; empty without.
    """

    text: str
    finish_reason: str
    model: str
    usage: tuple[int, int] | None
    refusal: bool
    logprobs: str
    latency_s: float


@dataclass(frozen=True)
class Again:
    """A fault that may pass.

    Attributes:
        fault: what it was.
        is_load: whether the server turned the call away.
        after_s: what the server asks to wait; None if it says nothing.
        maybe_paid: whether the server may have done the work.
    """

    fault: str
    is_load: bool = False
    after_s: float | None = None
    maybe_paid: bool = False


@dataclass(frozen=True)
class Refused:
    """A 3xx or 4xx: the same call would be refused again.

    Attributes:
        status: of HTTP.
        message: of the server.
    """

    status: int
    message: str


Outcome: TypeAlias = Answered | Again | Refused


class Transport:
    """Sends calls to an endpoint.

    Args:
        endpoint: where to.
        key: sent as a bearer token; taken out of everything that comes back.
    """

    def __init__(self, endpoint: Endpoint, key: str):
        self._endpoint, self._key = endpoint, key
        self._headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        # One connection each: a pool looks at all its connections for every call.
        self._clients: list[httpx2.AsyncClient] = []
        self._free: list[httpx2.AsyncClient] = []
        self._verify = httpx2.create_ssl_context()  # making one takes as long as many calls
        self._url = httpx2.URL(f"{endpoint.url.rstrip('/')}/chat/completions")

    async def close(self) -> None:
        """Close all connections."""
        for client in self._clients:
            await client.aclose()

    def _new_client(self) -> httpx2.AsyncClient:
        client = httpx2.AsyncClient(
            headers=self._headers,
            timeout=None,  # one clock: see `send`
            verify=self._verify,
            # A proxy of the environment must not see calls within this machine.
            trust_env=not self._endpoint.is_loopback,
        )
        self._clients.append(client)
        return client

    async def send(self, body: Mapping[str, Any], timeout_s: float) -> Outcome:
        """Send a call and wait for its reply, at most `timeout_s`."""
        client = self._free.pop() if self._free else self._new_client()
        request = client.build_request("POST", self._url, content=json.dumps(body).encode())
        started = time.perf_counter()
        try:
            async with asyncio.timeout(timeout_s):
                response = await client.send(request, stream=True)
                try:
                    raw = await _read(response)
                finally:
                    await response.aclose()
        except TimeoutError:
            return Again(f"no reply within {timeout_s:.3g} s", maybe_paid=True)
        except httpx2.ConnectError as error:
            return Again(f"no connection ({self._clean(str(error))})")
        except httpx2.HTTPError as error:
            fault = f"connection lost ({type(error).__name__})"
            return Again(fault, maybe_paid=True)
        finally:
            self._free.append(client)
        if raw is None:
            return Refused(response.status_code, f"a reply of more than {LARGEST_BODY} bytes")
        latency = time.perf_counter() - started
        if response.status_code == 200:
            return self._read_reply(raw, latency)
        message = self._clean(_message(raw))
        status = response.status_code
        if status in LOAD:
            return Again(f"HTTP {status} {message}", True, _retry_after(response.headers))
        if status >= 500 or status in (408, 409, 425):
            return Again(f"HTTP {status} {message}", False, _retry_after(response.headers))
        return Refused(status, message)

    def _read_reply(self, raw: bytes, latency_s: float) -> Outcome:
        broken = Again("HTTP 200 without a reply in it", maybe_paid=True)
        try:
            body = json.loads(raw)
            choice = body["choices"][0]
            message = choice["message"]
            text, refusal = message.get("content"), message.get("refusal")
            finish, model = choice.get("finish_reason"), body.get("model")
            if not isinstance(text, str | None):
                return broken
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
            return broken
        logprobs = choice.get("logprobs")
        return Answered(
            self._without_key(_encodable(text or "")),
            finish if isinstance(finish, str) else "",
            self._clean(model) if isinstance(model, str) else "",
            _usage(body.get("usage")),
            bool(refusal),
            json.dumps(logprobs) if isinstance(logprobs, dict) else "",
            latency_s,
        )

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "[key]") if self._key else text

    def _clean(self, text: str) -> str:
        return printable(self._without_key(text), allowed="")[:SHOWN].strip()


async def _read(response: httpx2.Response) -> bytes | None:
    """The body; None if it is too long."""
    parts, size = [], 0
    async for part in response.aiter_raw():
        size += len(part)
        if size > LARGEST_BODY:
            return None
        parts.append(part)
    return b"".join(parts)


def _message(raw: bytes) -> str:
    """What an error's body says."""
    text = raw[: 1 << 16].decode("utf-8", "replace")
    try:
        error = json.loads(text).get("error")
    except (ValueError, RecursionError, AttributeError):
        return text
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        return error["message"]
    return error if isinstance(error, str) else text


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds of the header, which may be a number or a date."""
    value = headers.get("retry-after", "").strip()
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return seconds if 0 <= seconds < float("inf") else None


def _usage(value: object) -> tuple[int, int] | None:
    if not isinstance(value, dict):
        return None
    prompt: Any = value.get("prompt_tokens")
    completion: Any = value.get("completion_tokens", 0)
    return (prompt, completion) if _is_count(prompt) and _is_count(completion) else None


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 40


def _encodable(text: str) -> str:
    """The text without lone surrogates, which no file can hold."""
    return text.encode("utf-8", "replace").decode()
