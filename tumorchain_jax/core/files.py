"""Files and folders that appear whole, or not at all.

Paths of an object store (`gs://BUCKET/...`, see `remote.py`) are etils' `epath.Path`; the others
are `pathlib.Path`.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
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
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(path)


def staging_path(output: Path) -> Path:
    """The hidden folder in which an output is made.

    Raises:
        InputError: the output is there already, or the folder it would lie in is not.
    """
    if output.exists():
        raise InputError(output, "output", "there already", "a new folder", "name another")
    if not output.absolute().parent.is_dir():
        raise InputError(output, "output", "no folder to put it in", "one", "make it first")
    return output.with_name(f".{output.name}.part")


@contextmanager
def atomic_directory(output: Path) -> Iterator[Path]:
    """A folder to write to, which becomes `output` at the end, and vanishes if that is not reached.

    Raises:
        InputError: as `staging_path`.
    """
    part = staging_path(output)
    shutil.rmtree(part, ignore_errors=True)
    try:
        part.mkdir()
        yield part
        part.rename(output)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
