"""Folders of an object store (`gs://BUCKET/...`) beside those of a file system.

Paths of a store are etils' `epath.Path`, which Orbax uses too; others stay `pathlib.Path`. An
object appears whole and by one write, but a store has no rename and no append: a folder of several
files is complete when the last of them is there. Libraries that read local files alone
(ArrayRecord, safetensors, tokenizers) get a local copy.
"""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from etils import epath

from tumorchain_jax.core.downloads import cache_folder
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import AnyPath, atomic_file, is_remote, write_file

LISTING = ".remote.json"
"""In a local copy: size and time of each of the store's files when it was copied."""
CHUNK = 2**24


def as_path(path: str | os.PathLike[str]) -> AnyPath:
    """A path of the file system, or of a store if it is a `gs://` URL.

    Raises:
        InputError: a URL of another kind, or nothing is installed that reads it.
    """
    text = os.fspath(path)
    scheme, separator, _ = text.partition("://")
    if not separator:
        return Path(text)
    if scheme != "gs":
        raise InputError(text, "path", f"{scheme}://", "a folder or gs://", "copy it there")
    if find_spec("gcsfs") is None and find_spec("tensorflow") is None:
        hint = "pip install 'tumorchain-jax[gcs]'"
        raise InputError(text, "path", "no package that reads it", "gcsfs", hint)
    import fsspec

    # Other processes write to the same folders: a listing is never cached.
    fsspec.config.conf.setdefault("gcs", {})["use_listings_cache"] = False
    return epath.Path(text)


def cached_folder(folder: AnyPath) -> Path:
    """Where the local copy of a store's folder is; a local folder itself."""
    if not is_remote(folder):
        return Path(folder)
    return cache_folder() / "remote" / os.fspath(folder).partition("://")[2]


def local_copy(folder: AnyPath) -> Path:
    """A folder of the file system with the files of this one; a local folder itself.

    Files that changed in the store since the last copy are copied again. Hidden ones are skipped.

    Raises:
        InputError: the store has no such folder.
    """
    if not is_remote(folder):
        return Path(folder)
    remote, local = epath.Path(folder), cached_folder(folder)
    listing = local / LISTING
    known = json.loads(listing.read_bytes()) if listing.is_file() else {}
    found: dict[str, list[int]] = {}
    for path in _files(remote):
        name, stat = str(path.relative_to(remote)), path.stat()
        found[name] = [stat.length, stat.mtime]
        target = local / name
        if known.get(name) == found[name] and target.is_file():
            continue
        print(f"tumorchain: copying {path} to {local}", file=sys.stderr)
        _copy(path, target)
    if not found:
        raise InputError(folder, "folder", "no files", "a folder of the bucket", "check the URL")
    for name in known.keys() - found.keys():
        (local / name).unlink(missing_ok=True)
    write_file(listing, json.dumps(found).encode())
    return local


def upload(local: Path, folder: AnyPath, last: Sequence[str] = ()) -> None:
    """Copy the files of a local folder to a store; hidden ones are skipped.

    Args:
        last: names of the files that say that a folder is complete: removed first, copied last.
    """
    remote = epath.Path(folder)
    for name in last:
        (remote / name).unlink(missing_ok=True)
    names = sorted(str(path.relative_to(local)) for path in _files(epath.Path(local)))
    for name in sorted(names, key=lambda name: (name in last, name)):
        (remote / name).parent.mkdir(parents=True, exist_ok=True)
        _copy(epath.Path(local / name), remote / name)


def move_folder(source: AnyPath, target: AnyPath) -> None:
    """Move a folder; in a store file by file, for it has no rename."""
    if not is_remote(source):
        target.parent.mkdir(parents=True, exist_ok=True)
        source.rename(target)
        return
    source, target = epath.Path(source), epath.Path(target)
    for path in _files(source):
        _copy(path, target / path.relative_to(source))
    source.rmtree()


def _files(folder: epath.Path) -> Iterator[epath.Path]:
    """All files below a folder but hidden ones."""
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        if not path.name or path.name.startswith(".") or path.name == folder.name:
            continue
        if path.is_dir():
            yield from _files(path)
        else:
            yield path


def _copy(source: epath.Path, target: AnyPath) -> None:
    """Copy a file; the target appears whole."""
    opened = target.open("wb") if is_remote(target) else atomic_file(Path(target))
    with source.open("rb") as reader, opened as writer:
        while content := reader.read(CHUNK):
            writer.write(content)
