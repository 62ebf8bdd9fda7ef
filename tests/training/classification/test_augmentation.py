"""Augmentation of pictures with their masks."""

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from tumorchain_jax.training.classification.augmentation import augment

OFF = {"flip": False, "turn": 0, "zoom": 0, "stretch": 0, "shift": 0, "gain": 0, "gamma": 0}
MOVES = {"flip": True, "turn": 0.3, "zoom": 0.2, "stretch": 0.1, "shift": 0.1}


def test_masks_move_with_their_pictures_and_keep_their_values() -> None:
    image = np.random.default_rng(0).random((4, 1, 9, 9), np.float32)
    same = augment(jax.random.key(0), jnp.asarray(image), ConfigDict(OFF))
    np.testing.assert_array_equal(same, image)
    pair = jnp.asarray(np.concatenate([image, image], axis=1))
    moved = augment(jax.random.key(0), pair, ConfigDict(OFF | MOVES))
    np.testing.assert_array_equal(moved[:, 0], moved[:, 1])
    assert (np.abs(moved[:, 0] - image[:, 0]).max(axis=(1, 2)) > 0.01).all()
    seen = augment(jax.random.key(0), pair, ConfigDict(OFF | {"gain": 0.3, "gamma": 0.3}))
    np.testing.assert_array_equal(seen[:, 1], image[:, 0])
    assert (np.abs(seen[:, 0] - image[:, 0]).max(axis=(1, 2)) > 0.01).all()
