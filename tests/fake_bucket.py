"""A bucket of Google Cloud Storage in memory, behind the JSON API that gcsfs and TensorStore use.

python tests/fake_bucket.py PORT
"""

import base64
import hashlib
import json
import re
import sys
from contextlib import suppress
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

OBJECTS: dict[str, dict[str, tuple[bytes, int]]] = {}
"""Bucket -> name -> content and generation."""
UPLOADS: dict[str, tuple[str, str, bytes]] = {}
LOCK = Lock()
COUNT = iter(range(1, 10**9))


def resource(bucket: str, name: str) -> dict[str, Any]:
    content, generation = OBJECTS[bucket][name]
    return {
        "kind": "storage#object",
        "name": name,
        "bucket": bucket,
        "size": str(len(content)),
        "generation": str(generation),
        "metageneration": "1",
        "timeCreated": "2026-01-01T00:00:00.000Z",
        "updated": f"2026-01-01T{generation // 3600 % 24:02d}:{generation // 60 % 60:02d}:"
        f"{generation % 60:02d}.000Z",
        "md5Hash": base64.b64encode(hashlib.md5(content).digest()).decode(),
        "etag": str(generation),
        "contentType": "application/octet-stream",
    }


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        return

    def reply(self, code: int, body: bytes | dict = b"", **headers: str) -> None:
        content = json.dumps(body).encode() if isinstance(body, dict) else body
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            with suppress(BrokenPipeError):  # a reader that was killed
                self.wfile.write(content)

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def handle_request(self) -> None:
        url, body = urlsplit(self.path), self.body()
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        with LOCK:
            self.answer(url.path, query, body)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = handle_request

    def answer(self, path: str, query: dict[str, str], body: bytes) -> None:
        if upload := query.get("upload_id"):
            return self.resume(upload, body)
        if match := re.fullmatch(r"/(?:resumable/)?upload/storage/v1/b/([^/]+)/o", path):
            return self.insert(match[1], query, body)
        if match := re.fullmatch(r"/storage/v1/b/([^/]+)/o/(.+)/rewriteTo/b/([^/]+)/o/(.+)", path):
            source, target = (unquote(match[1]), unquote(match[2])), (match[3], unquote(match[4]))
            if source[1] not in OBJECTS.get(source[0], {}):
                return self.reply(404, {"error": {"code": 404, "message": "Not Found"}})
            self.store(*target, OBJECTS[source[0]][source[1]][0])
            return self.reply(200, {"done": True, "resource": resource(*target)})
        if match := re.fullmatch(r"(?:/download)?/storage/v1/b/([^/]+)/o/(.+)", path):
            return self.object(match[1], unquote(match[2]), query)
        if match := re.fullmatch(r"/storage/v1/b/([^/]+)/o/?", path):
            return self.list(match[1], query)
        if match := re.fullmatch(r"/storage/v1/b/([^/]+)", path):
            return self.reply(200, {"kind": "storage#bucket", "name": match[1]})
        return self.reply(404, {"error": {"code": 404, "message": f"Not Found: {path}"}})

    def store(self, bucket: str, name: str, content: bytes) -> None:
        OBJECTS.setdefault(bucket, {})[name] = content, next(COUNT)

    def insert(self, bucket: str, query: dict[str, str], body: bytes) -> None:
        kind, name = query.get("uploadType", "media"), query.get("name", "")
        if kind == "multipart":
            head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
            parts: Any = message_from_bytes(head + body).get_payload()
            name = name or json.loads(parts[0].get_payload())["name"]
            # The e-mail parser would change the line ends of binary content.
            mark = re.search(rb'boundary="?([^";]+)', self.headers["Content-Type"].encode())
            assert mark is not None
            second = body.split(b"--" + mark[1])[2]
            content = re.split(rb"\r?\n\r?\n", second, maxsplit=1)[1]
            content = re.sub(rb"\r?\n\Z", b"", content, count=1)
        elif kind == "resumable":
            name = name or json.loads(body)["name"]
            upload = str(next(COUNT))
            UPLOADS[upload] = bucket, name, b""
            host = self.headers["Host"]
            return self.reply(200, Location=f"http://{host}/upload?upload_id={upload}")
        else:
            content = body
        if query.get("ifGenerationMatch") == "0" and name in OBJECTS.get(bucket, {}):
            return self.reply(412, {"error": {"code": 412, "message": "exists"}})
        self.store(bucket, name, content)
        return self.reply(200, resource(bucket, name))

    def resume(self, upload: str, body: bytes) -> None:
        bucket, name, before = UPLOADS[upload]
        content = before + body
        total = (self.headers.get("Content-Range") or "/*").rpartition("/")[2]
        if total == "*" or len(content) < int(total):
            UPLOADS[upload] = bucket, name, content
            return self.reply(308, Range=f"bytes=0-{len(content) - 1}")
        self.store(bucket, name, content)
        return self.reply(200, resource(bucket, name))

    def object(self, bucket: str, name: str, query: dict[str, str]) -> None:
        if name not in OBJECTS.get(bucket, {}):
            return self.reply(404, {"error": {"code": 404, "message": "Not Found"}})
        if self.command == "DELETE":
            del OBJECTS[bucket][name]
            return self.reply(204)
        if query.get("alt") != "media":
            return self.reply(200, resource(bucket, name))
        content, generation = OBJECTS[bucket][name]
        extra = {"x-goog-generation": str(generation), "ETag": str(generation)}
        span = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range") or "")
        if span is None:
            return self.reply(200, content, **extra)
        size = len(content)
        start = int(span[1]) if span[1] else size - int(span[2])
        stop = min(int(span[2]) + 1, size) if span[1] and span[2] else size
        if start >= size:
            return self.reply(416, Content_Range=f"bytes */{size}")
        extra["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
        return self.reply(206, content[start:stop], **extra)

    def list(self, bucket: str, query: dict[str, str]) -> None:
        prefix, mark = query.get("prefix", ""), query.get("delimiter", "")
        items, folders = [], set()
        for name in sorted(OBJECTS.get(bucket, {})):
            if not name.startswith(prefix) or name < query.get("startOffset", ""):
                continue
            if query.get("endOffset") and name >= query["endOffset"]:
                continue
            first, found, _ = name[len(prefix) :].partition(mark) if mark else (name, "", "")
            if found:
                folders.add(prefix + first + mark)
            else:
                items.append(resource(bucket, name))
        self.reply(200, {"kind": "storage#objects", "items": items, "prefixes": sorted(folders)})


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()
