"""Benchmark of the client for language models against a bare loop on the same stub server."""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from tumorchain_jax.llm.client import Client
from tumorchain_jax.llm.endpoint import Endpoint
from tumorchain_jax.llm.request import Message, Request

IN_FLIGHT = 64
FAULTS = {
    "429": 0.08, "500": 0.06, "disconnect": 0.03, "hang": 0.01, "broken": 0.02, "truncated": 0.05,
    "prose": 0.03, "length": 0.02,
}  # fmt: skip
"""Thirty of a hundred replies."""
CAPACITY, LATENCY_S, TIMEOUT_S = 16, 0.1, 2.0
"""Of the server that breaks them."""


def bench_llm(calls: int = 2000, faulty: int = 3000) -> dict[str, float]:
    """Measure calls a second, and good replies a second from a server that breaks 30 %.

    The reference of the first is a loop of bare httpx2 calls, as many in flight, that keeps
    nothing; the one of the second as many bare calls as the server takes at once, each sent again
    at once if it fails: what the server itself can give.
    """
    with _stub({"latency_s": 0.02}) as url:
        bare_s = asyncio.run(_bare(url, calls, IN_FLIGHT))
        ours_s, _ = asyncio.run(_ours(url, calls, IN_FLIGHT))
    told = {"latency_s": LATENCY_S, "faults": FAULTS, "capacity": CAPACITY, "retry_after_s": 1.0}
    with _stub(told) as url:
        limit_s = asyncio.run(_bare(url, faulty, CAPACITY))
    with _stub(told) as url:
        faulty_s, ended = asyncio.run(_ours(url, faulty, IN_FLIGHT))
    return {
        "calls a second": calls / ours_s,
        "calls of a bare loop a second": calls / bare_s,
        "calls, share of the bare loop's": bare_s / ours_s,
        "30 % faults: good replies a second": ended["done"] / faulty_s,
        "30 % faults: what the server can give a second": faulty / limit_s,
        "30 % faults: share of the server's own limit": ended["done"] / faulty_s * limit_s / faulty,
        "30 % faults: exchanges a request": ended["sent"] / faulty,
        "30 % faults: set aside": ended["set aside"],
    }


@contextmanager
def _stub(behaviour: dict[str, Any]) -> Iterator[str]:
    """A stub in a process of its own; yields its address."""
    command = [sys.executable, "-m", "tumorchain_jax.bench.llm_stub", json.dumps(behaviour)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.communicate()


async def _bare(url: str, calls: int, in_flight: int) -> float:
    """Seconds of `calls` good replies with nothing but httpx2."""
    numbers = iter(range(calls))
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    started = time.perf_counter()
    async with httpx2.AsyncClient(trust_env=False, limits=limits, timeout=TIMEOUT_S) as client:

        async def work() -> None:
            for number in numbers:
                turns = [{"role": "user", "content": f"question {number}"}]
                body = {"model": "stub-1", "messages": turns, "max_tokens": 64}
                while not await _is_good(client, f"{url}/chat/completions", body):
                    pass

        await asyncio.gather(*(work() for _ in range(in_flight)))
    return time.perf_counter() - started


async def _is_good(client: httpx2.AsyncClient, url: str, body: dict[str, Any]) -> bool:
    try:
        reply = (await client.post(url, json=body)).json()
        choice = reply["choices"][0]
    except (httpx2.HTTPError, ValueError, LookupError):
        return False
    text = choice["message"]["content"]
    return choice["finish_reason"] == "stop" and text.startswith("I like") and text.endswith(".")


async def _ours(url: str, calls: int, in_flight: int) -> tuple[float, dict[str, int]]:
    """Seconds of `calls` requests with the client, and how they ended."""
    endpoint = Endpoint(
        "stub", url, "stub-1", concurrency=in_flight, timeout_s=TIMEOUT_S, deadline_s=120.0
    )
    requests = (Request((Message("user", f"question {number}"),)) for number in range(calls))
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        async with Client(endpoint, Path(folder) / "replies.sqlite") as client:
            async for _ in client.stream(requests):
                pass
            ledger = client.ledger
        seconds = time.perf_counter() - started
    ended = {"done": ledger.done, "sent": ledger.sent, "set aside": ledger.set_aside.total()}
    return seconds, ended
