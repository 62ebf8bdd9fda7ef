"""A zip archive of one CT series in DICOM -> Volume.

Nothing of the archive is trusted: no path in it is followed, only files that begin as DICOM does
are unpacked, into a temporary folder, and no more than `MOST_BYTES`. Of the others only the first
bytes are, so that damaged slices are found.
"""

import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from zipfile import BadZipFile, ZipFile

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.scan.dicom import DICOM_PREFIX, read_dicom
from tumorchain_jax.scan.volume import Volume

MOST_BYTES = 4 * 2**30
MOST_FILES = 10_000
ENCRYPTED = 1


def read_zip(path: Path) -> Volume:
    """Read the one CT series in a zip archive, in HU, float32.

    Raises:
        InputError: it is no sound zip archive, is too large, or does not hold one series, as
            `read_dicom` has it.
    """
    with unpacked(path) as folder:
        return replace(read_dicom(folder), source=str(path))


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Unpack the DICOM files of an archive into a folder that is there for a while.

    Raises:
        InputError: as `read_zip`; one that is raised about that folder names the archive instead.
    """
    with tempfile.TemporaryDirectory(prefix="tumorchain-") as scratch:
        try:
            _unpack(path, Path(scratch))
        # zipfile's own error for a method of compression that it does not know is the second.
        except (BadZipFile, NotImplementedError, zlib.error, EOFError) as error:
            found, expected = f"{error}", "a whole zip archive"
            raise InputError(path, "file", found, expected, "zip the series again") from error
        try:
            yield Path(scratch)
        except InputError as error:
            subject = error.subject.replace(scratch, str(path))
            raise InputError(
                subject, error.field, error.found, error.expected, error.hint
            ) from error


def _unpack(path: Path, folder: Path) -> None:
    """Write the DICOM files of an archive into one folder, under names of our own."""
    with ZipFile(path) as archive:
        files = [member for member in archive.infolist() if not member.is_dir()]
        size = sum(member.file_size for member in files)
        if size > MOST_BYTES or len(files) > MOST_FILES:
            found = f"{len(files)} files of {size} bytes"
            expected = f"at most {MOST_FILES} files of {MOST_BYTES} bytes"
            raise InputError(path, "file", found, expected, "unpack it and give the folder")
        for number, member in enumerate(files):
            if member.flag_bits & ENCRYPTED:
                hint = "unpack it and give the folder"
                raise InputError(path, "file", "an encrypted archive", "an open one", hint)
            name = "".join(
                c for c in PurePosixPath(member.filename).name if c.isalnum() or c in "._-"
            )
            with archive.open(member) as packed:
                start = packed.read(DICOM_PREFIX)
                with (folder / f"{number:05d}-{name}").open("wb") as file:
                    file.write(start)
                    if start.endswith(b"DICM") and len(start) == DICOM_PREFIX:
                        shutil.copyfileobj(packed, file)
