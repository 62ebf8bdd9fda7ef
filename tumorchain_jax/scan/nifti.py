"""NIfTI-1 and NIfTI-2 single files -> Volume, every header field checked.

nibabel parses the header fields; the checks and the reading are done here, because nibabel silently
repairs some bad headers, guesses an orientation where none is given, and allocates whatever size
the header claims.
"""

import math
from io import BufferedIOBase
from pathlib import Path
from typing import cast

import numpy as np
from isal import igzip
from isal.igzip_lib import IsalError
from nibabel.nifti1 import Nifti1Header
from nibabel.nifti2 import Nifti2Header
from nibabel.spatialimages import HeaderDataError

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.scan.checks import check_affine, check_dtype, check_shape, check_spacing
from tumorchain_jax.scan.nifti_geometry import check_header_geometry
from tumorchain_jax.scan.volume import Volume

# isal's stub has the class for an instance of it.
UNREADABLE = (OSError, EOFError, cast("type[Exception]", IsalError))
CHUNK = 2**24
HEADERS = {348: Nifti1Header, 540: Nifti2Header}
WHOLE_FILE = "a whole NIfTI file"
COPY_AGAIN = "copy or convert the scan again"
SLOPE_NAN = "scl_slope is NaN: the stored values are taken as HU, without scaling"


def read_nifti(path: Path) -> Volume:
    """Read one 3D volume from a `.nii` or `.nii.gz`.

    Voxels keep their integer type where the header scales nothing; all others become float32.
    """
    try:
        # What is not finite is refused by the checks: numpy need not warn of it as well.
        with np.errstate(over="ignore", invalid="ignore"), _open(path) as stream:
            return _read(path, stream)
    except UNREADABLE as error:
        raise InputError(path, "file", f"{error}", WHOLE_FILE, COPY_AGAIN) from error


def read_size(path: Path) -> tuple[int, int]:
    """Read from its header how many voxels a NIfTI file has, and the bytes that they take.

    Raises:
        InputError: the header is none, or not of a 3D volume.
    """
    try:
        with _open(path) as stream:
            header = _header(path, stream)
    except UNREADABLE as error:
        raise InputError(path, "file", f"{error}", WHOLE_FILE, COPY_AGAIN) from error
    voxels = math.prod(_shape(path, header))
    return voxels, voxels * _dtype(path, header).itemsize


def read_description(path: Path) -> str:
    """Read the description field of a NIfTI file that `read_nifti` accepts."""
    with _open(path) as stream:
        return bytes(_header(path, stream)["descrip"]).rstrip(b"\0").decode(errors="replace")


