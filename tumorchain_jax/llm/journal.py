"""Replies that were paid for, kept on disk: a call that was answered is never made again.

A journal is one SQLite file in WAL mode on a local disk, and belongs to one process at a time. A
reply is on the disk before its caller sees it. Rows carry a checksum; one that has changed is left
out, and asked for again.
"""

import asyncio
import fcntl
import hashlib
import json
import os
import sqlite3
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.llm.reply import FailureKind, Usage

APPLICATION, VERSION = 0x7C10, 1
"""Marks of the file, and of its layout."""


@dataclass(frozen=True)
class Kept:
    """One paid reply.

    Attributes:
        key: `Request.key`.
        failure: kind of failure; empty for a good reply.
        reason: of the failure.
        text: what the model wrote.
        finish_reason, model: as the server said.
        prompt_tokens, completion_tokens, cost, latency_s: of the call.
        logprobs: as JSON; empty without.
    """

    key: str
    failure: FailureKind | str
    reason: str
    text: str
    finish_reason: str
    model: str
    prompt_tokens: int
    completion_tokens: int
    cost: float
    latency_s: float
    logprobs: str = ""

    @property
    def usage(self) -> Usage:
        """Its tokens and price."""
        return Usage(self.prompt_tokens, self.completion_tokens, self.cost, 1)

    @property
    def checksum(self) -> str:
        """Hash of all fields."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


COLUMNS = [field.name for field in fields(Kept)]


def _warn(line: str) -> None:
    warnings.warn(line, stacklevel=2)


class Journal:
    """The kept replies of one process.

    Args:
        path: of the file; made if it is not there.
        tell: takes a line when something was damaged; a warning by default.

    Raises:
        InputError: another process has it open, or it cannot be written.
    """

    def __init__(self, path: Path, tell: Callable[[str], None] = _warn):
        self.path, self._tell = path, tell
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise self._refused(error) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            found, hint = "another process at work on it", "wait for it, or name another"
            raise InputError(path, "journal", found, "one at a time", hint) from error
        try:
            self._connection = self._open()
            self._spent = self._sum()
        except BaseException:
            os.close(self._lock)
            raise
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._waiting: list[tuple[Kept, asyncio.Future[None]]] = []
        self._flushing: asyncio.Task[None] | None = None

    def _open(self) -> sqlite3.Connection:
        problem = _problem(self.path)
        if problem:
            aside = self._set_aside()
            self._tell(f"{self.path}: {problem}; it is kept as {aside.name}, a new one begins")
        try:
            connection = sqlite3.connect(self.path, check_same_thread=False, isolation_level=None)
            os.chmod(self.path, 0o600)  # replies may quote reports
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            columns = ", ".join(f"{field.name} NOT NULL" for field in fields(Kept)[1:])
            connection.executescript(
                f"BEGIN; CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, {columns}, "
                f"checksum NOT NULL) WITHOUT ROWID; PRAGMA application_id={APPLICATION}; "
                f"PRAGMA user_version={VERSION}; COMMIT"
            )
        except (sqlite3.Error, OSError) as error:
            raise self._refused(error) from error
        return connection

    def _set_aside(self) -> Path:
        number = 1
        while (aside := self.path.with_name(f"{self.path.name}.aside-{number}")).exists():
            number += 1
        self.path.rename(aside)
        for ending in ("-wal", "-shm"):
            part = self.path.with_name(self.path.name + ending)
            if part.exists():
                part.rename(aside.with_name(aside.name + ending))
        return aside

    def _sum(self) -> Usage:
        sums = "sum(prompt_tokens), sum(completion_tokens), sum(cost), count(*)"
        prompt, completion, cost, calls = self._connection.execute(
            f"SELECT {sums} FROM replies"
        ).fetchone()
        return Usage(prompt or 0, completion or 0, float(cost or 0.0), calls)

    @property
    def spent(self) -> Usage:
        """Of all replies in it, of this run and earlier ones."""
        return self._spent

    def get(self, key: str) -> Kept | None:
        """Find a reply; None if there is none, or it has changed on the disk."""
        names = ", ".join(COLUMNS)
        try:
            row = self._connection.execute(
                f"SELECT {names}, checksum FROM replies WHERE key = ?", (key,)
            ).fetchone()
        except sqlite3.Error as error:
            raise self._refused(error) from error
        if row is None:
            return None
        try:
            kept = Kept(*row[:-1])
            whole = kept.checksum == row[-1]
        except (TypeError, ValueError):
            whole = False
        if whole:
            return kept
        self._tell(f"{self.path}: reply {key[:16]} is damaged; it is asked for again")
        return None

    async def put(self, kept: Kept) -> None:
        """Keep a reply; returns once it is on the disk. Those that wait share a commit.

        Raises:
            InputError: the disk is full, or the file cannot be written.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((kept, done))
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush())
        await done

    async def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                await loop.run_in_executor(self._writer, self._write, [row for row, _ in batch])
            except sqlite3.Error as error:
                for _, done in batch:
                    if not done.done():
                        done.set_exception(self._refused(error))
                continue
            for kept, done in batch:
                self._spent = self._spent + kept.usage
                if not done.done():
                    done.set_result(None)

    def _write(self, rows: list[Kept]) -> None:
        marks = ", ".join("?" * (len(COLUMNS) + 1))
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.executemany(
                f"INSERT OR REPLACE INTO replies VALUES ({marks})",
                [(*astuple(row), row.checksum) for row in rows],
            )
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise

    async def close(self) -> None:
        """Write what waits, and let the file go."""
        if self._flushing is not None:
            await self._flushing
        self._writer.shutdown()
        self._connection.close()
        os.close(self._lock)

    def _refused(self, error: Exception) -> InputError:
        expected, hint = "a file that can be written", "free some space, or name another"
        return InputError(self.path, "journal", str(error), expected, hint)


def read_latencies(path: Path) -> dict[str, float]:
    """Seconds that each kept reply took, by its key; the journal may be another process's.

    Raises:
        InputError: there is no journal, or it cannot be read.
    """
    problem = _problem(path) if path.is_file() else "none"
    if problem:
        raise InputError(path, "journal", problem, "kept replies", "copy it with its run")
    with closing(sqlite3.connect(path)) as connection:
        return dict(connection.execute("SELECT key, latency_s FROM replies"))


def _problem(path: Path) -> str:
    """Why a file cannot be gone on with; empty if it can, or is not there."""
    if not path.exists() or not path.stat().st_size:
        return ""
    try:
        connection = sqlite3.connect(path)
        try:
            application = connection.execute("PRAGMA application_id").fetchone()[0]
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            check = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            names = [row[1] for row in connection.execute("PRAGMA table_info(replies)")]
        finally:
            connection.close()
    except sqlite3.Error as error:
        return f"a damaged journal ({error})"
    if check != "ok":
        return "a damaged journal"
    if application != APPLICATION:
        return "no journal of replies"
    if version != VERSION or names != [*COLUMNS, "checksum"]:
        return f"a journal of version {version}, this is {VERSION}"
    return ""
