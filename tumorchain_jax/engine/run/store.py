"""What became of each case, on disk as soon as it is known: one file for each shard.

A shard's file is a row of frames, one a case, appended and never changed. A frame that a kill has
cut short is the last one; it is dropped, and its case is worked on again. Of two frames of a case
the later one counts.

    sizes of head and body, checksum of both     12 bytes, little-endian
    head      JSON: what a run must know without reading the body
    body      JSON, compressed: the lines that the case adds to each output
"""

import fcntl
import hashlib
import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO

SHARDS = 256
OUTPUTS = ("records", "traces", "facts", "documents", "rejected", "discordant")
"""Names of the outputs; each is a file `NAME.jsonl`."""
_SIZES = struct.Struct("<III")


@dataclass(frozen=True)
class Head:
    """What became of a case, in short.

    Attributes:
        case: its id.
        digest: of the case as it was worked on.
        attempt: how often the case was worked on, from 1; more than once by `--retry` alone.
        records: (subtask, id) of its records.
        rejected: reason -> chains that were set aside for it.
        left_out: reason -> records that were left out for it.
        error: why nothing came of the case; empty if it went well.
    """

    case: str
    digest: str
    attempt: int = 1
    records: tuple[tuple[str, str], ...] = ()
    rejected: Mapping[str, int] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True)
class Place:
    """Where a frame stands.

    Attributes:
        head: of the frame.
        start, size: of its body.
    """

    head: Head
    start: int
    size: int


Lines = Mapping[str, list[str]]
"""Name of an output -> the lines that a case adds to it, without their ends."""


def shard_of(case: str) -> str:
    """Name the shard of a case, by its id alone."""
    return f"{hashlib.sha256(case.encode()).digest()[0]:02x}"


def shard_path(folder: Path, shard: str) -> Path:
    """Path of a shard's file."""
    return folder / ".engine" / "cases" / f"{shard}.frames"


def read_places(path: Path) -> Iterator[Place]:
    """Yield the frames of a file that are whole, by their sizes alone; none if there is no file."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        end = os.fstat(file.fileno()).st_size
        while (place := _next_place(file, end)) is not None:
            yield place
            file.seek(place.start + place.size)


def _next_place(file: IO[bytes], end: int) -> Place | None:
    sizes = file.read(_SIZES.size)
    if len(sizes) < _SIZES.size:
        return None
    head, body, _ = _SIZES.unpack(sizes)
    start = file.tell() + head
    if start + body > end:
        return None
    try:
        values = json.loads(file.read(head))
        values["records"] = tuple(map(tuple, values["records"]))
        return Place(Head(**values), start, body)
    except (ValueError, TypeError, KeyError):  # a damaged frame ends what can be read
        return None


def read_lines(path: Path, place: Place) -> Lines:
    """Read the lines of a frame."""
    with path.open("rb") as file:
        file.seek(place.start)
        return json.loads(zlib.decompress(file.read(place.size)))


class Store:
    """A shard's file, opened to add frames; another process that does so is waited for.

    Attributes:
        heads: case -> head of its last frame.
        damaged: where bytes that are no frame were put aside; None if there were none but a frame
            cut short.
    """

    def __init__(self, path: Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+b", buffering=0)
        # Workers of a run that was killed may live a moment longer than it.
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self.heads: dict[str, Head] = {}
        self.damaged: Path | None = None
        self._end = self._check(path)

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        try:
            os.fsync(self._file.fileno())
        finally:
            self._file.close()

    def append(self, head: Head, lines: Lines) -> None:
        """Add a frame.

        Raises:
            OSError: the disk is full; the file is as it was before.
        """
        top = json.dumps(asdict(head), ensure_ascii=False).encode()
        body = zlib.compress(json.dumps(lines, ensure_ascii=False).encode(), 1)
        content = _SIZES.pack(len(top), len(body), zlib.crc32(body, zlib.crc32(top))) + top + body
        rest = memoryview(content)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError:
            os.truncate(self._file.fileno(), self._end)
            raise
        self._end += len(content)
        self.heads[head.case] = head

    def _check(self, path: Path) -> int:
        """Read all frames with their checksums; cut off what follows the last good one."""
        self._file.seek(0, os.SEEK_END)
        end, good = self._file.tell(), 0
        self._file.seek(0)
        while (place := _next_place(self._file, end)) is not None:
            self._file.seek(good)
            head, body, checksum = _SIZES.unpack(self._file.read(_SIZES.size))
            if zlib.crc32(self._file.read(head + body)) != checksum:
                break
            self.heads[place.head.case] = place.head
            good = self._file.tell()
        if good < end:
            self._cut(path, good, end)
        return good

    def _cut(self, path: Path, good: int, end: int) -> None:
        self._file.seek(good)
        rest = self._file.read()
        sizes = _SIZES.unpack(rest[: _SIZES.size]) if len(rest) >= _SIZES.size else None
        if sizes is not None and sum(sizes[:2]) + _SIZES.size <= end - good:
            # Not cut short, but changed: it stays at hand for whoever asks what happened.
            self.damaged = path.with_suffix(".damaged")
            self.damaged.write_bytes(rest)
        self._file.truncate(good)
