import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError

from tumorchain_jax.models.vision.vit3d.model import ViT3D, ViT3DConfig, patchify

TINY = ViT3DConfig((4, 8, 12), (2, 4, 4), 16, 24, 2, 2)


def test_cells() -> None:
    assert ViT3DConfig().cells == (8, 16, 16)
    assert TINY.cells == (2, 2, 3)


def test_patchify_orders_tokens_and_voxels_d_h_w() -> None:
    volume = np.random.default_rng(0).random((2, 4, 8, 12), np.float32)
    patches = np.asarray(patchify(jnp.asarray(volume), (2, 4, 4)))
    assert patches.shape == (2, 12, 32)
    for d, h, w in np.ndindex(2, 2, 3):
        block = volume[:, 2 * d : 2 * d + 2, 4 * h : 4 * h + 4, 4 * w : 4 * w + 4]
        np.testing.assert_array_equal(patches[:, (d * 2 + h) * 3 + w], block.reshape(2, -1))


def test_first_voxels_of_the_released_model_s_tokens() -> None:
    """Tokens 1, 16 and 256 start at (0,0,16), (0,16,0) and (4,0,0)."""
    volume = np.arange(32 * 256 * 256, dtype=np.float32).reshape(1, 32, 256, 256)
    first = np.asarray(patchify(jnp.asarray(volume), (4, 16, 16)))[0, :, 0]
    assert first[[1, 16, 256]].tolist() == [16, 16 * 256, 4 * 256 * 256]


def moved_cells(params: dict, volume: np.ndarray) -> np.ndarray:
    """Which features change with one voxel of the first scan's first cell."""
    changed = volume.copy()
    changed[0, 0, 0, 0] += 1
    apply = jax.jit(ViT3D(TINY).apply)
    return np.abs(apply(params, changed) - apply(params, volume)).max(-1) > 0


def test_class_token_is_dropped_and_cells_see_each_other() -> None:
    rng = np.random.default_rng(0)
    volume = rng.random((2, 4, 8, 12), np.float32)
    shapes = nn.unbox(jax.eval_shape(ViT3D(TINY).init, jax.random.key(0), volume))
    params = jax.tree.map(lambda leaf: rng.standard_normal(leaf.shape, np.float32), shapes)
    moved = moved_cells(params, volume)
    assert moved.shape == (2, 12)
    assert moved[0].all()
    assert not moved[1].any()
    # Blocks that add nothing leave each cell to itself.
    params["params"]["blocks"] = jax.tree.map(np.zeros_like, params["params"]["blocks"])
    assert np.argwhere(moved_cells(params, volume)).tolist() == [[0, 0]]


@pytest.mark.parametrize("size", [(4, 8, 16), (8, 8, 6), (8, 12, 4)])
def test_volume_of_another_size_is_refused(size: tuple[int, int, int]) -> None:
    """The last one gives as many patches as the right size."""
    with pytest.raises(ValueError, match=r"expected \(4, 8, 12\)"):
        jax.eval_shape(ViT3D(TINY).init, jax.random.key(0), jnp.zeros((1, *size)))


def test_wrong_shape_or_type_is_refused_at_the_door() -> None:
    """The tests check every annotated shape at run time (setup.cfg)."""
    with pytest.raises(TypeCheckError, match="volume"):
        patchify(jnp.zeros((4, 8, 12)), (2, 4, 4))
    with pytest.raises(TypeCheckError, match="volume"):
        ViT3D(TINY).init(jax.random.key(0), jnp.zeros((1, 1, 4, 8, 12)))
    with pytest.raises(TypeCheckError, match="volume"):
        ViT3D(TINY).init(jax.random.key(0), jnp.zeros((1, 4, 8, 12), jnp.int32))
