from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tumorchain_jax.models.unet3d.model import UNet3D
from tumorchain_jax.segmentation.tiles import (
    Params,
    Shape,
    gaussian,
    sliding_window,
    tile_program,
    tile_starts,
)

pytestmark = pytest.mark.program


TILE = (8, 16, 16)
# One of another size than a tile along each axis, one smaller than a tile along some.
SHAPES = [(21, 16, 37), (5, 40, 11)]


def test_tiles_are_evenly_spread() -> None:
    assert tile_starts(110, 64, 0.5) == [0, 23, 46]
    assert tile_starts(64, 64, 0.5) == [0]
    assert tile_starts(65, 64, 0.5) == [0, 1]
    assert tile_starts(100, 40, 1.0) == [0, 30, 60]


def test_weights_are_largest_in_the_middle_and_nowhere_nothing() -> None:
    weights = gaussian((64, 8, 24))
    assert weights.dtype == np.float32
    assert np.unravel_index(weights.argmax(), weights.shape) == (32, 4, 12)
    assert weights.max() == 10
    assert weights.min() == np.float32(np.finfo(np.float16).smallest_subnormal)
    np.testing.assert_array_equal(weights, weights.astype(np.float16))


def pointwise(scale: Params, tiles: np.ndarray) -> jax.Array:
    """A network that looks at one voxel: whatever the tiles, its logits are the voxel's own."""
    return jnp.stack([tiles, scale * tiles, 3 - tiles], axis=-1)


def logits_of(
    image: np.ndarray, folds: tuple[float, ...] = (2.0,), **options: object
) -> np.ndarray:

    given = {"step": 0.5, "tiles_at_once": 1, "half_precision_sum": False} | options
    return np.concatenate([*sliding_window(image, pointwise, folds, TILE, 3, **given)], axis=1)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("tiles_at_once", [1, 2, 5])
@pytest.mark.parametrize("step", [0.3, 0.5, 1.0])
def test_overlapping_tiles_meet(shape: Shape, tiles_at_once: int, step: float) -> None:
    image = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    got = logits_of(image, step=step, tiles_at_once=tiles_at_once)
    np.testing.assert_allclose(got, [image, 2 * image, 3 - image], atol=1e-5)


def test_folds_are_averaged() -> None:
    image = np.random.default_rng(0).standard_normal(SHAPES[0]).astype(np.float32)
    got = logits_of(image, (1.0, 2.0, 6.0))
    np.testing.assert_allclose(got[1], 3 * image, atol=1e-5)


def test_float16_sums_are_coarser_and_can_overflow() -> None:
    image = np.random.default_rng(0).standard_normal(SHAPES[0]).astype(np.float32)
    got = logits_of(image, (1.0, 2.0), half_precision_sum=True)
    # In a scan's corners the weights are so small that logits there are whole numbers.
    assert 1e-5 < np.median(np.abs(got[1] - 1.5 * image)) < 1e-3
    np.testing.assert_array_equal(got, got.astype(np.float16))
    assert not np.isfinite(logits_of(1e4 * image, half_precision_sum=True)).all()


def test_scan_is_never_held_whole() -> None:
    """Logits leave as soon as no later tile adds to them."""
    image = np.zeros((40, 16, 16), np.float32)
    run = sliding_window(
        image, pointwise, (2.0,), TILE, 3, step=0.5, tiles_at_once=1, half_precision_sum=False
    )
    assert [slab.shape[1] for slab in run] == [4] * 8 + [8]


def test_mirror_images_are_averaged(small_plan, small_model) -> None:
    """As by running the network on each mirror image and turning its logits back."""
    params = small_model().folds[0]
    network = jax.jit(UNet3D(small_plan.network).apply)
    tiles = np.random.default_rng(0).standard_normal((2, *TILE)).astype(np.float32)
    sets = [chosen for n in range(3) for chosen in combinations((1, 3), n)]
    each = [
        jnp.flip(network({"params": params}, np.flip(tiles, axes)[..., None]), axes)
        for axes in sets
    ]
    # Where a machine is only compiled for, there is no device to make an array on.
    with jax.transfer_guard("disallow"):
        program = tile_program(small_plan.network, (0, 2))
    got = jax.jit(program)(params, tiles)
    np.testing.assert_allclose(got, np.mean(each, axis=0), atol=1e-5)
    alone = jax.jit(tile_program(small_plan.network, ()))(params, tiles)
    np.testing.assert_allclose(alone, each[0], atol=1e-5)
