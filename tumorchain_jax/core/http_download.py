"""Large files over HTTP: resumed where a download was stopped, checked, whole or not there."""

import hashlib
import json
from pathlib import Path

import httpx2
from tqdm import tqdm

from tumorchain_jax.core.downloads import NotAvailable
from tumorchain_jax.core.files import locked, write_file

TIMEOUT = httpx2.Timeout(30.0, read=120.0)
RANGE_NOT_SATISFIABLE, PARTIAL = 416, 206


def fetch(url: str, path: Path, size: int | None = None, sha256: str | None = None) -> str:
    """Download a file, or go on with the download of an earlier call; returns its SHA-256.

    What has come so far is in a hidden file beside `path`, with the server's version tag: another
    version is downloaded from the start.

    Args:
        size: in bytes; None if unknown.
        sha256: it must have; None if unknown.

    Raises:
        NotAvailable: the server cannot be reached or refuses, or the file is another one.
        InputError: another process downloads the same file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part, tag = path.with_name(f".{path.name}.part"), path.with_name(f".{path.name}.tag")
    with locked(path.with_name(f".{path.name}.lock"), path):
        try:
            _receive(url, part, tag, path.name)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            why = str(error) or type(error).__name__
            raise NotAvailable(f"{url} could not be downloaded: {why}") from error
        found = hash_file(part)
        wrong = sha256 is not None and found != sha256
        if wrong or (size is not None and part.stat().st_size != size):
            was = f"{part.stat().st_size} bytes of SHA-256 {found[:12]}..."
            part.unlink()
            tag.unlink(missing_ok=True)
            expected = f"{size} bytes" if not wrong else f"SHA-256 {str(sha256)[:12]}..."
            raise NotAvailable(f"{url} is another file now: {was} for {expected}")
        part.replace(path)
        tag.unlink(missing_ok=True)
    return found


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _receive(url: str, part: Path, tag: Path, name: str) -> None:
    """Append what is missing to `part`.

    Raises:
        httpx2.HTTPError: the connection fails, or ends before all has come.
    """
    there = part.stat().st_size if part.is_file() else 0
    version = json.loads(tag.read_text()) if there and tag.is_file() else None
    headers = {"Accept-Encoding": "identity"}
    if there and version:
        headers |= {"Range": f"bytes={there}-", "If-Range": version}
    with httpx2.stream(
        "GET", url, headers=headers, follow_redirects=True, timeout=TIMEOUT
    ) as reply:
        if reply.status_code == RANGE_NOT_SATISFIABLE and there:
            return  # all has come; what it is worth is checked by the caller
        reply.raise_for_status()
        resumed = reply.status_code == PARTIAL
        there = there if resumed else 0
        version = reply.headers.get("etag") or reply.headers.get("last-modified")
        write_file(tag, json.dumps(version).encode())
        left = int(reply.headers.get("content-length") or 0)
        with (
            part.open("ab" if resumed else "wb") as file,
            tqdm(
                desc=name,
                initial=there,
                total=there + left or None,
                unit="B",
                unit_scale=True,
                disable=None,
            ) as bar,
        ):
            for piece in reply.iter_bytes():  # as it comes, so that a half is kept
                file.write(piece)
                bar.update(len(piece))
