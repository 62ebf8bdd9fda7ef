import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from tumorchain_jax.training.segmentation.augmentation import (
    augment,
    change_intensity,
    move,
    rotation,
)

OFF = {"turn": 0.0, "stretch": 0.0, "gain": 0.0, "offset": 0.0, "gamma": 0.0, "noise": 0.0}


def _blob() -> tuple[jax.Array, jax.Array]:
    """Brighter towards the end of each axis, with a label on one side of the last."""
    grid = jnp.stack(jnp.meshgrid(*map(jnp.arange, (9, 10, 11)), indexing="ij"), axis=-1)
    image = grid.sum(-1, keepdims=True).astype(jnp.float32)
    return image, (grid[..., 2] > 5).astype(jnp.uint8)


def test_nothing_is_changed_where_nothing_is_asked_for() -> None:
    image, labels = _blob()
    seen, same = augment(jax.random.key(0), image[None], labels[None], ConfigDict(OFF))
    np.testing.assert_allclose(seen[0], image, atol=1e-4)
    np.testing.assert_array_equal(same[0], labels)


def test_augmentation_differs_between_patches() -> None:
    image, labels = (jnp.repeat(array[None], 2, axis=0) for array in _blob())
    config = ConfigDict(dict.fromkeys(OFF, 0.2))
    seen, moved = augment(jax.random.key(0), image, labels, config)
    assert seen.shape == image.shape
    assert moved.dtype == labels.dtype
    assert set(np.unique(moved)) == {0, 1}
    for array in (seen, moved):
        assert (array[0] != array[1]).any()


def test_image_and_labels_are_moved_together() -> None:
    _, labels = _blob()
    bright = labels[..., None].astype(jnp.float32)
    image, moved = move(jax.random.key(3), bright, labels, 0.3, 0.2)
    assert (moved != labels).any()
    assert ((image[..., 0] > 0.5) == (moved == 1)).mean() > 0.98


def test_sides_are_never_exchanged() -> None:
    image, labels = _blob()
    for seed in range(20):
        _, moved = move(jax.random.key(seed), image, labels, 0.2, 0.2)
        ends = np.asarray(moved)[3:6, 3:7, [2, -3]].mean(axis=(0, 1))
        assert ends[0] < 0.1
        assert ends[1] > 0.9


def test_rotation_is_one() -> None:
    turned = rotation(jnp.array([0.1, -0.2, 0.3]))
    np.testing.assert_allclose(turned @ turned.T, np.eye(3), atol=1e-6)
    assert float(jnp.linalg.det(turned)) == pytest.approx(1, abs=1e-6)
    np.testing.assert_allclose(rotation(jnp.zeros(3)), np.eye(3), atol=1e-7)


@pytest.mark.parametrize("what", ["gain", "offset", "gamma", "noise"])
def test_intensities_are_changed_as_far_as_asked(what: str) -> None:
    image, _ = _blob()
    image = image / image.max()
    for seed in range(20):
        seen = change_intensity(jax.random.key(seed), image, ConfigDict({**OFF, what: 0.1}))
        change = float(jnp.abs(seen - image).max())
        assert 0 < change < (0.6 if what == "noise" else 0.101)
