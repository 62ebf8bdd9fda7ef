"""nnU-Net's sliding window: tiles that overlap, weighted by a Gaussian, through one program.

Positions and weights are those of nnunetv2/inference/sliding_window_prediction.py. Tiles are run
row by row along the first axis, and what no later tile reaches leaves at once: of a scan's logits
there is never more than a band as deep as a tile.

Shape letters: B tiles at once, D H W voxels of a tile, E F G voxels of a scan, V classes.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from itertools import combinations, product
from math import ceil
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int
from scipy import ndimage
from tqdm import tqdm

from tumorchain_jax.models.unet3d.model import UNet3D, UNet3DConfig

Shape = tuple[int, int, int]
Params = Any
Program = Callable[[Params, Any], Array]
"""Parameters and a batch of tiles `[B, D, H, W]` -> their logits `[B, D, H, W, V]`."""

LARGEST_WEIGHT = 10
SIGMA = 1 / 8
# Planes of logits that are handed on at once.
SLAB = 16


def tile_starts(size: int, tile: int, step: float) -> list[int]:
    """Return the starts of tiles along an axis: evenly spread, at most `step` of a tile apart.

    Args:
        size: of the scan, no less than the tile's.
    """
    count = ceil((size - tile) / (tile * step)) + 1
    spread = (size - tile) / max(count - 1, 1)
    return [int(np.round(spread * i)) for i in range(count)]


def gaussian(tile: Shape) -> np.ndarray:
    """float32 `[D, H, W]`, nnU-Net's float16 numbers: 10 in the middle, nowhere 0."""
    peak = np.zeros(tile)
    peak[tuple(size // 2 for size in tile)] = 1
    weights = ndimage.gaussian_filter(peak, [size * SIGMA for size in tile], mode="constant")
    weights /= weights.max() / LARGEST_WEIGHT
    # Rounded twice, as PyTorch does on its way from float64 to float16.
    weights = weights.astype(np.float32).astype(np.float16).astype(np.float32)
    weights[weights == 0] = weights[weights > 0].min()
    return weights


def tile_program(
    network: UNet3DConfig, mirror_axes: tuple[int, ...], dtype: DTypeLike = jnp.float32
) -> Program:
    """Make the program of a batch of tiles: the mean over mirror images along all sets of axes.

    Args:
        mirror_axes: of a tile (0, 1, 2); none: the tile as it is.
        dtype: of the network's features; logits are float32.
    """
    model = UNet3D(network, dtype)
    sets = [chosen for n in range(len(mirror_axes) + 1) for chosen in combinations(mirror_axes, n)]
    # NumPy: ahead-of-time compilation has no device for an array of JAX.
    mirrored: Any = np.array([[axis in chosen for axis in mirror_axes] for chosen in sets])

    def logits_of(params: Params, tiles: Array) -> Array:
        return cast(Array, model.apply({"params": params}, tiles[..., None]))

    def flip(x: Array, chosen: Array) -> Array:
        for axis, on in zip(mirror_axes, chosen, strict=True):
            x = jnp.where(on, jnp.flip(x, axis + 1), x)
        return x

    def program(params: Params, tiles: Float[Array, "B D H W"]) -> Float[Array, "B D H W V"]:
        def add(total: Array, chosen: Array) -> tuple[Array, None]:
            return total + flip(logits_of(params, flip(tiles, chosen)), chosen), None

        if not mirror_axes:
            return logits_of(params, tiles)
        # A loop, so that the network is compiled once and not once per mirror image.
        zeros = jnp.zeros((*tiles.shape, network.classes))
        total, _ = jax.lax.scan(add, zeros, mirrored)
        return total / len(sets)

    return program


class Band:
    """Weighted sums of logits over as many planes of a scan as a tile is deep, on the device."""

    def __init__(self, shape: Shape, classes: int, dtype: Any):
        self._sums = jnp.zeros((*shape, classes), dtype)
        self._weights = jnp.zeros(shape, dtype)

    def add(
        self, logits: Float[Array, "B D H W V"], index: int, weights: Array, start: Sequence[int]
    ) -> None:
        """Add a tile of a batch at `start` within the band's planes."""
        at = np.array(start)
        self._sums, self._weights = _add(self._sums, self._weights, logits, index, weights, at)
        # Otherwise a host ahead of its device allocates memory for many batches.
        self._sums.block_until_ready()

    def mean(self, first: int, planes: int) -> np.ndarray:
        """Return the mean logits `[V, planes, F, G]` from plane `first` on."""
        return np.asarray(_mean(self._sums, self._weights, first, planes))

    def leave(self, planes: int) -> None:
        """Drop planes at the front and make room for as many at the back."""
        self._sums, self._weights = _shift(self._sums, planes), _shift(self._weights, planes)


@partial(jax.jit, donate_argnums=(0, 1))
def _add(
    sums: Float[Array, "D F G V"],
    totals: Float[Array, "D F G"],
    logits: Float[Array, "B D H W V"],
    index: Int[Array, ""],
    weights: Float[Array, "D H W"],
    start: Int[Array, "2"],
) -> tuple[Float[Array, "D F G V"], Float[Array, "D F G"]]:
    """Add a weighted tile, rounded to the sums' type."""

    def place(band: Array, tile: Array) -> Array:
        at = (0, start[0], start[1], 0)[: band.ndim]
        here = jax.lax.dynamic_slice(band, at, tile.shape)
        return jax.lax.dynamic_update_slice(band, (here + tile).astype(band.dtype), at)

    return place(sums, logits[index] * weights[..., None]), place(totals, weights)


@partial(jax.jit, static_argnames="planes")
def _mean(
    sums: Float[Array, "D F G V"], totals: Float[Array, "D F G"], first: Int[Array, ""], planes: int
) -> Float[Array, "V E F G"]:
    # In float32: the inverse of a small weight is beyond float16.
    numerator, denominator = (
        jax.lax.dynamic_slice_in_dim(band, first, planes).astype(jnp.float32)
        for band in (sums, totals)
    )
    return jnp.moveaxis((numerator / denominator[..., None]).astype(sums.dtype), -1, 0)


@partial(jax.jit, donate_argnums=0)
def _shift(band: Array, planes: Int[Array, ""]) -> Array:
    """Move planes to the front, zeros after them, plane by plane, without a second band."""
    depth = len(band)

    def move(plane: Array, band: Array) -> Array:
        source = plane + planes
        moved = jnp.where(source < depth, band[jnp.minimum(source, depth - 1)], 0)
        return band.at[plane].set(moved)

    return jax.lax.fori_loop(0, depth, move, band)


def sliding_window(
    image: np.ndarray,
    program: Program,
    folds: Sequence[Params],
    tile: Shape,
    classes: int,
    *,
    step: float,
    tiles_at_once: int,
    half_precision_sum: bool,
) -> Iterator[np.ndarray]:
    """Compute the logits of a scan, slab by slab along its first axis.

    Args:
        image: float32 `[E, F, G]`, preprocessed; one smaller than a tile gets zeros around it.
        folds: parameters of each, over whose logits the mean is taken.
        half_precision_sum: sum in float16, each fold apart, as nnU-Net does.

    Yields:
        float32 `[V, some planes, F, G]`.
    """
    padding = [_padding(size, least) for size, least in zip(image.shape, tile, strict=True)]
    depth, height, width = (
        slice(before, before + size) for (before, _), size in zip(padding, image.shape, strict=True)
    )
    image = np.pad(image, padding)
    each = [tile_starts(size, length, step) for size, length in zip(image.shape, tile, strict=True)]
    corners = list(product(*each[1:]))
    ends = [*each[0][1:], image.shape[0]]
    weights = jnp.asarray(gaussian(tile))
    dtype, count = (np.float16, len(folds)) if half_precision_sum else (np.float32, 1)
    bands = [Band((tile[0], *image.shape[1:]), classes, dtype) for _ in range(count)]

    with tqdm(total=len(ends) * len(corners), desc="tiles", disable=None) as bar:
        for plane, end in zip(each[0], ends, strict=True):
            for number in range(0, len(corners), tiles_at_once):
                batch = corners[number : number + tiles_at_once]
                # The last batch of a row is filled up with its last tile.
                filled = batch + batch[-1:] * (tiles_at_once - len(batch))
                tiles = np.stack([image[_box((plane, *corner), tile)] for corner in filled])
                for fold, params in enumerate(folds):
                    logits = program(params, tiles)
                    for index, corner in enumerate(batch):
                        bands[fold % count].add(logits, index, weights, corner)
                bar.update(len(batch))
            # Planes that no later row of tiles reaches, without padding (if this is the only row).
            stop = min(end, depth.stop) - plane
            for first in range(depth.start, stop, SLAB):
                means = [band.mean(first, min(SLAB, stop - first)) for band in bands]
                # In the sums' type, as nnU-Net takes the mean over folds.
                mean = reduce(np.add, means) / dtype(count)
                yield mean[:, :, height, width].astype(np.float32)
            for band in bands:
                band.leave(end - plane)


def _padding(size: int, least: int) -> tuple[int, int]:
    """Voxels before and after, the odd one after."""
    missing = max(least - size, 0)
    return missing // 2, missing - missing // 2


def _box(start: Sequence[int], tile: Shape) -> tuple[slice, ...]:
    return tuple(slice(at, at + size) for at, size in zip(start, tile, strict=True))
