"""Uploads: a multipart form to a file in the private folder, or base64 in a request."""

import asyncio
import base64
import binascii
import email.parser
import email.policy
import mmap
import shutil
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path

from starlette.requests import Request

from tumorchain_jax.serve.ct.limits import Limits
from tumorchain_jax.serve.ct.scan_file import check_scan_file
from tumorchain_jax.serve.ct.store import Store, Stored
from tumorchain_jax.serve.refusal import Refusal

MOST_PARTS, MOST_HEADERS = 8, 4096


@dataclass(frozen=True)
class Part:
    """A part of a multipart body: its names, and where its content lies."""

    field: str
    filename: str
    start: int
    end: int


async def receive_upload(request: Request, store: Store, limits: Limits) -> Stored:
    """Receive the `file` of a multipart form; nothing of it is left if it is refused.

    Raises:
        Refusal: (400) no such form or no scan; (408, 413) too slow or large; (429) no room.
    """
    store.check_room()
    if int(request.headers.get("content-length", "0") or 0) > limits.upload:
        raise _too_large(limits)
    kind = request.headers.get("content-type", "")
    body = store.scratch()
    try:
        await _to_file(request, body, limits)
        return await asyncio.to_thread(_keep, body, kind, store, limits)
    finally:
        body.unlink(missing_ok=True)


async def _to_file(request: Request, path: Path, limits: Limits) -> None:
    size = 0
    try:
        with path.open("xb") as file:
            async with asyncio.timeout(limits.upload_s):
                async for chunk in request.stream():
                    size += len(chunk)
                    if size > limits.upload:
                        raise _too_large(limits)
                    await asyncio.to_thread(file.write, chunk)
    except TimeoutError:
        raise Refusal(408, f"the upload did not come within {limits.upload_s:.0f} s") from None


def _too_large(limits: Limits) -> Refusal:
    return Refusal(413, f"the upload has more than {limits.upload} bytes", "file")


def _keep(body: Path, kind: str, store: Store, limits: Limits) -> Stored:
    files = [part for part in read_parts(body, kind) if part.field == "file"]
    if len(files) != 1:
        raise Refusal(400, f"file: the form has {len(files)} parts of this name, not one", "file")
    path = store.scratch()
    try:
        with body.open("rb") as source, path.open("xb") as target:
            source.seek(files[0].start)
            left = files[0].end - files[0].start
            while left > 0 and (chunk := source.read(min(left, 1 << 20))):
                target.write(chunk)
                left -= len(chunk)
        return keep_scan(path, files[0].filename, store, limits)
    finally:
        path.unlink(missing_ok=True)


def read_parts(body: Path, kind: str) -> list[Part]:
    """Find the parts of a multipart body in a file (RFC 7578).

    Args:
        kind: the header Content-Type.

    Raises:
        Refusal: (400) it is no such body.
    """
    header = _headers(f"content-type: {kind}".encode())
    boundary = header.get_boundary()
    if header.get_content_type() != "multipart/form-data" or not boundary:
        raise Refusal(400, "the body is no multipart/form-data with a boundary")
    mark = b"--" + boundary.encode()
    parts: list[Part] = []
    if body.stat().st_size == 0:
        raise Refusal(400, "the body is empty")
    with body.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[: len(mark)] != mark:
            raise Refusal(400, "the body does not begin with its boundary")
        at = len(mark)
        while data[at : at + 2] == b"\r\n":
            start = data.find(b"\r\n\r\n", at, at + MOST_HEADERS)
            end = data.find(b"\r\n" + mark, start + 2)
            if start < 0 or end < 0 or len(parts) == MOST_PARTS:
                raise Refusal(400, "the multipart body is cut off, or has too many parts")
            named = _headers(bytes(data[at + 2 : start]))
            field = named.get_param("name", "", header="content-disposition")
            parts.append(
                Part(str(field), named.get_filename("scan"), start + 4, max(start + 4, end))
            )
            at = end + 2 + len(mark)
        if data[at : at + 2] != b"--":
            raise Refusal(400, "the multipart body is cut off")
    return parts


def _headers(lines: bytes) -> EmailMessage:
    policy = email.policy.HTTP
    parsed = email.parser.BytesParser(EmailMessage, policy=policy).parsebytes(lines + b"\r\n\r\n")
    return parsed


def receive_inline(content: str, name: str, store: Store, limits: Limits) -> Stored:
    """Keep a scan that came as base64, or as a data URL.

    Raises:
        Refusal: as `receive_upload`.
    """
    store.check_room()
    coded = content.partition(",")[2] if content.startswith("data:") else content
    path = store.scratch()
    try:
        path.write_bytes(base64.b64decode(coded, validate=True))
        return keep_scan(path, name, store, limits)
    except (binascii.Error, ValueError):
        raise Refusal(400, "file_data: is no base64", "file_data") from None
    finally:
        path.unlink(missing_ok=True)


def keep_scan(path: Path, name: str, store: Store, limits: Limits) -> Stored:
    """Move a scan of the private folder into the store, once it is checked."""
    ending = check_scan_file(path, limits)
    kept = path.with_name(path.name + ending)
    shutil.move(path, kept)
    return store.add(kept, name)
