"""Clients of a server of CTs, and a server in a thread."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import uvicorn
from openai import OpenAI
from starlette.applications import Starlette

from tumorchain_jax.serve.connection import TimedConnection

WHERE = "Where is the tumour in this CT?"


class InThread(uvicorn.Server):
    """A server in a thread."""

    def install_signal_handlers(self) -> None:
        """Signals are the main thread's."""


@contextmanager
def serving(app: Starlette) -> Iterator[str]:
    """Serve an application on this machine; gives its address."""
    config = uvicorn.Config(app, port=0, log_level="error", lifespan="off", http=TimedConnection)
    server = InThread(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def get(address: str, **options: Any) -> httpx2.Response:
    return httpx2.get(address, timeout=60, trust_env=False, **options)


def upload(url: str, content: bytes, name: str = "scan.nii.gz") -> httpx2.Response:
    files = {"file": (name, content)}
    data = {"purpose": "user_data"}
    return httpx2.post(f"{url}/v1/files", files=files, data=data, timeout=60, trust_env=False)


def question(file: dict[str, str], text: str = WHERE, **fields: Any) -> dict[str, Any]:
    """The body of a request."""
    content = [{"type": "text", "text": text}, {"type": "file", "file": file}]
    return {"model": "nano", "messages": [{"role": "user", "content": content}], **fields}


def ask(url: str, file: dict[str, str], text: str = WHERE, **fields: Any) -> httpx2.Response:
    body = question(file, text, **fields)
    address = f"{url}/v1/chat/completions"
    return httpx2.post(address, json=body, timeout=120, trust_env=False)


def by_path(number: int) -> dict[str, Any]:
    """Fields that name a patient by path, with the label map."""
    mask = {"mask": f"p{number}/labels.nii.gz"}
    return {"file": {"path": f"p{number}/ct.nii.gz"}, "metadata": mask}


def client_of(url: str, key: str = "none") -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key=key, http_client=httpx2.Client(trust_env=False))
