"""Scans that may be asked about: uploads in a private folder, and files under `--root`."""

import fcntl
import os
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from tumorchain_jax.serve.refusal import Refusal

MOST_UPLOADS = 64
MOST_LISTED, MOST_VISITED = 500, 20_000
ENDINGS = (".nii.gz", ".nii", ".zip")
MOST_NAME = 120
PREFIX, HELD = "tumorchain-serve-", "held"
"""Of the private folder; the file in it that its server locks."""
SWEEP_S = 20.0


@dataclass(frozen=True)
class Stored:
    """A file that can be named in requests.

    Attributes:
        id: nobody can guess it.
        path: of this machine; it is never told to clients.
        name: for people: of the upload, or the path under the root.
        expires: seconds since the epoch; None for a file under the root.
    """

    id: str
    path: Path
    name: str
    size: int
    created: float
    expires: float | None

    def to_dict(self) -> dict[str, Any]:
        """As OpenAI's `file` object."""
        return {
            "id": self.id,
            "object": "file",
            "bytes": self.size,
            "created_at": int(self.created),
            "expires_at": None if self.expires is None else int(self.expires),
            "filename": self.name,
            "purpose": "user_data",
        }


class Store:
    """Uploads, each in the private folder until it expires, and the scans under the root.

    Args:
        root: of the scans that requests may name by path; None: no path is read.
        keep_s: seconds until an upload is deleted.
        most_bytes: of all uploads together.
    """

    def __init__(self, root: Path | None, keep_s: float, most_bytes: int):
        self.root = None if root is None else root.resolve()
        self.keep_s, self.most_bytes = keep_s, most_bytes
        self._files: dict[str, Stored] = {}
        self._lock = threading.Lock()
        _clear_abandoned()
        self._base = Path(tempfile.mkdtemp(prefix=PREFIX))  # for its owner alone
        self._held = (self._base / HELD).open("w")
        fcntl.flock(self._held, fcntl.LOCK_EX)
        self.folder = self._base / "uploads"
        self.folder.mkdir(mode=0o700)
        self._closed = threading.Event()
        threading.Thread(target=self._sweep_all, name="uploads", daemon=True).start()

    def scratch(self) -> Path:
        """A path in the private folder that nothing has yet."""
        return self.folder / secrets.token_hex(16)

    def check_room(self) -> None:
        """Raise Refusal (429) if no further upload can be kept."""
        self.sweep()
        with self._lock:
            uploads = [each for each in self._files.values() if each.expires is not None]
        if len(uploads) >= MOST_UPLOADS or sum(each.size for each in uploads) >= self.most_bytes:
            message = "too many uploads are kept: delete some, or come back later"
            raise Refusal(429, message, retry_after_s=min(60, max(1, int(self.keep_s))))

    def add(self, path: Path, name: str) -> Stored:
        """Keep a file of the private folder."""
        now = time.time()
        size = path.stat().st_size
        made = Stored(_new_id(), path, shown(name), size, now, now + self.keep_s)
        with self._lock:
            self._files[made.id] = made
        return made

    def get(self, file_id: str) -> Stored:
        """The file of an id.

        Raises:
            Refusal: (404) there is none, or not any more.
        """
        self.sweep()
        with self._lock:
            found = self._files.get(file_id)
        if found is None:
            raise Refusal(404, "there is no such file, or not any more", "file_id")
        return found

    def in_root(self, path: str) -> Stored:
        """The file or folder of a path under the root.

        Raises:
            Refusal: (403) it leads out of the root, or there is no root; (404) nothing is there.
        """
        if self.root is None:
            raise Refusal(403, "path: the server was started without --root", "path")
        try:
            found = (self.root / path).resolve(strict=True)
        except (OSError, ValueError, RuntimeError):
            found = None
        # What is outside is refused in the same words whether it is there or not.
        if found is None or not found.is_relative_to(self.root):
            raise Refusal(404, "path: there is no such scan under the root", "path")
        if found.is_dir():
            self._check_inside(found)
        name = found.relative_to(self.root).as_posix()
        size = found.stat().st_size
        with self._lock:
            for each in self._files.values():
                if each.path == found and each.expires is None and each.size == size:
                    return each
            made = Stored(_new_id(), found, shown(name), size, time.time(), None)
            self._files[made.id] = made
        return made

    def _check_inside(self, folder: Path) -> None:
        """Refuse a series with a link that leads out of the root."""
        assert self.root is not None
        for number, each in enumerate(folder.iterdir()):
            if number >= MOST_VISITED or not each.resolve().is_relative_to(self.root):
                raise Refusal(403, "path: the folder is too large, or leads out of the root")

    def listing(self) -> list[str]:
        """Paths of scans under the root, sorted, the first `MOST_LISTED`."""
        if self.root is None:
            return []
        return sorted(_scans(self.root))

    def delete(self, file_id: str) -> None:
        """Forget a file; an upload is deleted.

        Raises:
            Refusal: (404) there is none.
        """
        self.get(file_id)
        self._remove([file_id])

    def sweep(self) -> None:
        """Delete uploads that have expired."""
        now = time.time()
        with self._lock:
            over = [key for key, each in self._files.items() if each.expires and each.expires < now]
        self._remove(over)

    def _sweep_all(self) -> None:
        """Delete what expires also when no request comes."""
        while not self._closed.wait(min(self.keep_s, SWEEP_S)):
            self.sweep()

    def _remove(self, ids: list[str]) -> None:
        with self._lock:
            gone = [self._files.pop(each) for each in ids if each in self._files]
        for each in gone:
            if each.expires is not None:
                each.path.unlink(missing_ok=True)

    def __contains__(self, file_id: str) -> bool:
        with self._lock:
            return file_id in self._files

    def close(self) -> None:
        """Delete all uploads."""
        self._closed.set()
        shutil.rmtree(self._base, ignore_errors=True)
        self._held.close()


def _clear_abandoned() -> None:
    """Delete the uploads of servers that were killed: nobody holds their lock."""
    for lock in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{HELD}"):
        try:
            with lock.open() as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
        except OSError:  # it is held, or another user's
            continue


def shown(name: str) -> str:
    """A name for people: no folders of the client's, no control characters, not endless."""
    kept = "".join(c for c in name.replace("\\", "/") if c.isprintable())
    parts = [part for part in PurePosixPath(kept).parts if part not in ("/", "..")]
    return "/".join(parts)[-MOST_NAME:] or "scan"


def _scans(root: Path) -> Iterator[str]:
    """Walk the root without following links to folders; a folder of `.dcm` files is one scan."""
    visited = listed = 0
    for path, folders, names in os.walk(root):
        folder = Path(path)
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        visited += len(names)
        here = folder.relative_to(root)
        found = [
            (here / each).as_posix()
            for each in sorted(names)
            if each.endswith(ENDINGS) and not each.startswith(".") and "label" not in each.lower()
        ]
        if "ct.nii.gz" in names:  # beside it lie its masks
            found = [(here / "ct.nii.gz").as_posix()]
        if not found and any(each.lower().endswith(".dcm") for each in names):
            found = [here.as_posix()]
        for each in found:
            yield each
            listed += 1
        if listed >= MOST_LISTED or visited >= MOST_VISITED:
            return


def _new_id() -> str:
    return f"file-{secrets.token_urlsafe(18)}"
