"""Scans on a DICOMweb server as inputs of a command."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tumorchain_jax.core.errors import InputError

if TYPE_CHECKING:
    from tumorchain_jax.dicom.web import WebSeries

INPUT_HELP = (
    "NIfTI file, folder or zip archive of a DICOM series, dicomweb://HOST/.../studies/STUDY/series/"
    "SERIES, or folder of scans (searched with all its folders; scans are named by their relative "
    "paths)"
)


def scan_input(text: str) -> "Path | str":
    """The type of an input: a path, or the address of a series as text."""
    from tumorchain_jax.dicom.web import is_web_address

    return text if is_web_address(text) else Path(text)


def takes_web(command: argparse.ArgumentParser) -> None:
    """Add the flags of DICOMweb."""
    add = command.add_argument
    add(
        "--series",
        default="",
        metavar="UID",
        help="of -i https://HOST/PATH, a DICOMweb service: the series to take",
    )
    add(
        "--stow",
        action="store_true",
        help="with --dicom: store the objects on the DICOMweb server that the series came from; "
        "DICOMWEB_TOKEN or DICOMWEB_AUTH (user:password) in the environment is sent along",
    )


@dataclass(frozen=True)
class Fetched:
    """The inputs of a command as paths.

    Attributes:
        paths: of all inputs.
        origin: the series on a server that each fetched folder came from.
    """

    paths: list[Path]
    origin: "dict[Path, WebSeries]"

    def name(self, path: Path) -> str:
        """Where a scan came from, for people and the report."""
        return str(self.origin.get(path, path))


@contextmanager
def fetched(options: argparse.Namespace) -> Iterator[Fetched]:
    """Download the series among the inputs into folders that are removed at the end.

    Raises:
        InputError: one cannot be fetched, or a flag of DICOMweb does not fit the inputs.
    """
    from tumorchain_jax.dicom.web import fetch_series, parse_address, unencrypted

    inputs: Sequence[Path | str] = options.input
    web = [each for each in inputs if isinstance(each, str)]
    if options.stow and not (options.dicom and len(web) == len(inputs)):
        expected, hint = "--dicom and series of a DICOMweb server", "leave it out, or add --dicom"
        raise InputError("command line", "--stow", "another input", expected, hint)
    if options.series and len(web) != 1:
        expected, hint = "the address of one DICOMweb service", "leave it out"
        raise InputError("command line", "--series", f"{len(web)} addresses", expected, hint)
    found = Fetched([], {})
    with ExitStack() as stack:
        for each in inputs:
            if isinstance(each, Path):
                found.paths.append(each)
                continue
            wanted = parse_address(each, options.series)
            if warning := unencrypted(wanted.base):
                print(f"tumorchain: warning: {warning}", file=sys.stderr)
            scratch = stack.enter_context(TemporaryDirectory(prefix="tumorchain-"))
            folder = Path(scratch) / wanted.series
            folder.mkdir()
            found.origin[folder] = fetch_series(wanted, folder)
            found.paths.append(folder)
        yield found


def store_files(fetched: Fetched, scan: Path, files: dict[str, bytes]) -> str:
    """Store the DICOM objects among some files where their scan came from.

    Returns:
        what was done, in one line.
    """
    from tumorchain_jax.dicom.web import store

    base = fetched.origin[scan].base
    objects = [content for name, content in files.items() if name.endswith(".dcm")]
    return f"stored {store(base, objects)} objects at {base}"
