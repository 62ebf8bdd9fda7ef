"""Is a file a scan that can be read safely? Told before anything is unpacked."""

import stat
from pathlib import Path, PurePosixPath
from zipfile import BadZipFile, ZipFile, ZipInfo

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.scan.nifti import read_size
from tumorchain_jax.serve.ct.limits import MB, Limits
from tumorchain_jax.serve.refusal import Refusal

ZIP = b"PK"
GZIP = b"\x1f\x8b"


def check_scan_file(path: Path, limits: Limits) -> str:
    """Check a NIfTI file, an archive or a folder of DICOM slices.

    Returns:
        the ending that its name must have to be read: `.nii.gz`, `.nii`, `.zip`; "" for a folder.

    Raises:
        Refusal: (400) it is neither, or an archive with paths that climb; (413) it is too large.
    """
    if path.is_dir():
        size = sum(each.stat().st_size for each in path.iterdir() if each.is_file())
        _check_size(size, limits.unpacked)
        return ""
    with path.open("rb") as file:
        start = file.read(2)
    if start == ZIP:
        _check_archive(path, limits)
        return ".zip"
    try:
        voxels, size = read_size(path)
    except InputError as error:
        message = f"neither a NIfTI file nor a zip archive of DICOM slices: {error.found}"
        raise Refusal(400, message, "file") from None
    if voxels > limits.voxels:
        raise Refusal(413, f"the scan has {voxels} voxels, at most {limits.voxels} are read")
    _check_size(size, limits.unpacked)
    return ".nii.gz" if start == GZIP else ".nii"


def _check_archive(path: Path, limits: Limits) -> None:
    try:
        with ZipFile(path) as archive:
            members = archive.infolist()
    # zipfile's own error for a version of the format that it does not know is the second.
    except (BadZipFile, NotImplementedError, OSError, ValueError) as error:
        raise Refusal(400, f"the zip archive is damaged: {error}", "file") from None
    if len(members) > limits.files:
        raise Refusal(413, f"the archive has {len(members)} files, at most {limits.files} are read")
    _check_size(sum(each.file_size for each in members), limits.unpacked)
    for each in members:
        name = PurePosixPath(each.filename.replace("\\", "/"))
        if name.is_absolute() or ".." in name.parts or ":" in each.filename[:3]:
            raise Refusal(400, "the archive has a path that leads out of it", "file")
        if stat.S_ISLNK(each.external_attr >> 16):
            raise Refusal(400, "the archive has a link", "file")
        if _is_bomb(each, limits.ratio):
            raise Refusal(413, "the archive has a file that unpacks to far more than it takes")


def _is_bomb(member: ZipInfo, ratio: int) -> bool:
    return member.file_size > MB + ratio * member.compress_size


def _check_size(size: int, most: int) -> None:
    if size > most:
        raise Refusal(413, f"the scan has {size} bytes unpacked, at most {most} are read")
