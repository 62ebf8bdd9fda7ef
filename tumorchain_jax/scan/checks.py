"""Checks of a CT and its label map before anything is computed from them.

Each check raises `InputError`; the file readers check the geometry of headers before any voxel is
read.
"""

import numpy as np

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.scan.volume import Volume

MIN_SIZE, MAX_SIZE = 8, 4096
MAX_VOXELS = 1024**3
MIN_SPACING_MM, MAX_SPACING_MM = 0.1, 20.0
# |cosine| between two axes: 0.002 is a tilt of 0.1 degree.
MAX_AXIS_COSINE = 2e-3

AIR_HU = (-1100.0, -200.0)
BONE_HU = 100.0
PADDING_HU = -1500.0
# Below this only a fill value is possible; above MAX_HU not even metal on an extended scale.
MIN_HU, MAX_HU = -5000.0, 65535.0

MAX_LABEL = 117
# TotalSegmentator ids of organs that hold neither fat nor air, and of bones; what share of their
# voxels may have other HU. With their own map 30 phantoms and 3 real CTs are at 0.02 or less; with
# another patient's map on the same grid, or their own flipped along any axis, phantoms are at 0.19
# or more.
SOLID, BONES = (1, 2, 3, 5, 51, 52), (*range(25, 51), 77, 78)
SOLID_HU, BONE_HU_LIMITS = (-50.0, 500.0), (-50.0, np.inf)
MISPLACED_SHARE, FEWEST_VOXELS = 0.15, 100
LESION_AIR_HU = -500.0
# How far a corner of the label map may lie from the CT's, in voxels.
GRID_TOLERANCE = 0.1


