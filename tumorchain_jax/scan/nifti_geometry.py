"""Contradictions between the fields of a NIfTI header that state the geometry.

The affine comes from the sform where there is one. The qform, `pixdim` and `xyzt_units` say part of
the same again; a header in which they differ was changed by a program that wrote one of them only,
and nobody can say which of them is right.
"""

from pathlib import Path

import numpy as np
from nibabel.nifti1 import Nifti1Header
from nibabel.spatialimages import HeaderDataError

from tumorchain_jax.core.errors import InputError

# Single precision and quaternions that were rounded to a few digits differ by far less.
SPACING_TOLERANCE = 0.02
MAX_ANGLE_DEGREES = 2.0
SPATIAL_UNITS, MILLIMETRE, UNITS = 0x07, (0, 2), {1: "metre", 3: "micron"}
"""The bits of `xyzt_units` about space; codes that are read as mm (0: not stated); the others."""
HINT = "export the scan again from the original DICOM series, or fix the header"


def check_header_geometry(path: Path, header: Nifti1Header, affine: np.ndarray) -> None:
    """Refuse a header whose fields state different geometries.

    Args:
        affine: checked, from the sform, else from the qform.

    Raises:
        InputError: the unit is not the millimetre, `pixdim` is not the affine's spacing, or the
            sform's and the qform's axes differ (mirrored, swapped or turned).
    """
    unit = int(header["xyzt_units"]) & SPATIAL_UNITS
    if unit not in MILLIMETRE:
        found = UNITS.get(unit, f"code {unit}")
        raise InputError(path, "xyzt_units", found, "millimetre", HINT)
    spacing, pixdim = np.linalg.norm(affine[:3, :3], axis=0), header["pixdim"][1:4]
    if not np.allclose(pixdim, spacing, rtol=SPACING_TOLERANCE):
        found, expected = _mm(pixdim), f"{_mm(spacing)} as in the affine"
        raise InputError(path, "pixdim", found, expected, HINT)
    if min(header["sform_code"], header["qform_code"]) > 0:
        _check_forms(path, header, affine)


def _check_forms(path: Path, header: Nifti1Header, sform: np.ndarray) -> None:
    try:
        qform = header.get_qform()
    except (HeaderDataError, ValueError):
        return  # the sform places the scan: a qform that is no rotation states nothing
    directions = [form[:3, :3] / np.linalg.norm(form[:3, :3], axis=0) for form in (sform, qform)]
    cosines = np.einsum("ij,ij->j", *directions)
    if cosines.min() < np.cos(np.deg2rad(MAX_ANGLE_DEGREES)):
        axis = int(cosines.argmin())
        angle = np.rad2deg(np.arccos(np.clip(cosines[axis], -1, 1)))
        found = f"axis {axis + 1} turned by {angle:.0f} degrees between sform and qform"
        raise InputError(path, "sform/qform", found, "the same directions", HINT)


def _mm(sizes: np.ndarray) -> str:
    return " x ".join(f"{size:g}" for size in sizes) + " mm"
