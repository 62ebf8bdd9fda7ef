"""A local server of files that resumes downloads and can break off, and a stand-in of the hub."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest


@dataclass
class Files:
    """What a server has, and what it was asked.

    Attributes:
        content: by path.
        cut: break off after so many bytes of a reply; None: never.
        asked: method, path and Range header of each request.
    """

    url: str = ""
    content: dict[str, bytes] = field(default_factory=dict)
    cut: int | None = None
    asked: list[tuple[str, str, str]] = field(default_factory=list)

    def put_repository(self, repo: str, commit: str, files: dict[str, bytes], **card: str) -> None:
        """Serve a repository as the Hugging Face Hub does, under `main` and its commit."""
        siblings = []
        for name, content in files.items():
            sha256 = hashlib.sha256(content).hexdigest()
            entry = {"rfilename": name, "size": len(content), "blobId": sha256[:40]}
            if name.endswith((".safetensors", ".bin")):
                entry["lfs"] = {"sha256": sha256, "size": len(content), "pointerSize": 134}
            siblings.append(entry)
            self.content[f"/{repo}/resolve/{commit}/{name}"] = content
        about = {"id": repo, "modelId": repo, "sha": commit, "siblings": siblings}
        about |= {"private": False, "tags": [], "downloads": 0, "likes": 0, "cardData": card}
        for path in (
            f"/api/models/{repo}",
            *(f"/api/models/{repo}/revision/{r}" for r in (commit, "main")),
        ):
            self.content[path] = json.dumps(about).encode()
        tree = [
            {
                "type": "file",
                "path": each["rfilename"],
                "size": each["size"],
                "oid": each["blobId"],
                **({"lfs": {**each["lfs"], "oid": each["lfs"]["sha256"]}} if "lfs" in each else {}),
            }
            for each in siblings
        ]
        self.content[f"/api/models/{repo}/tree/{commit}"] = json.dumps(tree).encode()


def use_hub(patch: pytest.MonkeyPatch, url: str, cache: Path) -> None:
    """Let huggingface_hub take a server for the hub, with a cache of its own."""
    from huggingface_hub import constants
    from huggingface_hub.utils import close_session

    patch.setattr(constants, "ENDPOINT", url)
    patch.setattr(constants, "HF_HUB_CACHE", str(cache))
    template = url + "/{repo_id}/resolve/{revision}/{filename}"
    patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    close_session()


@contextmanager
def served() -> Iterator[Files]:
    """Serve files on a free port for a while."""
    files = Files()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self._reply(with_body=False)

        def do_GET(self) -> None:
            self._reply(with_body=True)

        def _reply(self, with_body: bool) -> None:
            path, wanted = urlsplit(self.path).path, self.headers.get("Range", "")
            files.asked.append((self.command, path, wanted))
            content = files.content.get(path)
            if content is None:
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            tag = f'"{hashlib.sha256(content).hexdigest()}"'
            start = 0
            if wanted and self.headers.get("If-Range", tag) == tag:
                start = int(wanted.removeprefix("bytes=").split("-")[0])
            if start >= len(content) and start:
                self.send_response(416)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header(
                    "Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}"
                )
            self.send_header("Content-Length", str(len(content) - start))
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("ETag", tag)
            if "/resolve/" in path:
                self.send_header("X-Repo-Commit", path.split("/")[4])
            if path.startswith("/api/"):
                self.send_header("Content-Type", "application/json")
            self.end_headers()
            if with_body:
                body = content[start:]
                if files.cut is not None and len(body) > files.cut:
                    self.wfile.write(body[: files.cut])
                    self.wfile.flush()
                    self.close_connection = True
                    self.connection.shutdown(2)
                    return
                self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    files.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield files
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
