"""3D convolution, its transpose and instance norm.

What was tried on two CPU cores, in ms, for 3x3x3 kernels, float32, medians of 3, beside PyTorch's:

    channels, voxels              32, 128^3   64, 64^3   128, 32^3   320, 8^3   1 to 32, 128^3
    XLA's own, channels last           4081       1153         465         23              952
    XLA's own, channels first          4263       1173         353         27              904
    27 shifted products                5405       1629         434         22              132
    27 copies beside, one product         -       3392         822         43             1454
    plane by plane                     2061        912         265         21              426
    Winograd's form                     978        350          91          -                -
    PyTorch                             939        401         153         27              217

On a CPU, Winograd's form is taken where it can be, else planes (27 products for a network's first
convolution would save a twentieth of a tile's 5.5 s: too little for a third form). Other machines
get XLA's own, which has not been timed there; what it compiles to: ahead_of_time/README.md.

Shape letters: B tiles, D H W voxels, C channels in, K channels out, d h w a kernel.
"""

from functools import partial

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
    """A convolution without bias, zero-padded by half its (odd) kernel on every side."""
    return jax.lax.platform_dependent(
        x, kernel, cpu=partial(_on_cpu, strides), default=partial(_by_xla, strides)
    )


def _by_xla(strides: Size, x: Array, kernel: Array) -> Array:
    padding = [(size // 2, size // 2) for size in kernel.shape[:3]]
    return jax.lax.conv_general_dilated(x, kernel, strides, padding, dimension_numbers=LAYOUT)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _on_cpu(strides: Size, x: Array, kernel: Array) -> Array:
    cubic = kernel.shape[:3] == (3, 3, 3) and strides == (1, 1, 1)
    large = min(x.shape[1:4]) >= LEAST_SIZE and x.shape[4] >= LEAST_CHANNELS
    if cubic and large and x.dtype == jnp.float32:
        return winograd(x, kernel)
    return _by_planes(strides, x, kernel)


def _forward(strides: Size, x: Array, kernel: Array) -> tuple[Array, tuple[Array, Array]]:
    return _on_cpu(strides, x, kernel), (x, kernel)


def _backward(strides: Size, saved: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    return jax.vjp(partial(_by_planes, strides), *saved)[1](gradient)


_on_cpu.defvjp(_forward, _backward)


def _by_planes(strides: Size, x: Array, kernel: Array) -> Array:
    """A convolution of planes, whose channels are those of all planes that the kernel spans."""
    B, D, *_, C = x.shape
    d, h, w, _, K = kernel.shape
    step, *strides_in_plane = strides
    count = -(-D // step)
    padded = jnp.pad(x, ((0, 0), (d // 2, d // 2), (0, 0), (0, 0), (0, 0)))
    planes = [padded[:, at : at + step * (count - 1) + 1 : step] for at in range(d)]
    stacked = jnp.concatenate(planes, axis=-1).reshape(B * count, *x.shape[2:4], d * C)
    flat = jnp.moveaxis(kernel, 0, 2).reshape(h, w, d * C, K)
    padding = [(h // 2, h // 2), (w // 2, w // 2)]
    y = jax.lax.conv_general_dilated(
        stacked, flat, strides_in_plane, padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return y.reshape(B, count, *y.shape[1:])


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
