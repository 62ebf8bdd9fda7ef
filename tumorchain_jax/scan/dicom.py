"""The folder of one CT series in DICOM -> Volume.

All headers are checked before any pixel is read. Geometry comes from ImagePositionPatient and
ImageOrientationPatient alone: InstanceNumber and file names say nothing about place. pydicom is
called in `_header` and `_pixels` only, where whatever it raises becomes one line, and its warnings,
which concern values that are not used here, are silenced.
"""

import warnings
from pathlib import Path

import numpy as np
import pydicom
from pydicom.dataset import Dataset
from pydicom.filereader import read_file_meta_info
from pydicom.pixels import get_decoder
from pydicom.uid import (
    UID,
    DeflatedExplicitVRLittleEndian,
    EnhancedCTImageStorage,
    MediaStorageDirectoryStorage,
    SecondaryCaptureImageStorage,
)

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.scan.checks import check_affine, check_shape
from tumorchain_jax.scan.damaged import check_damaged
from tumorchain_jax.scan.slices import Slice, affine, checked_stack
from tumorchain_jax.scan.volume import Volume

# Objects made from a scan and often stored beside it; they hold no slice of it.
COMPANIONS = {"SEG", "RTSTRUCT", "RTPLAN", "RTDOSE", "SR", "PR", "KO", "REG", "DOC"}
# Units of the rescaled values, C.11.1.1.2: "US" (unspecified) is what many converters write.
HOUNSFIELD = ("HU", "HU_MOD", "US")
DICOM_PREFIX = 132
"""Bytes of a file up to the end of the word DICM."""
EXPORT_AGAIN = "export the series again with complete headers"
BESIDE = "the folder holds {} beside the DICOM slices: only those are read"


def read_dicom(folder: Path) -> Volume:
    """Read the one CT series in a folder (not its subfolders), in HU, float32.

    Segmentations or reports beside the scan, and files that cannot be one of its slices, are
    skipped; a NIfTI among them is said in the warnings.

    Raises:
        InputError: on anything that is not one evenly spaced, untilted stack of CT slices.
    """
    slices = read_stack(folder)
    to_world = affine(slices)
    shape = check_shape(folder, (slices[0].columns, slices[0].rows, len(slices)))
    check_affine(folder, to_world)
    voxels = np.empty(shape[::-1], np.float32)
    for plane, header in zip(voxels, slices, strict=True):
        plane[:] = _pixels(header)
        plane *= header.slope
        plane += header.intercept
    beside = sorted(path.name for path in folder.glob("*.nii*"))
    warnings = (BESIDE.format(beside[0]),) if beside else ()
    return Volume(voxels.transpose(2, 1, 0), to_world, str(folder), warnings)


def read_stack(folder: Path) -> list[Slice]:
    """Read the headers of the one CT series in a folder, in the order of the volume's slices.

    Raises:
        InputError: as `read_dicom`, but for what only pixels show.
    """
    slices = [header for path in sorted(folder.iterdir()) if (header := _header(path))]
    if not slices:
        found, hint = _what_else(folder)
        raise InputError(folder, "files", found, "the files of a CT series", hint)
    check_damaged(folder, [header.path for header in slices])
    return checked_stack(folder, slices)


def _what_else(folder: Path) -> tuple[str, str]:
    """Say what a folder without a DICOM slice holds, and which path to give instead."""
    nifti = sorted([*folder.glob("*.nii*"), *folder.glob("*/*.nii*")])
    if nifti:
        return "NIfTI files and no DICOM slice", f"give one of the files, as {nifti[0]}"
    folders = sorted(path.name for path in folder.iterdir() if path.is_dir())
    if folders:
        found = f"no DICOM slice, but {len(folders)} folder(s)"
        return found, f"give the folder that holds the slices themselves, as {folder / folders[0]}"
    return "no DICOM slice", "give the folder that holds the slices themselves"