def check_shape(subject: object, shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return the three sizes of a volume; trailing axes of one voxel are dropped."""
    found = " x ".join(str(size) for size in shape)
    sizes = list(shape)
    while len(sizes) > 3 and sizes[-1] == 1:
        sizes.pop()
    if len(sizes) != 3:
        hint = "give one 3D volume; of a series over time, one phase"
        raise InputError(subject, "dim", f"{len(sizes)}D ({found})", "3D", hint)
    if min(sizes) < MIN_SIZE or max(sizes) > MAX_SIZE:
        expected = f"{MIN_SIZE} to {MAX_SIZE} voxels (slices) along each axis"
        raise InputError(subject, "dim", found, expected, "give a whole scan")
    i, j, k = sizes
    if i * j * k > MAX_VOXELS:
        expected = f"at most {MAX_VOXELS} voxels"
        raise InputError(subject, "dim", found, expected, "crop or resample the scan")
    return i, j, k


def check_dtype(subject: object, dtype: np.dtype) -> None:
    """Refuse voxels other than integers and floats, such as colours and complex numbers."""
    if dtype.kind not in "iuf":
        found = "colours" if dtype.names else str(dtype)
        hint = "convert the scan to int16 or float32"
        raise InputError(subject, "datatype", found, "integers or floats", hint)


def check_affine(subject: object, affine: np.ndarray) -> None:
    """Refuse voxel axes that are not finite, at right angles and of a plausible spacing."""
    hint = "export the scan again with its geometry"
    if affine.shape != (4, 4):
        raise InputError(subject, "affine", f"shape {affine.shape}", "4 x 4 numbers", hint)
    if not np.isfinite(affine).all():
        raise InputError(subject, "affine", "NaN or infinity", "finite numbers", hint)
    if not np.allclose(affine[3], (0, 0, 0, 1)):
        raise InputError(subject, "affine", f"last row {affine[3]}", "0 0 0 1", hint)
    check_spacing(subject, "affine", np.linalg.norm(affine[:3, :3], axis=0))
    directions = affine[:3, :3] / np.linalg.norm(affine[:3, :3], axis=0)
    if abs(np.linalg.det(directions)) < 1e-3:
        raise InputError(subject, "affine", "a singular matrix", "three independent axes", hint)
    cosine = np.abs(directions.T @ directions - np.eye(3)).max()
    if cosine > MAX_AXIS_COSINE:
        found = f"axes {np.rad2deg(np.arcsin(cosine)):.2g} degrees off a right angle"
        hint = "undo the shear (gantry tilt) by resampling the scan"
        raise InputError(subject, "affine", found, "axes at right angles", hint)


def check_spacing(subject: object, field: str, spacing: np.ndarray) -> None:
    """Refuse millimetres between voxel centres that a CT cannot have."""
    # Written so that NaN fails too.
    if not ((spacing >= MIN_SPACING_MM) & (spacing <= MAX_SPACING_MM)).all():
        found = "spacing " + " x ".join(f"{size:g}" for size in spacing) + " mm"
        expected = f"{MIN_SPACING_MM:g} to {MAX_SPACING_MM:g} mm"
        hint = "export the scan again with its spacing in mm"
        raise InputError(subject, field, found, expected, hint)


def check_ct(ct: Volume) -> tuple[str, ...]:
    """Refuse voxels that cannot be Hounsfield units; return warnings about those that can."""
    low, high = float(ct.voxels.min()), float(ct.voxels.max())
    found = f"{low:g} to {high:g}"
    if not (np.isfinite(low) and np.isfinite(high)):
        hint = "replace them, e.g. with -1000 HU outside the field of view"
        raise InputError(ct.source, "voxels", "NaN or infinity", "finite HU", hint)
    if low == high:
        raise InputError(ct.source, "voxels", f"only {low:g}", "an image", "export the scan again")
    # Plane by plane: the first one mostly tells, and no mask of the whole scan is held.
    has_air = any(((p > AIR_HU[0]) & (p < AIR_HU[1])).any() for p in ct.voxels.T)
    if not has_air or high <= BONE_HU:
        expected = f"Hounsfield units (air under {AIR_HU[1]:g}, bone over {BONE_HU:g})"
        hint = "give the original CT, not a PET, an MR, a windowed picture or unscaled values"
        raise InputError(ct.source, "voxels", found, expected, hint)
    fill = np.unique(ct.voxels[ct.voxels < MIN_HU])
    if fill.size > 1 or high > MAX_HU:
        hint = "check the rescale slope and intercept"
        raise InputError(ct.source, "voxels", found, f"HU in {MIN_HU:g} to {MAX_HU:g}", hint)
    if low < PADDING_HU:
        return (f"voxels under {PADDING_HU:g} HU (down to {low:g}) are taken as padding: air",)
    return ()


def check_mask(labels: Volume, ct: Volume) -> tuple[str, ...]:
    """Refuse a label map that is not on the CT's grid or not of known labels; return warnings."""
    hint = f"give the label map made from {ct.source}"
    if labels.shape != ct.shape:
        raise InputError(labels.source, "dim", f"{labels.shape}", f"the CT's {ct.shape}", hint)
    corners = np.array(list(np.ndindex(2, 2, 2))) * (np.array(ct.shape) - 1)
    corners = np.concatenate([corners, np.ones((8, 1))], axis=1)
    apart = np.abs(corners @ (labels.affine - ct.affine).T).max()
    if not apart <= GRID_TOLERANCE * min(ct.spacing):
        found = f"a grid {apart:.3g} mm away from the CT's"
        raise InputError(labels.source, "affine", found, "the CT's own grid", hint)
    low, high = labels.voxels.min(), labels.voxels.max()
    expected = f"TotalSegmentator labels 0 to {MAX_LABEL}"
    if not (low >= 0 and high <= MAX_LABEL):
        hint = "give the label map of TotalSegmentator's task `total`"
        raise InputError(labels.source, "labels", f"{low:g} to {high:g}", expected, hint)
    if labels.voxels.dtype.kind == "f":
        fractions = labels.voxels[labels.voxels % 1 != 0]
        if fractions.size:
            hint = "give whole labels, not probabilities or an interpolated map"
            raise InputError(labels.source, "labels", f"{fractions[0]:g}", expected, hint)
    return () if high else (f"{labels.source}: the label map is empty",)


def check_fit(labels: Volume, ct: Volume) -> None:
    """Refuse a label map whose solid organs or bones lie in fat or air: that of another scan.

    Hollow organs, lungs and muscles may hold anything, so they are not checked.
    """
    for what, ids, (low, high) in (
        ("solid organs", SOLID, SOLID_HU),
        ("bones", BONES, BONE_HU_LIMITS),
    ):
        hu = ct.voxels[np.isin(labels.voxels, ids)]
        misplaced = float(np.mean((hu < low) | (hu > high))) if len(hu) >= FEWEST_VOXELS else 0.0
        if misplaced > MISPLACED_SHARE:
            found = f"{misplaced:.0%} of the voxels of {what} in fat, air or metal"
            expected = f"at most {MISPLACED_SHARE:.0%}"
            hint = f"give the label map made from {ct.source}, not that of another scan"
            raise InputError(labels.source, "labels", found, expected, hint)


def check_lesions(lesions: Volume, ct: Volume) -> None:
    """Refuse a lesion map with a lesion in air, such as outside the body or in a lung."""
    for number in np.unique(lesions.voxels[lesions.voxels > 0]).tolist():
        median = float(np.median(ct.voxels[lesions.voxels == number]))
        if median < LESION_AIR_HU:
            found = f"lesion {number} in air (median {median:g} HU)"
            expected = f"tissue, over {LESION_AIR_HU:g} HU"
            hint = f"give the lesion map made from {ct.source}"
            raise InputError(lesions.source, "lesions", found, expected, hint)
