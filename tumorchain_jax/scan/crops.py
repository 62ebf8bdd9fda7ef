"""Crops: boxes of a scan on a grid of their own, finer than the model's grid of the whole scan.

A crop has the axes of the model's grid. In the slice its voxels are square; through the slices they
have a spacing of their own.
"""

import numpy as np

from tumorchain_jax.scan.orientation import canonical
from tumorchain_jax.scan.preprocess import GridTransform, PreprocessConfig, window
from tumorchain_jax.scan.volume import Volume

STRAY = 0.005
"""Share of a region's voxels that may lie outside of its box at either end of each axis: a
segmenter's false positives far away must not blow up the crop."""


def region_box(mask: np.ndarray, transform: GridTransform) -> np.ndarray | None:
    """Find the box around a region.

    Args:
        mask: bool `[D, H, W]` on a grid.
        transform: of the grid.

    Returns:
        float64 `[2, 3]`: least and largest edge along D, H, W in mm from the outer corner of the
        grid's first voxel; None where the mask is empty.
    """
    edges = []
    for axis in range(3):
        count = mask.sum(axis=tuple({0, 1, 2} - {axis}))
        total = count.sum()
        if not total:
            return None
        share = np.cumsum(count) / total
        first = int(np.argmax(share > STRAY))
        edges.append((first, int(np.argmax(share >= 1 - STRAY)) + 1))
    return np.array(edges).T * spacing_of(transform)


def jittered(
    box: np.ndarray, rng: np.random.Generator, shift_mm: float, scale: float
) -> np.ndarray:
    """Move a box at random by up to `shift_mm`, and scale it by up to `scale`, along each axis."""
    middle, size = box.mean(axis=0), box[1] - box[0]
    middle = middle + rng.uniform(-shift_mm, shift_mm, 3)
    size = size * (1 + rng.uniform(-scale, scale, 3))
    return np.stack([middle - size / 2, middle + size / 2])


def crop_transform(
    transform: GridTransform,
    box: np.ndarray,
    grid: tuple[int, int, int],
    finest_mm: tuple[float, float],
    margin_mm: float,
) -> GridTransform:
    """Place a crop around the middle of a box, at the finest spacing at which the box fits.

    Args:
        transform: of the grid that the box was found on.
        box: as from `region_box`.
        grid: voxels (D, H, W) of the crop.
        finest_mm: least spacing through the slices, and in the slice.
        margin_mm: that must fit around the box too.
    """
    needed = (box[1] - box[0] + 2 * margin_mm) / grid
    through, inside = max(finest_mm[0], needed[0]), max(finest_mm[1], needed[1], needed[2])
    scale = np.array([through, inside, inside]) / spacing_of(transform)
    middle = box.mean(axis=0) / spacing_of(transform) - 0.5
    to_index = np.diag([*scale, 1.0])
    to_index[:3, 3] = middle - scale * (np.array(grid) - 1) / 2
    return GridTransform(grid, transform.to_world @ to_index)


def finest_spacing(ct: Volume, spacing_mm: float) -> tuple[float, float]:
    """Least spacing of a crop through the slices, and in the slice; of the scan's own for 0 mm."""
    if spacing_mm:
        return spacing_mm, spacing_mm
    through, *inside = canonical(ct).spacing
    return through, max(inside)


def spacing_of(transform: GridTransform) -> np.ndarray:
    """Spacing along D, H, W in mm, float64 `[3]`."""
    return np.linalg.norm(transform.to_world[:3, :3], axis=0)


def locate(crop: GridTransform, scan: GridTransform) -> np.ndarray:
    """Describe a crop's place by numbers for a model, float32 `[7]`.

    Returns:
        its spacing along D, H, W in mm; its middle in the scan's grid along D, H, W from -1 (first
        edge) to 1 (last edge); and 1, as the crop is there.
    """
    middle = crop.world((np.array(crop.grid) - 1) / 2)
    index = (np.linalg.inv(scan.to_world) @ [*middle, 1.0])[:3]
    place = 2 * (index + 0.5) / np.array(scan.grid) - 1
    return np.array([*spacing_of(crop), *place, 1.0], np.float32)


def place(world: np.ndarray, grid: tuple[int, int, int], scan: GridTransform) -> GridTransform:
    """The inverse of `locate`, for a crop of `grid` voxels."""
    scale = world[:3].astype(np.float64) / spacing_of(scan)
    middle = (world[3:6] + 1.0) / 2 * np.array(scan.grid) - 0.5
    to_index = np.diag([*scale, 1.0])
    to_index[:3, 3] = middle - scale * (np.array(grid) - 1) / 2
    return GridTransform(grid, scan.to_world @ to_index)


def sample(ct: Volume, transform: GridTransform, config: PreprocessConfig) -> np.ndarray:
    """Resample a CT in HU onto a crop, windowed: float32 `[D, H, W]` in [0, 1].

    Along each axis a voxel is the mean of those within a voxel of the coarser of the two grids,
    weighted by a triangle: linear interpolation where the crop is finer than the scan, no aliasing
    where it is coarser. Outside of the scan it is 0.
    """
    scan = canonical(ct)
    to_index = np.linalg.inv(scan.affine) @ transform.to_world
    axes = [
        _axis_weights(to_index[axis, axis], to_index[axis, 3], transform.grid[axis], size)
        for axis, size in enumerate(scan.shape)
    ]
    (of_d, _), (of_h, _), (of_w, _) = axes
    block = window(scan.voxels[tuple(part for _, part in axes)], config)
    block = np.tensordot(of_d, block, 1)
    return np.ascontiguousarray(of_h @ block @ of_w.T)


def _axis_weights(
    scale: float, first: float, size_out: int, size_in: int
) -> tuple[np.ndarray, slice]:
    """Weights float32 `[size_out, n]` of the n input voxels in a slice, for each output voxel."""
    centre = first + scale * np.arange(size_out)
    inside = (centre >= -0.5) & (centre <= size_in - 0.5)
    reach = max(1.0, abs(scale))
    near = np.clip(centre, 0, size_in - 1)
    start = int(np.floor(max(near.min() - reach, 0)))
    stop = int(np.ceil(min(near.max() + reach, size_in - 1))) + 1
    weights = np.maximum(0, 1 - np.abs(np.arange(start, stop) - near[:, None]) / reach)
    weights /= weights.sum(axis=1, keepdims=True)
    return (weights * inside[:, None]).astype(np.float32), slice(start, stop)
