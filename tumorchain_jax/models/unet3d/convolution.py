"""3D convolution, its transpose and instance norm.

Shape letters: B tiles, D H W voxels, C channels in, K channels out, d h w a kernel.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from tumorchain_jax.models.unet3d.winograd import winograd

Size = tuple[int, int, int]
LAYOUT = ("NDHWC", "DHWIO", "NDHWC")
NORM_EPSILON = 1e-5
LEAST_SIZE, LEAST_CHANNELS = 12, 16
"""Of a tile for Winograd's form to be the faster."""


def convolve(
    x: Float[Array, "B D H W C"], kernel: Float[Array, "d h w C K"], strides: Size
) -> Float[Array, "B E F G K"]:
    """A convolution without bias, zero-padded by half its (odd) kernel on every side.

    On a CPU XLA's own form takes some three times as long as PyTorch's, and Winograd's less than
    that; small tiles have too few blocks for it.
    """
    cubic = kernel.shape[:3] == (3, 3, 3) and strides == (1, 1, 1)
    large = min(x.shape[1:4]) >= LEAST_SIZE and x.shape[4] >= LEAST_CHANNELS
    if not (cubic and large and x.dtype == jnp.float32):
        return _by_xla(x, kernel, strides)
    return jax.lax.platform_dependent(x, kernel, cpu=_on_cpu, default=_by_xla)


def _by_xla(x: Array, kernel: Array, strides: Size = (1, 1, 1)) -> Array:
    padding = [(size // 2, size // 2) for size in kernel.shape[:3]]
    return jax.lax.conv_general_dilated(x, kernel, strides, padding, dimension_numbers=LAYOUT)


@jax.custom_vjp
def _on_cpu(x: Array, kernel: Array) -> Array:
    return winograd(x, kernel)


def _forward(x: Array, kernel: Array) -> tuple[Array, tuple[Array, Array]]:
    return winograd(x, kernel), (x, kernel)


def _backward(saved: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    return jax.vjp(_by_xla, *saved)[1](gradient)


_on_cpu.defvjp(_forward, _backward)


def upsample(
    x: Float[Array, "B D H W C"], kernel: Float[Array, "d h w C K"]
) -> Float[Array, "B E F G K"]:
    """A transposed convolution whose stride is its kernel, without bias: no outputs overlap."""
    B, D, H, W, _ = x.shape
    d, h, w, _, K = kernel.shape
    y = jnp.einsum("bDHWc,dhwck->bDdHhWwk", x, kernel)
    return y.reshape(B, D * d, H * h, W * w, K)


def instance_norm(
    x: Float[Array, "B D H W C"], scale: Float[Array, " C"], bias: Float[Array, " C"]
) -> Float[Array, "B D H W C"]:
    """Zero mean and unit (biased) variance over the voxels of each tile and channel, in float32."""
    y = x.astype(jnp.float32)
    mean = y.mean((1, 2, 3), keepdims=True)
    variance = jnp.square(y - mean).mean((1, 2, 3), keepdims=True)
    return ((y - mean) * jax.lax.rsqrt(variance + NORM_EPSILON) * scale + bias).astype(x.dtype)
