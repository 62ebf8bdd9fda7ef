"""nnU-Net's resampling of scans and of logits, axis by axis.

nnU-Net (nnunetv2/preprocessing/resampling/default_resampling.py) gives whole float64 volumes to
skimage's `resize`: spline interpolation by scipy.ndimage with the edge repeated, clipped to the
range that came in. A spline over three axes is one over each in turn, and along an axis it is a
matrix, zero but for a band. So both ways are matrix products of float32, and a part of the output
asks only for the part of the input beneath it.

Shape letters: D H W voxels in, E F G voxels out, V classes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isclose

import numpy as np
from scipy import ndimage

from tumorchain_jax.segmentation.plans import Spline

Shape = tuple[int, int, int]
Spacing = Sequence[float]
Weights = np.ndarray | None
"""Matrix of an axis: `[out, in]`, or None if its size stays."""

NEGLIGIBLE = 1e-10
# Spacings from an affine differ in the last digits, which must not matter.
CLOSE = 1e-5
# Outputs of one matrix product: few enough that its part of the matrix is mostly not zero, and that
# BLAS starts no threads, which cost such small products more than they give.
ROWS = 32
# Planes of labels that are made at once: few enough for the processor's cache.
PLANES = 4


@dataclass(frozen=True)
class Resize:
    """Resampling from one grid to another.

    Attributes:
        shape: of the new grid, `[E, F, G]`.
        weights: of each axis.
        separate: the coarse axis, if nnU-Net resamples the planes across it separately.
    """

    shape: Shape
    weights: tuple[Weights, Weights, Weights]
    separate: int | None


def resampled_shape(shape: Shape, spacing: Spacing, new_spacing: Spacing) -> Shape:
    """Return the voxels along each axis at another spacing (mm)."""
    # The inner rounding makes a tie a tie: it goes to the even number.
    d, h, w = (
        round(round(old / new * size, 5))
        for size, old, new in zip(shape, spacing, new_spacing, strict=True)
    )
    return d, h, w


def plan_resize(
    spline: Spline, shape: Shape, new_shape: Shape, spacing: Spacing, new_spacing: Spacing
) -> Resize:
    """How to resample a grid of `shape` and `spacing` (mm) as nnU-Net would."""
    separate = _separate_axis(spline, spacing, new_spacing)
    orders = [spline.order_z if axis == separate else spline.order for axis in range(3)]
    d, h, w = map(_axis_weights, shape, new_shape, orders)
    return Resize(new_shape, (d, h, w), separate)


def _separate_axis(spline: Spline, spacing: Spacing, new_spacing: Spacing) -> int | None:
    """The coarse axis, if one alone is far coarser than the finest, before or after."""
    coarse = spacing
    if spline.separate_z is None:
        most = spline.threshold * (1 + CLOSE)
        uneven = [each for each in (spacing, new_spacing) if max(each) / min(each) > most]
        if not uneven:
            return None
        coarse = uneven[0]
    elif not spline.separate_z:
        return None
    axes = [axis for axis, size in enumerate(coarse) if isclose(size, max(coarse), rel_tol=CLOSE)]
    return axes[0] if len(axes) == 1 else None


@lru_cache(maxsize=16)
def _axis_weights(size: int, new_size: int, order: int) -> Weights:
    if size == new_size:
        return None
    factors = 1 / (size / new_size), 1.0
    weights = ndimage.zoom(np.eye(size), factors, order=order, mode="nearest", grid_mode=True)
    weights[np.abs(weights) < NEGLIGIBLE] = 0
    return weights.astype(np.float32)


def resample(image: np.ndarray, resize: Resize) -> np.ndarray:
    """A scan `[D, H, W]` -> float32 `[E, F, G]`, within the range of values that came in."""
    apart = resize.separate
    # Planes that are resampled separately are clipped to their own ranges.
    within = tuple(axis for axis in range(3) if axis != apart)
    low, high = image.min(within, keepdims=True), image.max(within, keepdims=True)
    # Axes that shrink first: less is left for the others.
    for axis in sorted(within, key=lambda axis: resize.shape[axis] / image.shape[axis]):
        image = _along(axis, resize.weights[axis], image)
    if any(resize.weights[axis] is not None for axis in within):
        np.clip(image, low, high, out=image)
    return image if apart is None else _along(apart, resize.weights[apart], image)


def _along(axis: int, weights: Weights, image: np.ndarray) -> np.ndarray:
    """Resample one axis of three."""
    if weights is None:
        return image
    shape = list(image.shape)
    shape[axis] = len(weights)
    out = np.empty(shape, np.float32)
    source, target = np.moveaxis(image, axis, -2), np.moveaxis(out, axis, -2)
    for start in range(0, len(weights), ROWS):
        rows = weights[start : start + ROWS]
        first, end = _reach(rows)
        into = target[..., start : start + ROWS, :]
        np.matmul(rows[:, first:end], source[..., first:end, :], out=into)
    return out


def _reach(rows: np.ndarray) -> tuple[int, int]:
    """The half-open range of inputs that these outputs need."""
    used = np.flatnonzero(rows.any(axis=0))
    return int(used[0]), int(used[-1]) + 1


def resample_labels(
    slabs: Iterator[np.ndarray], resize: Resize, *, half_precision: bool = False
) -> np.ndarray:
    """Return the most likely class of every voxel of the finer grid, class by class.

    No more logits are held than the planes of a slab or two, and of the finer grid some planes of
    two classes.

    Args:
        slabs: logits `[V, some planes, H, W]`, from the first plane on, all planes in the end.
        resize: of order 0 or 1 along every axis: no other needs but the planes beside.
        half_precision: round resampled logits to float16, as nnU-Net does; of classes that are
            then equal, the first is taken.

    Returns:
        uint8 or (over 255 classes) uint16 `[E, F, G]`.
    """
    needs, (weights, *others) = _needs(resize), resize.weights
    window = next(slabs)
    labels = np.empty(resize.shape, np.uint8 if len(window) <= 255 else np.uint16)
    # The first plane in the window, and the first without labels yet.
    first = done = 0
    while done < len(labels):
        end = first + window.shape[1]
        if needs[done, 1] > end:
            gone = min(needs[done, 0], end) - first
            window, first = np.concatenate([window[:, gone:], next(slabs)], axis=1), first + gone
            continue
        block = needs[done : done + PLANES]
        block = block[block[:, 1] <= end]
        low, high, stop = block[0, 0], block[-1, 1], done + len(block)
        part = None if weights is None else weights[done:stop, low:high]
        planes = window[:, low - first : high - first]
        labels[done:stop] = _argmax(planes, (part, *others), half_precision)
        done = stop
    return labels


def _needs(resize: Resize) -> np.ndarray:
    """`[E, 2]`: the half-open range of planes that each output plane needs."""
    weights = resize.weights[0]
    if weights is None:
        planes = np.arange(resize.shape[0])
        return np.stack([planes, planes + 1], axis=1)
    return np.array([_reach(row[None]) for row in weights])


def _argmax(logits: np.ndarray, weights: Sequence[Weights], half_precision: bool) -> np.ndarray:
    """Classes `[E, F, G]` from logits `[V, D, H, W]`."""
    axes = [(axis, rows) for axis, rows in enumerate(weights) if rows is not None]
    # Axes that shrink first: less is left for the others.
    axes.sort(key=lambda item: len(item[1]) / item[1].shape[1])

    def resized(values: np.ndarray) -> np.ndarray:
        for axis, rows in axes:
            values = _along(axis, rows, values)
        return values.astype(np.float16).astype(np.float32) if half_precision else values

    best = resized(logits[0])
    labels = np.zeros(best.shape, np.uint16)
    for number, values in enumerate(map(resized, logits[1:]), 1):
        np.copyto(labels, number, where=values > best)
        best = np.maximum(best, values)
    return labels
