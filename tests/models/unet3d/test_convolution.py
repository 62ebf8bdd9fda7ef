from functools import partial

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

from tumorchain_jax.models.unet3d import convolution
from tumorchain_jax.models.unet3d.convolution import convolve
from tumorchain_jax.models.unet3d.winograd import winograd

HASTE = pytest.mark.system(haste=True)


def draw(*shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).standard_normal(shape), jnp.float32)


@pytest.mark.parametrize(
    ("batch", "size"), [(1, (12, 12, 12)), (2, (13, 14, 15)), (1, (1, 2, 3)), (1, (40, 20, 9))]
)
def test_winograd_s_form_is_the_convolution(batch: int, size: tuple[int, int, int]) -> None:
    x, kernel = draw(batch, *size, 5), draw(3, 3, 3, 5, 7)
    wanted = convolution._by_xla((1, 1, 1), x, kernel)
    np.testing.assert_allclose(winograd(x, kernel), wanted, atol=3e-5 * float(abs(wanted).max()))


@pytest.mark.parametrize(
    ("size", "channels", "kernel_size", "strides", "loops"),
    [
        ((16, 16, 16), 16, (3, 3, 3), (1, 1, 1), True),
        ((8, 8, 8), 16, (3, 3, 3), (1, 1, 1), False),
        ((16, 16, 16), 1, (3, 3, 3), (1, 1, 1), False),
        pytest.param((16, 16, 16), 16, (3, 3, 3), (2, 2, 2), False, marks=HASTE),
        ((9, 11, 13), 3, (3, 3, 3), (2, 1, 2), False),
        pytest.param((9, 11, 13), 3, (1, 3, 3), (1, 2, 2), False, marks=HASTE),
        pytest.param((5, 6, 7), 3, (1, 1, 1), (1, 1, 1), False, marks=HASTE),
        ((1, 6, 7), 3, (3, 5, 3), (1, 1, 1), False),
    ],
)
def test_cpu_s_convolution_and_its_gradient_are_xla_s_own(
    size: tuple, channels: int, kernel_size: tuple, strides: tuple, loops: bool
) -> None:
    x, kernel = draw(2, *size, channels), draw(*kernel_size, channels, 4)
    lowered = jax.jit(convolve, static_argnums=2).lower(x, kernel, strides)
    assert ("while" in lowered.as_text()) == loops

    wanted, transpose = jax.vjp(partial(convolution._by_xla, strides), x, kernel)
    got, own_transpose = jax.vjp(lambda *args: convolve(*args, strides), x, kernel)
    gradient = draw(*wanted.shape)
    pairs = [(got, wanted), *zip(own_transpose(gradient), transpose(gradient), strict=True)]
    for one, other in pairs:
        np.testing.assert_allclose(one, other, atol=3e-5 * float(abs(other).max()))


def test_other_machines_get_xla_s_own() -> None:
    x, kernel = draw(1, 16, 16, 16, 16), draw(3, 3, 3, 16, 4)
    exported = jax.export.export(jax.jit(lambda *a: convolve(*a, (1, 1, 1))), platforms=["tpu"])
    text = exported(x, kernel).mlir_module()
    assert "while" not in text
    assert text.count("stablehlo.convolution") == 1
