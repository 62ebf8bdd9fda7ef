"""Files and folders that appear whole, or not at all.

Paths of an object store (`gs://BUCKET/...`, see `remote.py`) are etils' `epath.Path`; the others
are `pathlib.Path`.
"""

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
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # some file systems notice only now that they are full
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


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
def atomic_directory(output: Path, overwrite: bool = False) -> Iterator[Path]:
    """Yield a folder to write to; it becomes `output` at the end, and vanishes on any error.

    Args:
        overwrite: replace an existing folder once the new one is complete.

    Raises:
        InputError: as `staging_path`, unless the existing folder may be replaced.
    """
    replaced = output.with_name(f".{output.name}.old")
    if overwrite and output.is_dir():
        part = output.with_name(f".{output.name}.part")
    else:
        part = staging_path(output)
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
