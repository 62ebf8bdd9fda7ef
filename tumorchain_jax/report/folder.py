"""Write the folder of a report: whole or not at all, and never over files of anybody else's."""

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import atomic_directory

RECORD, PAGE = "report.json", "report.html"
SEG, SR = "segmentation.dcm", "report.dcm"
KEY_IMAGES = tuple(f"key-image-{number}.dcm" for number in range(1, 7))
COMPARISON, CHANGES = "comparison.html", "comparison.json"
REPORT_FILES = (RECORD, PAGE, COMPARISON, CHANGES, SEG, SR, *KEY_IMAGES)
"""All that a report can have; a comparison and DICOM objects only where they were asked for."""


def check_folder(folder: Path, overwrite: bool, files: Collection[str] = REPORT_FILES) -> None:
    """Refuse, before any work is done, a folder that must not or cannot be written.

    Args:
        overwrite: a folder with an earlier report, and nothing else, may be there.
        files: names of the files of such a report.

    Raises:
        InputError: the folder exists and `overwrite` is off; it holds anything but an earlier
            report, which overwriting would delete; its parent cannot be written.
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
    others = sorted(path.name for path in folder.iterdir() if path.name not in files)
    if others:
        raise _refusal(folder, f"{others[0]}, which is no part of a report", "a report alone")


def check_parent(folder: Path, add: bool) -> None:
    """Refuse, before any work is done, to add reports of several scans to those of another run.

    Args:
        folder: of the folders of the reports.
        add: the user knows that there are earlier ones.

    Raises:
        InputError: there is something in it, and `add` is off.
    """
    if not add and folder.is_dir() and (found := sorted(each.name for each in folder.iterdir())):
        hint = "choose another, --resume to skip scans that have a report, or --overwrite"
        raise InputError(folder, "output", f"a folder with {found[0]}", "a new folder", hint)


def write_folder(folder: Path, files: Mapping[str, str | bytes], overwrite: bool) -> Path:
    """Write a folder of files, texts in UTF-8, so that it appears at once and whole.

    Args:
        folder: output folder; missing parents are made.
        files: name -> content.
        overwrite: replace an earlier folder of these files, or of a report's, once the new one is
            complete.

    Returns:
        The folder, as an absolute path without links.

    Raises:
        InputError: as `check_folder`, or the folder cannot be written.
    """
    check_folder(folder, overwrite, {*files, *REPORT_FILES})
    folder = folder.resolve()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with atomic_directory(folder, overwrite) as part:
            for name, content in files.items():
                # Model text and file names may hold lone surrogates, which UTF-8 cannot write.
                encoded = (
                    content.encode("utf-8", "replace") if isinstance(content, str) else content
                )
                (part / name).write_bytes(encoded)
    except OSError as error:
        raise _refusal(folder, error.strerror or "an error", "a place to write to") from error
    return folder


def _refusal(folder: Path, found: str, expected: str) -> InputError:
    return InputError(folder, "output", found, expected, "choose another folder")