def _is_dicom(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(DICOM_PREFIX)[128:] == b"DICM"


def _header(path: Path) -> Slice | None:
    """Read the header of the slice in a file; None for a file without a slice."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if not _is_dicom(path):
                return None
            meta = read_file_meta_info(path)
            if meta.get("MediaStorageSOPClassUID") == MediaStorageDirectoryStorage:
                return None
            _check_syntax(path, UID(meta.get("TransferSyntaxUID", "")))
            return _slice(path, pydicom.dcmread(path, stop_before_pixels=True))
    except InputError:
        raise
    except Exception as error:
        found = f"a damaged header ({type(error).__name__})"
        raise InputError(path, "file", found, "a DICOM file", "copy the series again") from error


def _check_syntax(path: Path, syntax: UID) -> None:
    """Refuse an encoding that cannot be decoded here, or that may inflate without bound."""
    try:
        known = syntax != DeflatedExplicitVRLittleEndian and get_decoder(syntax).is_available
    except NotImplementedError:  # raised for a syntax that pydicom has no decoder for
        known = False
    if not known:
        found = f"{syntax.name:.60}" if syntax else "none"
        expected = "uncompressed, RLE or JPEG 2000"
        hint = "decompress the series first, e.g. with `gdcmconv --raw` or `dcmdjpeg`"
        raise InputError(path, "TransferSyntaxUID", found, expected, hint)


def _slice(path: Path, data: Dataset) -> Slice | None:
    modality = str(data.get("Modality", "none"))
    if modality in COMPANIONS:
        return None
    if modality != "CT":
        hint = "give a folder with one CT series"
        raise InputError(path, "Modality", f"{modality:.16}", "CT", hint)
    if str(data.get("SOPClassUID", "")).startswith(SecondaryCaptureImageStorage):
        hint = "remove it; give the original slices"
        raise InputError(path, "SOPClassUID", "a secondary capture", "a CT slice", hint)
    unit = str(data.get("RescaleType") or HOUNSFIELD[0]).strip()
    if unit not in HOUNSFIELD:
        hint = "give the series in HU, not a map of another quantity"
        raise InputError(path, "RescaleType", f"{unit:.16}", HOUNSFIELD[0], hint)
    if (
        data.get("SOPClassUID") == EnhancedCTImageStorage
        or int(data.get("NumberOfFrames") or 1) > 1
    ):
        hint = "convert the enhanced CT to one file a slice, or to NIfTI"
        raise InputError(path, "NumberOfFrames", "a multi-frame image", "one slice a file", hint)
    if "LOCALIZER" in (data.get("ImageType") or ()):
        hint = "remove the localizer (scout) from the folder"
        raise InputError(path, "ImageType", "LOCALIZER", "axial slices", hint)
    if data.get("SamplesPerPixel", 1) != 1:
        found = f"{data.SamplesPerPixel} colours"
        raise InputError(path, "SamplesPerPixel", found, "1", "remove pictures from the folder")
    position = _numbers(path, data, "ImagePositionPatient", 3)
    directions = _numbers(path, data, "ImageOrientationPatient", 6)
    spacing = _numbers(path, data, "PixelSpacing", 2)
    slope = float(_numbers(path, data, "RescaleSlope", 1)[0])
    if slope == 0:
        raise InputError(path, "RescaleSlope", "0", "a slope that scales", EXPORT_AGAIN)
    return Slice(
        path=path,
        series=str(data.get("SeriesInstanceUID", "")),
        patient=str(data.get("PatientID", "")),
        frame_of_reference=str(data.get("FrameOfReferenceUID", "")),
        acquisition=str(data.get("AcquisitionNumber", "")),
        rows=int(_numbers(path, data, "Rows", 1)[0]),
        columns=int(_numbers(path, data, "Columns", 1)[0]),
        position=position,
        along_row=directions[:3],
        along_column=directions[3:],
        row_spacing=float(spacing[0]),
        column_spacing=float(spacing[1]),
        slope=slope,
        intercept=float(_numbers(path, data, "RescaleIntercept", 1)[0]),
    )


def _numbers(path: Path, data: Dataset, keyword: str, count: int) -> np.ndarray:
    """Read the `count` finite numbers of an element."""
    expected = "a number" if count == 1 else f"{count} numbers"
    if data.get(keyword) in (None, ""):
        raise InputError(path, keyword, "nothing", expected, EXPORT_AGAIN)
    try:
        numbers = np.atleast_1d(np.asarray(data.get(keyword), np.float64))
    except (TypeError, ValueError) as error:
        raise InputError(path, keyword, "text", expected, EXPORT_AGAIN) from error
    if numbers.shape != (count,) or not np.isfinite(numbers).all():
        raise InputError(path, keyword, f"{numbers.tolist()!s:.60}", expected, EXPORT_AGAIN)
    return numbers


def _pixels(header: Slice) -> np.ndarray:
    """Read the stored values `[rows, columns]` of one slice."""
    expected = f"{header.rows} x {header.columns} pixels"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            data = pydicom.dcmread(header.path)
            if not data.file_meta.TransferSyntaxUID.is_compressed:
                _check_length(header, data)
            pixels = data.pixel_array
    except InputError:
        raise
    except Exception as error:
        found = f"data that cannot be decoded ({type(error).__name__})"
        raise InputError(
            header.path, "PixelData", found, expected, "copy the series again"
        ) from error
    if pixels.shape != (header.rows, header.columns):
        found = f"an array of {pixels.shape}"
        raise InputError(header.path, "PixelData", found, expected, "copy the series again")
    return pixels


def _check_length(header: Slice, data: Dataset) -> None:
    """Refuse pixel data of another length; pydicom would read surplus bytes as more frames."""
    size = header.rows * header.columns * data.BitsAllocated // 8
    if len(data.PixelData) not in (size, size + size % 2):
        found = f"{len(data.PixelData)} bytes"
        hint = "copy the series again"
        raise InputError(header.path, "PixelData", found, f"{size} bytes", hint)
