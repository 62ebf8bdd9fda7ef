"""The model that finds the lesion: its shape features, and what may change its mask."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tumorchain_jax.core.path_rules import flatten
from tumorchain_jax.models.image.layers import STATISTICS
from tumorchain_jax.models.image.pyramid.model import (
    MASK,
    MASKS,
    Pyramid,
    PyramidConfig,
    shape_features,
)


def test_shape_features_are_the_moments_of_an_ellipse() -> None:
    """Half axes of 0.3 across and 0.15 down, its middle 0.1 to the right and 0.05 up."""
    at = (np.arange(200) + 0.5) / 200 - 0.5
    inside = ((at - 0.1) / 0.3) ** 2 + ((at[:, None] + 0.05) / 0.15) ** 2 <= 1
    found = shape_features(jnp.asarray(inside[None], jnp.float32))[0]
    # An ellipse's variance along an axis is a quarter of the half axis squared.
    across, down = 0.3**2 / 4, 0.15**2 / 4
    area = np.pi * 0.3 * 0.15
    expected = [np.log(area), 0.4, -0.2, np.log(across), np.log(down), 2 * np.log(down / across)]
    expected += [0, np.log(area / np.sqrt(across * down)), 1, 0]
    np.testing.assert_allclose(found, expected, atol=0.06)
    assert np.isfinite(shape_features(jnp.zeros((1, 9, 9)))).all()


@pytest.mark.program
def test_no_gradient_of_the_class_goes_through_the_mask() -> None:
    module = Pyramid(PyramidConfig((1, 1), 4, 4))
    images = jax.random.normal(jax.random.key(1), (2, 24, 24, 1))
    variables = nn.meta.unbox(jax.jit(module.init)(jax.random.key(0), images))
    fixed = {STATISTICS: variables[STATISTICS]}

    def both(params: dict) -> tuple[jax.Array, jax.Array]:
        (logits, _), left = module.apply({"params": params} | fixed, images, mutable=[MASKS])
        return logits.sum(), left[MASKS][MASK].sum()

    of_class, of_mask = (flatten(tree) for tree in jax.jit(jax.jacrev(both))(variables["params"]))
    changed = {path for path, leaf in of_class.items() if np.abs(leaf).max() > 0}
    assert {"mask/kernel", "mask/bias"}.isdisjoint(changed)
    assert {"head/kernel", "conv1/kernel", "smooth/kernel"} <= changed
    assert np.abs(of_mask["mask/kernel"]).max() > 0
    assert np.abs(of_mask["head/kernel"]).max() == 0
