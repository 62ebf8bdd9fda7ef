"""The series that results are about: whose patient and study they belong to.

Identifiers are copied from its headers and never made up: a scan without them, such as a NIfTI
file, cannot have DICOM results.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pydicom
from pydicom.dataset import Dataset

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.scan.dicom import read_stack
from tumorchain_jax.scan.zip_archive import unpacked

REQUIRED = (
    "SOPClassUID",
    "SOPInstanceUID",
    "StudyInstanceUID",
    "SeriesInstanceUID",
    "FrameOfReferenceUID",
)
# May be empty in a DICOM object, but not absent; what reads and writes objects relies on that.
MAY_BE_EMPTY = (
    "PatientID",
    "PatientName",
    "PatientBirthDate",
    "PatientSex",
    "StudyDate",
    "StudyTime",
    "StudyID",
    "AccessionNumber",
    "ReferringPhysicianName",
)


@dataclass(frozen=True)
class SourceSeries:
    """The headers of a CT series.

    Attributes:
        path: folder or zip archive that it was read from.
        slices: without pixels, in the order of the volume's slices.
    """

    path: Path
    slices: Sequence[Dataset]

    @property
    def first(self) -> Dataset:
        """Any slice, for what all have in common."""
        return self.slices[0]


def read_source(path: Path) -> SourceSeries:
    """Read the headers of the series in a folder or zip archive.

    Raises:
        InputError: it is no DICOM series, or lacks an identifier.
    """
    with _folder(path) as folder:
        files = [header.path for header in read_stack(folder)]
        slices = [pydicom.dcmread(file, stop_before_pixels=True) for file in files]
        for file, header in zip(files, slices, strict=True):
            for keyword in REQUIRED:
                if not header.get(keyword):
                    hint = "export the series with its identifiers, or leave out --dicom"
                    expected = "the source's own, which is never made up"
                    raise InputError(file, keyword, "nothing", expected, hint)
    for header in slices:
        for keyword in MAY_BE_EMPTY:
            if keyword not in header:
                setattr(header, keyword, "")
    return SourceSeries(path, slices)


@contextmanager
def _folder(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield path
    elif path.name.lower().endswith(".zip"):
        with unpacked(path) as folder:
            yield folder
    else:
        found, expected = "no DICOM series", "the folder or zip archive of one"
        hint = "a NIfTI file has no patient, study or frame of reference, which are never made up"
        raise InputError(path, "--dicom", found, expected, hint)
