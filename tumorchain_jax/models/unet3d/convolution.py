"""3D convolution, its transpose and instance norm.

Shape letters: B tiles, D H W voxels, C channels in, K channels out, d h w a kernel.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

LAYOUT = ("NDHWC", "DHWIO", "NDHWC")
NORM_EPSILON = 1e-5


def convolve(
    x: Float[Array, "B D H W C"], kernel: Float[Array, "d h w C K"], strides: tuple[int, int, int]
) -> Float[Array, "B E F G K"]:
    """A convolution without bias, zero-padded by half its (odd) kernel on every side."""
    padding = [(size // 2, size // 2) for size in kernel.shape[:3]]
    return jax.lax.conv_general_dilated(x, kernel, strides, padding, dimension_numbers=LAYOUT)


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