def _open(path: Path) -> BufferedIOBase:
    """Open a file; decompress it if it is gzip, whatever its name says."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return igzip.open(path) if packed else path.open("rb")


def _read(path: Path, stream: BufferedIOBase) -> Volume:
    header = _header(path, stream)
    shape = _shape(path, header)
    dtype = _dtype(path, header)
    affine = _affine(path, header)
    slope, inter = _scaling(path, header)
    row = shape[0] * dtype.itemsize
    size = math.prod(shape) * dtype.itemsize
    stream.seek(_offset(path, header, size, packed=isinstance(stream, igzip.IGzipFile)))
    raw = np.frombuffer(_read_bytes(path, stream, size), dtype).reshape(shape, order="F")
    _check_end(path, stream, row)
    if dtype.kind == "f" or (slope, inter) != (1, 0):
        raw = raw.astype(np.float32) * np.float32(slope) + np.float32(inter)
    voxels = raw.astype(raw.dtype.newbyteorder("="), copy=False)
    return Volume(voxels, affine, str(path), _warnings(header))


def _header(path: Path, stream: BufferedIOBase) -> Nifti1Header:
    start = stream.read(4)
    for endianness in "<>":
        (size,) = np.frombuffer(start, f"{endianness}i4") if len(start) == 4 else (0,)
        if size in HEADERS:
            block = start + stream.read(size - 4)
            if len(block) < size:
                raise InputError(path, "header", f"{len(block)} bytes", WHOLE_FILE, COPY_AGAIN)
            header = HEADERS[size](block, endianness, check=False)
            if bytes(header["magic"])[:2] != b"n+":
                found = f"magic {bytes(header['magic'])!r}"
                raise InputError(path, "header", found, WHOLE_FILE, COPY_AGAIN)
            return header
    raise InputError(path, "header", "no NIfTI header", WHOLE_FILE, COPY_AGAIN)


def _shape(path: Path, header: Nifti1Header) -> tuple[int, int, int]:
    axes, *sizes = header["dim"].tolist()
    if not 1 <= axes <= 7:
        raise InputError(path, "dim", f"{axes} axes", "3", COPY_AGAIN)
    return check_shape(path, tuple(sizes[:axes]))


def _dtype(path: Path, header: Nifti1Header) -> np.dtype:
    try:
        dtype = header.get_data_dtype()
    except KeyError as error:
        code = int(header["datatype"])
        hint = "convert the scan to int16 or float32"
        raise InputError(path, "datatype", f"code {code}", "integers or floats", hint) from error
    check_dtype(path, dtype)
    return dtype


def _affine(path: Path, header: Nifti1Header) -> np.ndarray:
    check_spacing(path, "pixdim", header["pixdim"][1:4])
    if max(header["sform_code"], header["qform_code"]) <= 0:
        found = "sform_code and qform_code 0"
        hint = "export the scan again with its orientation"
        raise InputError(path, "affine", found, "a known orientation", hint)
    if header["pixdim"][0] not in (-1, 1):
        header["pixdim"][0] = 1  # the standard's reading of any other value
    try:
        affine = header.get_best_affine()
    except (HeaderDataError, ValueError) as error:
        hint = "export the scan again with its orientation"
        raise InputError(path, "qform", f"{error}", "a rotation", hint) from error
    check_affine(path, affine)
    check_header_geometry(path, header, affine)
    return affine


def _scaling(path: Path, header: Nifti1Header) -> tuple[float, float]:
    try:
        slope, inter = header.get_slope_inter()
    except HeaderDataError as error:
        found = f"scl_inter {float(header['scl_inter']):g}"
        hint = "export the scan again with its scaling"
        raise InputError(path, "scaling", found, "a finite number", hint) from error
    if np.isinf(header["scl_slope"]):
        hint = "export the scan again with its scaling"
        raise InputError(path, "scaling", "scl_slope inf", "a finite number", hint)
    return (1.0, 0.0) if slope is None else (slope, inter)


def _warnings(header: Nifti1Header) -> tuple[str, ...]:
    """Say what was repaired: a slope that is NaN means to most programs that it was never set."""
    return (SLOPE_NAN,) if np.isnan(header["scl_slope"]) else ()


def _offset(path: Path, header: Nifti1Header, size: int, packed: bool) -> int:
    """Return the offset of the voxels; checked against the size of a file that is not packed."""
    offset, least = float(header["vox_offset"]), int(header["sizeof_hdr"])
    most = path.stat().st_size
    if not least <= offset <= (CHUNK if packed else most):
        found = f"vox_offset {offset:g} in a file of {most} bytes"
        raise InputError(path, "vox_offset", found, f"{least} or more within the file", COPY_AGAIN)
    if not packed and offset + size > most:
        found = f"{most} bytes"
        raise InputError(path, "data", found, f"{int(offset) + size} bytes", COPY_AGAIN)
    return int(offset)


def _read_bytes(path: Path, stream: BufferedIOBase, size: int) -> bytearray:
    data = bytearray()
    while len(data) < size:
        chunk = stream.read(min(CHUNK, size - len(data)))
        if not chunk:
            found = f"{len(data)} bytes of voxels"
            raise InputError(path, "data", found, f"{size} bytes", COPY_AGAIN)
        data += chunk
    return data


def _check_end(path: Path, stream: BufferedIOBase, row: int) -> None:
    """Refuse a row or more of voxels that the header does not count.

    At the end of a packed file this reading verifies its checksum.
    """
    if len(stream.read(row)) == row:
        found, expected = "more voxels after the last slice", "as many as `dim` says"
        raise InputError(path, "data", found, expected, COPY_AGAIN)
