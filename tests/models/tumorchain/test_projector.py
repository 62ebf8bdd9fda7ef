import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import TypeCheckError
from scipy.special import erf

from tumorchain_jax.models.tumorchain.projector import Projector, ProjectorConfig, pool_cells

ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * (1 + erf(x / np.sqrt(2))) / 2,
}


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_projector_is_linear_activation_linear(activation: str) -> None:
    model, rng = Projector(ProjectorConfig(activation), 5), np.random.default_rng(0)
    x = rng.standard_normal((2, 3, 8), np.float32)
    shapes = nn.unbox(jax.eval_shape(model.init, jax.random.key(0), x))
    params = jax.tree.map(lambda p: rng.standard_normal(p.shape, np.float32), shapes)
    first, second = params["params"]["linear1"], params["params"]["linear2"]
    hidden = ACTIVATIONS[activation](np.float64(x @ first["kernel"] + first["bias"]))
    expected = hidden @ second["kernel"] + second["bias"]
    np.testing.assert_allclose(jax.jit(model.apply)(params, x), expected, atol=1e-5)


def test_pooled_cells_are_block_means_in_raster_order() -> None:
    cells = np.random.default_rng(0).random((2, 4 * 2 * 6, 3), np.float32)
    grid = cells.reshape(2, 4, 2, 6, 3)
    pooled = np.asarray(pool_cells(jnp.asarray(cells), (4, 2, 6), 2))
    assert pooled.shape == (2, 2 * 1 * 3, 3)
    for d, h, w in np.ndindex(2, 1, 3):
        block = grid[:, 2 * d : 2 * d + 2, 2 * h : 2 * h + 2, 2 * w : 2 * w + 2]
        np.testing.assert_allclose(pooled[:, d * 3 + w], block.mean((1, 2, 3)), atol=1e-6)


def test_pool_of_one_keeps_every_cell() -> None:
    cells = jnp.arange(36.0).reshape(1, 12, 3)
    np.testing.assert_array_equal(pool_cells(cells, (2, 2, 3), 1), cells)


def test_cells_without_a_batch_are_refused() -> None:
    with pytest.raises(TypeCheckError, match="cells"):
        pool_cells(jnp.zeros((12, 3)), (2, 2, 3), 1)
