"""A folder of text files that is either whole or not there."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from tumorchain_jax.core.errors import InputError

# A folder that holds this file was written by `write_folder`, and may be replaced.
RECORD = "report.json"


def check_folder(folder: Path, overwrite: bool) -> None:
    """Refuse, before any work is done, a folder that must not or cannot be written.

    Raises:
        InputError: it is there and `overwrite` is off; it holds other things than a report, which
            overwriting would delete; or the folder it would lie in cannot be written.
    """
    parent = next(filter(os.path.exists, folder.absolute().parents), folder)
    if not (parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)):
        raise _refusal(parent, "a folder that cannot be written", "a place to write to")
    if not os.path.lexists(folder):
        return
    if not folder.is_dir():
        raise _refusal(folder, "a file", "a folder")
    if not overwrite:
        raise _refusal(folder, "an existing folder", "a new one (or --overwrite)")
    if any(folder.iterdir()) and not (folder / RECORD).is_file():
        raise _refusal(folder, f"a folder without {RECORD}", "an earlier report to overwrite")


def write_folder(folder: Path, files: Mapping[str, str], overwrite: bool) -> Path:
    """Write a folder of UTF-8 text files so that it appears at once and whole.

    The files go to a hidden folder beside it, which is then renamed. With `overwrite` the old
    folder stays until the new one is complete.

    Args:
        folder: where to; missing parents are made.
        files: name -> text.
        overwrite: replace an earlier report.

    Returns:
        The folder, as an absolute path without links.

    Raises:
        InputError: as `check_folder`, or the folder cannot be made.
    """
    check_folder(folder, overwrite)
    folder = folder.resolve()
    part = folder.with_name(f".{folder.name}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
    except OSError as error:
        raise _refusal(folder, str(error.strerror), "a place to write to") from error
    try:
        for name, text in files.items():
            # Model text and file names may hold lone surrogates, which UTF-8 cannot write.
            (part / name).write_bytes(text.encode("utf-8", "replace"))
        _swap_in(part, folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return folder


def _refusal(folder: Path, found: str, expected: str) -> InputError:
    return InputError(folder, "output", found, expected, "choose another folder")


def _swap_in(part: Path, folder: Path) -> None:
    old = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        os.replace(folder, old)
    try:
        os.replace(part, folder)
    except BaseException:
        if old.exists():
            os.replace(old, folder)
        raise
    shutil.rmtree(old, ignore_errors=True)
