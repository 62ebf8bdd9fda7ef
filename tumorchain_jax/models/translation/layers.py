"""Convolutions with bias, transposed convolution and instance normalization as PyTorch's.

Shape letters: B images, H W pixels or cells, C channels in, K channels out.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

INIT = nn.initializers.normal(0.02)
EPSILON = 1e-5
LAYOUT = ("NHWC", "HWIO", "NHWC")


class Convolution(nn.Module):
    """A convolution, zero-padded on every side."""

    features: int
    kernel: int
    stride: int = 1
    padding: int = 0

    @nn.compact
    def __call__(self, x: Float[Array, "B H W C"]) -> Float[Array, "B h w K"]:
        """Apply it."""
        shape = (self.kernel, self.kernel, x.shape[-1], self.features)
        kernel, bias = _parameters(self, shape)
        stride, padding = (self.stride,) * 2, [(self.padding,) * 2] * 2
        y = jax.lax.conv_general_dilated(x, kernel, stride, padding, dimension_numbers=LAYOUT)
        return y + bias


class TransposedConvolution(nn.Module):
    """PyTorch's ConvTranspose2d of kernel 3, stride 2, padding 1 and output padding 1.

    The kernel is that of the convolution over the picture with zeros between its pixels: PyTorch's,
    turned by half a circle.
    """

    features: int

    @nn.compact
    def __call__(self, x: Float[Array, "B H W C"]) -> Float[Array, "B h w K"]:
        """Apply it; each side doubles."""
        kernel, bias = _parameters(self, (3, 3, x.shape[-1], self.features))
        y = jax.lax.conv_general_dilated(
            x, kernel, (1, 1), [(1, 2)] * 2, lhs_dilation=(2, 2), dimension_numbers=LAYOUT
        )
        return y + bias


def _parameters(module: nn.Module, shape: tuple[int, ...]) -> tuple[Array, Array]:
    kernel = module.param("kernel", INIT, shape)
    return kernel, module.param("bias", nn.initializers.zeros, shape[-1:])


def instance_norm(x: Float[Array, "B H W C"]) -> Float[Array, "B H W C"]:
    """Normalize each channel of each picture; it has no parameters."""
    mean = x.mean(axis=(1, 2), keepdims=True)
    variance = jnp.square(x - mean).mean(axis=(1, 2), keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + EPSILON)


def reflected(x: Float[Array, "B H W C"], by: int) -> Float[Array, "B h w C"]:
    """Pad by the picture's mirror image, without its edge twice."""
    return jnp.pad(x, ((0, 0), (by, by), (by, by), (0, 0)), mode="reflect")
