"""Slice headers -> one checked stack: sorted along its normal, evenly spaced, untilted."""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.scan.checks import MAX_AXIS_COSINE, MIN_SIZE

# Two slices nearer than this lie at the same place.
SAME_PLACE_MM = 0.01
# How far a step between slices may be from the usual one: positions are rounded decimal strings.
STEP_TOLERANCE_MM, STEP_TOLERANCE = 0.01, 0.02
# How far a slice may lie beside the line through the others, before the angle is looked at.
BESIDE_MM = 0.05


@dataclass(frozen=True)
class Slice:
    """Geometry and scaling of one CT slice; lengths in mm, in DICOM's LPS."""

    path: Path
    series: str
    patient: str
    frame_of_reference: str
    acquisition: str
    rows: int
    columns: int
    position: np.ndarray
    along_row: np.ndarray
    along_column: np.ndarray
    row_spacing: float
    column_spacing: float
    slope: float
    intercept: float

    @property
    def normal(self) -> np.ndarray:
        """Return the unit vector across the slice."""
        return np.cross(self.along_row, self.along_column)


def affine(slices: list[Slice]) -> np.ndarray:
    """Return the affine of a checked stack, (column, row, slice) -> mm RAS+, float64 `[4, 4]`."""
    first, last = slices[0], slices[-1]
    lps = np.eye(4)
    lps[:3, 0] = first.along_row * first.column_spacing
    lps[:3, 1] = first.along_column * first.row_spacing
    lps[:3, 2] = (last.position - first.position) / (len(slices) - 1)
    lps[:3, 3] = first.position
    return np.diag([-1.0, -1.0, 1.0, 1.0]) @ lps


def checked_stack(folder: Path, slices: list[Slice]) -> list[Slice]:
    """Sort slices along their normal.

    Raises:
        InputError: they are not one evenly spaced, untilted stack.
    """
    _check_same(folder, slices)
    if len(slices) < MIN_SIZE:
        expected = f"at least {MIN_SIZE}"
        hint = "give the folder of the whole series"
        raise InputError(folder, "slices", f"{len(slices)} CT slices", expected, hint)
    normal = slices[0].normal
    ordered = sorted(slices, key=lambda slice_: float(slice_.position @ normal))
    _check_steps(folder, ordered)
    _check_tilt(folder, ordered)
    _check_acquisitions(folder, ordered)
    return ordered


def _check_same(folder: Path, slices: list[Slice]) -> None:
    """Refuse slices of several series, orientations, matrices or pixel sizes."""
    for keyword, what, values in (
        ("SeriesInstanceUID", "series", {slice_.series for slice_ in slices}),
        ("PatientID", "patients", {slice_.patient for slice_ in slices}),
        ("FrameOfReferenceUID", "frames", {slice_.frame_of_reference for slice_ in slices}),
    ):
        if len(values) > 1:
            hint = "move each series into its own folder"
            raise InputError(folder, keyword, f"{len(values)} {what}", "one", hint)
    first = slices[0]
    _check_directions(first)
    for other in slices[1:]:
        turned = max(
            np.abs(first.along_row - other.along_row).max(),
            np.abs(first.along_column - other.along_column).max(),
        )
        if turned > MAX_AXIS_COSINE:
            hint = "remove localizers and other planes from the folder"
            expected = f"the orientation of {first.path.name}"
            found = "another orientation"
            raise InputError(other.path, "ImageOrientationPatient", found, expected, hint)
        if (first.rows, first.columns) != (other.rows, other.columns):
            found = f"{other.rows} x {other.columns}"
            expected = f"{first.rows} x {first.columns} as in {first.path.name}"
            raise InputError(other.path, "Rows/Columns", found, expected, "remove other images")
        pixel = (first.row_spacing, first.column_spacing)
        if not np.allclose(pixel, (other.row_spacing, other.column_spacing), rtol=1e-3):
            found = f"{other.row_spacing:g} x {other.column_spacing:g} mm"
            expected = f"{pixel[0]:g} x {pixel[1]:g} mm as in {first.path.name}"
            raise InputError(other.path, "PixelSpacing", found, expected, "remove other images")


def _check_directions(slice_: Slice) -> None:
    directions = np.stack([slice_.along_row, slice_.along_column])
    if np.abs(directions @ directions.T - np.eye(2)).max() > MAX_AXIS_COSINE:
        expected = "two unit vectors at right angles"
        hint = "export the series again"
        found = " ".join(f"{value:g}" for value in directions.ravel())
        raise InputError(slice_.path, "ImageOrientationPatient", found, expected, hint)


def _check_steps(folder: Path, ordered: list[Slice]) -> None:
    """Refuse a slice twice, a missing one, and uneven steps."""
    places = np.array([slice_.position @ ordered[0].normal for slice_ in ordered])
    steps = np.diff(places)
    if steps.min() < SAME_PLACE_MM:
        at = int(steps.argmin())
        pair = f"{ordered[at].path.name} and {ordered[at + 1].path.name} at the same place"
        hint = "remove the copies, or the second series or phase"
        raise InputError(folder, "ImagePositionPatient", pair, "one slice at each place", hint)
    usual = float(np.median(steps))
    at = int(np.abs(steps - usual).argmax())
    if abs(steps[at] - usual) <= STEP_TOLERANCE_MM + STEP_TOLERANCE * usual:
        return
    between = f"between {ordered[at].path.name} and {ordered[at + 1].path.name}"
    missing = steps[at] / usual - 1
    if missing > 0.5 and abs(missing - round(missing)) < 0.1:
        found = f"{round(missing)} missing slice(s) {between}"
    else:
        found = f"a step of {steps[at]:g} mm {between}"
    hint = "give the complete series, or resample it to even spacing"
    raise InputError(folder, "ImagePositionPatient", found, f"a slice every {usual:g} mm", hint)


def _check_acquisitions(folder: Path, ordered: list[Slice]) -> None:
    """Refuse acquisitions whose slices alternate, as two phases at the same level do.

    A series may be made of several acquisitions one above the other.
    """
    numbers = [slice_.acquisition for slice_ in ordered]
    runs = 1 + sum(a != b for a, b in pairwise(numbers))
    if runs > len(set(numbers)):
        found = f"{len(set(numbers))} acquisitions whose slices alternate"
        hint = "move each acquisition into its own folder"
        raise InputError(folder, "AcquisitionNumber", found, "one, or one above another", hint)


def _check_tilt(folder: Path, ordered: list[Slice]) -> None:
    """Refuse a stack that does not run straight along its normal."""
    first = ordered[0]
    steps = np.array([slice_.position - first.position for slice_ in ordered])
    along = steps @ first.normal
    beside = np.linalg.norm(steps - np.outer(along, first.normal), axis=1)
    excess = beside - MAX_AXIS_COSINE * along
    if excess.max() > BESIDE_MM:
        at = int(excess.argmax())
        angle = np.rad2deg(np.arctan2(beside[at], along[at]))
        found = f"slices shifted sideways ({angle:.1f} degrees, gantry tilt)"
        hint = "resample the series to untilted slices"
        raise InputError(folder, "ImagePositionPatient", found, "a straight stack", hint)
