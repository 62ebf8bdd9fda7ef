"""A CT of any orientation, spacing and size -> the model's fixed grid, and from there back to mm.

The steps are: canonical frame, crop to the body, window, zero-pad in-plane to a square in mm,
resize. All are separable by axis, so one affine maps the model grid to the patient, and label maps
are resampled by the same affine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from scipy import ndimage

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.scan.orientation import CANONICAL, canonical
from tumorchain_jax.scan.volume import Volume

BODY_HU = -500.0
# The body is looked for on a coarser grid of about this many millimetres: quick, and fine enough.
BODY_SEARCH_MM = 4.0

Box = tuple[float, float, float, float, float, float]
"""(min of three axes, max of three axes)."""
Numbers = Sequence[float | int] | np.ndarray


@dataclass(frozen=True)
class PreprocessConfig:
    """Preprocessing that a model was trained with; written into every output.

    Attributes:
        grid: voxels (D, H, W) of the model's input.
        level: centre of the CT window in HU.
        width: width of the CT window in HU; [level - width/2, level + width/2] becomes [0, 1].
    """

    grid: tuple[int, int, int] = (32, 256, 256)
    level: float = 40.0
    width: float = 400.0

    def __post_init__(self) -> None:
        if len(self.grid) != 3 or min(self.grid) < 1:
            raise InputError("preprocess", "grid", f"{self.grid}", "D, H, W >= 1", "set the grid")
        if not (np.isfinite(self.level) and np.isfinite(self.width) and self.width > 0):
            found = f"level {self.level}, width {self.width}"
            raise InputError("preprocess", "window", found, "a width > 0 HU", "set the window")


@dataclass(frozen=True)
class GridTransform:
    """Place of the model grid in the patient.

    Attributes:
        grid: voxels (D, H, W) of the model grid.
        to_world: float64 `[4, 4]`; voxel index (d, h, w, 1) of a cell's centre -> mm RAS+.
    """

    grid: tuple[int, int, int]
    to_world: np.ndarray

    def world(self, points: Numbers) -> np.ndarray:
        """Map `[..., 3]` grid indices (d, h, w), fractions allowed, to mm (x, y, z)."""
        return _apply(self.to_world, points)

    def box_to_mm(self, box: Numbers) -> Box:
        """Return the tightest box in mm around a box of the grid.

        Args:
            box: (min d, h, w, max d, h, w); 0 is the outer edge of the first voxel of the grid,
                1 that of the last.

        Returns:
            (min x, y, z, max x, y, z) in mm RAS+. Where the scan is oblique this box is larger
            than the one that came in, as its sides run along the patient's axes.
        """
        corners = _corners(box) * self.grid - 0.5
        return _bounds(self.world(corners))


@dataclass(frozen=True)
class PreparedScan:
    """The model's input and how it was made.

    Attributes:
        image: float32 `[D, H, W]` in [0, 1]; D runs to superior, H to posterior, W to the
            patient's left.
        transform: where its voxels lie in the patient.
        warnings: one line each, for the report.
        parameters: every step's numbers, for JSON.
    """

    image: np.ndarray
    transform: GridTransform
    warnings: tuple[str, ...]
    parameters: dict[str, Any]


def preprocess(ct: Volume, config: PreprocessConfig) -> PreparedScan:
    """Bring a CT in HU onto the model grid.

    The image equals `torch.nn.functional.interpolate(mode="trilinear", align_corners=False)` of
    the windowed, cropped and padded scan (no antialiasing).
    """
    scan = canonical(ct)
    crop = _body_box(scan)
    warnings = []
    if crop is None:
        crop = tuple(slice(0, size) for size in scan.shape)
        warnings.append(f"no body (voxels over {BODY_HU:g} HU) found: the whole scan is used")
    body = scan.voxels[crop]
    padding = _square_padding(body.shape, scan.spacing)
    transform = _grid_transform(scan.affine, crop, padding, config.grid)
    crop_edges = [part.start for part in crop] + [part.stop for part in crop]
    parameters = {
        "grid": list(config.grid),
        "level": config.level,
        "width": config.width,
        "frame": CANONICAL,
        "source_shape": list(ct.shape),
        "source_spacing_mm": list(ct.spacing),
        "crop_mm": list(_bounds(_apply(scan.affine, _corners(crop_edges) - 0.5))),
        "padding_voxels": [list(pair) for pair in padding],
        "to_world": transform.to_world.tolist(),
    }
    image = _resize(body, padding, config)
    return PreparedScan(image, transform, tuple(warnings), parameters)


def resample_labels(labels: Volume, transform: GridTransform) -> np.ndarray:
    """Resample a label map on the CT's own grid to uint8 `[D, H, W]` on the model grid.

    Each voxel takes the label at its centre, 0 outside the map.
    """
    source = canonical(labels)
    to_index = np.linalg.inv(source.affine) @ transform.to_world
    picked, inside = [], []
    for axis, size in enumerate(transform.grid):
        centre = to_index[axis, axis] * np.arange(size) + to_index[axis, 3]
        # A centre midway between two voxels must not fall to either by a rounding error.
        nearest = np.floor(np.round(centre, 6) + 0.5).astype(int)
        hit = (nearest >= 0) & (nearest < source.shape[axis])
        inside.append(np.flatnonzero(hit))
        picked.append(nearest[hit])
    out = np.zeros(transform.grid, np.uint8)
    out[np.ix_(*inside)] = source.voxels[np.ix_(*picked)]
    return out


def _body_box(scan: Volume) -> tuple[slice, ...] | None:
    """Find the largest component denser than air; return its box with a coarse voxel to spare."""
    steps = [max(1, round(BODY_SEARCH_MM / spacing)) for spacing in scan.spacing]
    dense = scan.voxels[tuple(slice(None, None, step) for step in steps)] > BODY_HU
    components, count = ndimage.label(dense)
    if count == 0:
        return None
    largest = np.bincount(components.ravel())[1:].argmax()
    body = components == largest + 1
    box = []
    for axis, (step, size) in enumerate(zip(steps, scan.shape, strict=True)):
        filled = np.flatnonzero(body.any(axis=tuple({0, 1, 2} - {axis})))
        start, stop = int(filled[0]), int(filled[-1]) + 1
        box.append(slice(max(0, (start - 1) * step), min(size, stop * step + 1)))
    return tuple(box)


def _square_padding(
    shape: tuple[int, ...], spacing: tuple[float, float, float]
) -> tuple[tuple[int, int], ...]:
    """Count the voxels to add (before, after) along D, H, W so that H and W are equal in mm."""
    side = max(shape[1] * spacing[1], shape[2] * spacing[2])
    totals = [0] + [round(side / spacing[axis]) - shape[axis] for axis in (1, 2)]
    return tuple((total // 2, total - total // 2) for total in totals)


def _grid_transform(
    affine: np.ndarray,
    crop: tuple[slice, ...],
    padding: tuple[tuple[int, int], ...],
    grid: tuple[int, int, int],
) -> GridTransform:
    """Place the model grid: its outer edges are those of the padded crop."""
    to_index = np.eye(4)
    for axis, (part, (before, after), size) in enumerate(zip(crop, padding, grid, strict=True)):
        scale = (part.stop - part.start + before + after) / size
        to_index[axis, axis] = scale
        to_index[axis, 3] = part.start - before + 0.5 * scale - 0.5
    return GridTransform(grid, affine @ to_index)


def _resize(
    body: np.ndarray, padding: tuple[tuple[int, int], ...], config: PreprocessConfig
) -> np.ndarray:
    """Window, pad and resize one output slice at a time; no second copy of the scan is made."""
    image = np.empty(config.grid, np.float32)
    neighbours = _neighbours(body.shape[0], config.grid[0])
    for depth, (below, above, weight) in enumerate(zip(*neighbours, strict=True)):
        low, high = window(body[below], config), window(body[above], config)
        plane = np.pad(low + (high - low) * weight, padding[1:])
        rows = _resize_first_axis(plane, config.grid[1])
        image[depth] = _resize_first_axis(rows.T, config.grid[2]).T
    return image


def window(hu: np.ndarray, config: PreprocessConfig) -> np.ndarray:
    """Map the CT window of HU to float32 in [0, 1], clipped."""
    scaled = (hu.astype(np.float32) - (config.level - config.width / 2)) / config.width
    return np.clip(scaled, 0.0, 1.0)


def _resize_first_axis(plane: np.ndarray, size: int) -> np.ndarray:
    below, above, weight = _neighbours(plane.shape[0], size)
    low = plane[below]
    return low + (plane[above] - low) * weight[:, None]


def _neighbours(size_in: int, size_out: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find the two input voxels around each output voxel's centre, and the weight of the second."""
    centre = np.maximum((np.arange(size_out) + 0.5) * size_in / size_out - 0.5, 0.0)
    below = np.floor(centre).astype(int)
    above = np.minimum(below + 1, size_in - 1)
    return below, above, (centre - below).astype(np.float32)


def _apply(matrix: np.ndarray, points: Numbers) -> np.ndarray:
    return np.asarray(points, np.float64) @ matrix[:3, :3].T + matrix[:3, 3]


def _corners(box: Numbers) -> np.ndarray:
    """Return the `[8, 3]` corners of (min of three axes, max of three axes)."""
    ends = np.asarray(box, np.float64).reshape(2, 3)
    return np.array(list(product(*ends.T)))


def _bounds(corners: np.ndarray) -> Box:
    a, b, c = corners.min(axis=0).tolist()
    d, e, f = corners.max(axis=0).tolist()
    return a, b, c, d, e, f
