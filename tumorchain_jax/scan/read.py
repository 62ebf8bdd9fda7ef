"""Path, nibabel image or array -> checked `Volume`: the entry point for CTs and label maps."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from nibabel.nifti1 import Nifti1Header
from nibabel.spatialimages import SpatialImage

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.scan.checks import (
    check_affine,
    check_ct,
    check_dtype,
    check_mask,
    check_shape,
)
from tumorchain_jax.scan.dicom import read_dicom
from tumorchain_jax.scan.nifti import read_nifti
from tumorchain_jax.scan.orientation import orientation, reorient
from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.scan.zip_archive import read_zip

OTHER_FORMATS = (".nrrd", ".nhdr", ".mha", ".mhd", ".hdr", ".img", ".mgz")
"""Endings of images that are not read here but that other programs convert."""


def read_ct(path: Path | str) -> Volume:
    """Read a CT in HU (float32) from a `.nii`, a `.nii.gz`, or a DICOM series: folder or `.zip`.

    Raises:
        InputError: when it cannot be read, has no sound geometry, or is no CT.
    """
    volume = _read(Path(path))
    ct = replace(volume, voxels=volume.voxels.astype(np.float32, copy=False))
    check_ct(ct)
    return ct


def read_labels(path: Path | str, ct: Volume) -> Volume:
    """Read the label map of `ct` from a NIfTI file: uint8, on the CT's own voxels.

    Raises:
        InputError: when it is not on the CT's grid or holds other than labels 0..117.
    """
    return align_labels(_read(Path(path)), ct)


def align_labels(labels: Volume, ct: Volume) -> Volume:
    """Bring a label map on the CT's grid into the CT's axis order (no resampling), as uint8."""
    aligned = reorient(labels, orientation(ct.affine))
    check_mask(aligned, ct)
    return Volume(aligned.voxels.astype(np.uint8), ct.affine, labels.source)


def from_nibabel(image: SpatialImage) -> Volume:
    """Convert a nibabel image; follow with `check_ct` for a CT, `align_labels` for labels.

    Raises:
        InputError: it has no orientation, or its voxels cannot be read.
    """
    source = image.get_filename() or "nibabel image"
    header = image.header
    placed = image.affine is not None
    if isinstance(header, Nifti1Header):
        placed = placed and max(header["sform_code"], header["qform_code"]) > 0
    if not placed:
        hint = "set the image's affine and its code"
        raise InputError(source, "affine", "none", "a known orientation", hint)
    check_shape(source, image.shape)
    check_dtype(source, image.get_data_dtype())
    try:
        voxels = np.asanyarray(image.dataobj)
    except Exception as error:
        hint = "copy or convert the scan again"
        raise InputError(source, "data", f"{error}", "readable voxels", hint) from error
    return from_array(voxels, image.affine, source)


def from_array(voxels: np.ndarray, affine: np.ndarray, source: str = "array") -> Volume:
    """Convert voxels `[I, J, K]` and their affine (index -> mm RAS+).

    Integers keep their type, floats become float32. Follow with `check_ct` for a CT,
    `align_labels` for labels.
    """
    shape = check_shape(source, voxels.shape)
    check_dtype(source, voxels.dtype)
    affine = np.asarray(affine, np.float64)
    check_affine(source, affine)
    if voxels.dtype.kind == "f":
        with np.errstate(over="ignore", invalid="ignore"):  # `check_ct` refuses the outcome
            voxels = voxels.astype(np.float32, copy=False)
    return Volume(voxels.reshape(shape), affine, source)


def _read(path: Path) -> Volume:
    try:
        if path.is_dir():
            return read_dicom(path)
        if path.is_file():
            return _read_file(path)
    except OSError as error:
        hint = "check the path and its permissions"
        raise InputError(path, "path", f"{error.strerror}", "a readable scan", hint) from error
    raise InputError(path, "path", "no such file", "a scan", "check the path")


def _read_file(path: Path) -> Volume:
    name = path.name.lower()
    if name.endswith((".nii", ".nii.gz")):
        return read_nifti(path)
    if name.endswith(".zip"):
        return read_zip(path)
    expected = ".nii, .nii.gz, or a DICOM series as a folder or a .zip"
    hint = "convert it to NIfTI, or give the folder that holds the DICOM files"
    if name.endswith(OTHER_FORMATS):
        hint = (
            "convert it to NIfTI, as with 3D Slicer or SimpleITK: "
            "sitk.WriteImage(sitk.ReadImage(FILE), 'ct.nii.gz')"
        )
    raise InputError(path, "file type", path.suffix or "no suffix", expected, hint)
