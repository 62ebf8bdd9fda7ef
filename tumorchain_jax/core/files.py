"""Files and folders that appear whole, or not at all."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedWriter
from pathlib import Path
from typing import TypeAlias

from etils import epath

from tumorchain_jax.core.errors import InputError

AnyPath: TypeAlias = Path | epath.Path


def is_remote(path: AnyPath) -> bool:
    """Whether a path is of an object store."""
    return "://" in os.fspath(path)


def absolute(path: AnyPath) -> AnyPath:
    """The path from the root, without looking at links; a URL as it is."""
    return path if is_remote(path) else Path(path).absolute()


def write_file(path: AnyPath, content: bytes) -> None:
    """Write a file: whole, or not at all. Makes its folder."""
    if is_remote(path):
        path.write_bytes(content)  # an object appears when all of it has been sent
        return
    with atomic_file(Path(path)) as file:
        file.write(content)


@contextmanager
def atomic_file(path: Path) -> Iterator[BufferedWriter]:
    """Open a hidden file, which becomes `path` at the end, and vanishes on any error."""
    with atomic_path(path) as part, part.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())  # some file systems notice only now that they are full


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Name a hidden file for a library to write; it becomes `path`, and vanishes on any error.

    Its ending is that of `path`, from which some libraries take the format.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        yield part
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def remove_partial_files(folder: Path) -> None:
    """Remove what `atomic_path` left in a folder when its process was killed."""
    for path in folder.glob(".[0-9]*-*"):
        path.unlink()


def staging_path(output: Path) -> Path:
    """Return the hidden folder in which an output is made.

    Raises:
        InputError: the output exists already, or its parent folder does not.
    """
    if output.exists():
        raise InputError(output, "output", "there already", "a new folder", "name another")
    if not output.absolute().parent.is_dir():
        raise InputError(output, "output", "no folder to put it in", "one", "make it first")
    return output.with_name(f".{output.name}.part")


@contextmanager
def reserved(output: Path, overwrite: bool = False) -> Iterator[Path]:
    """Reserve an output for this process; yields its staging path.

    Raises:
        InputError: as `staging_path`, unless the existing folder may be replaced; or another
            process writes to it.
    """

    def staging() -> Path:
        if overwrite and output.is_dir():
            return output.with_name(f".{output.name}.part")
        return staging_path(output)

    staging()
    with locked(output.with_name(f".{output.name}.lock"), output):
        yield staging()  # the output may have been written in the meantime


@contextmanager
def locked(lock: Path, output: Path) -> Iterator[None]:
    """Let one process at a time work on an output; a lock ends with its process.

    Raises:
        InputError: another process is at work on it.
    """
    descriptor = _acquire(lock)
    if descriptor is None:
        found, expected = "another process at work on it", "one at a time"
        raise InputError(output, "output", found, expected, "wait for it, or name another")
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(descriptor)


def _acquire(lock: Path) -> int | None:
    """Take a lock that ends with its process, however that ends; None if another has it."""
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        try:
            # Another process may have removed the file between the opening and the locking.
            if os.path.samestat(os.fstat(descriptor), lock.stat()):
                return descriptor
        except FileNotFoundError:
            pass
        os.close(descriptor)


@contextmanager
def atomic_directory(output: Path, overwrite: bool = False) -> Iterator[Path]:
    """Yield a folder to write to; it becomes `output` at the end, and vanishes on any error.

    Args:
        overwrite: replace an existing folder once the new one is complete.

    Raises:
        InputError: as `reserved`.
    """
    replaced = output.with_name(f".{output.name}.old")
    with reserved(output, overwrite) as part:
        shutil.rmtree(part, ignore_errors=True)
        try:
            part.mkdir()
            yield part
            moved = overwrite and output.exists()
            if moved:
                shutil.rmtree(replaced, ignore_errors=True)
                output.rename(replaced)
            try:
                part.rename(output)
            except BaseException:
                if moved:
                    replaced.rename(output)
                raise
            shutil.rmtree(replaced, ignore_errors=True)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
