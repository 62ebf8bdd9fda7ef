import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tumorchain_jax.models.unet3d import convolution
from tumorchain_jax.models.unet3d.convolution import convolve
from tumorchain_jax.models.unet3d.winograd import winograd


def draw(*shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).standard_normal(shape), jnp.float32)


@pytest.mark.parametrize(
    ("batch", "size"), [(1, (12, 12, 12)), (2, (13, 14, 15)), (1, (1, 2, 3)), (1, (40, 20, 9))]
)
def test_winograd_s_form_is_the_convolution(
    batch: int, size: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, kernel = draw(batch, *size, 5), draw(3, 3, 3, 5, 7)
    wanted = convolution._by_xla(x, kernel)
    np.testing.assert_allclose(winograd(x, kernel), wanted, atol=3e-5 * float(abs(wanted).max()))


def test_large_tiles_on_a_cpu_take_it_and_have_the_plain_gradient() -> None:
    x, kernel = draw(1, 16, 16, 16, 16), draw(3, 3, 3, 16, 4)

    def loss(x: jax.Array, kernel: jax.Array) -> jax.Array:
        return jnp.sum(convolve(x, kernel, (1, 1, 1)) ** 2)

    def plain(x: jax.Array, kernel: jax.Array) -> jax.Array:
        return jnp.sum(convolution._by_xla(x, kernel) ** 2)

    assert "while" in jax.jit(convolve, static_argnums=2).lower(x, kernel, (1, 1, 1)).as_text()
    for got, wanted in zip(
        jax.grad(loss, (0, 1))(x, kernel), jax.grad(plain, (0, 1))(x, kernel), strict=True
    ):
        np.testing.assert_allclose(got, wanted, atol=1e-4 * float(abs(wanted).max()))


@pytest.mark.parametrize(
    ("size", "channels", "strides", "dtype"),
    [
        (8, 16, (1, 1, 1), jnp.float32),
        (16, 1, (1, 1, 1), jnp.float32),
        (16, 16, (2, 2, 2), jnp.float32),
        (16, 16, (1, 1, 1), jnp.bfloat16),
    ],
)
def test_others_take_xla_s_own(size: int, channels: int, strides: tuple, dtype: type) -> None:
    x = draw(1, size, size, size, channels).astype(dtype)
    kernel = draw(3, 3, 3, channels, 4).astype(dtype)
    text = jax.jit(convolve, static_argnums=2).lower(x, kernel, strides).as_text()
    assert "while" not in text
    assert text.count("stablehlo.convolution") == 1
