"""What several families share: convolution, batch normalization, patches, the MLP of a block.

Shape letters: B images, H W pixels or cells, C channels in, K channels out, N tokens.
"""

from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from tumorchain_jax.models.layers.linear import Linear, LoRA
from tumorchain_jax.models.layers.logical_axes import constrain, logical
from tumorchain_jax.models.layers.norm import layer_norm

STATISTICS = "statistics"
"""The collection of what training updates without a gradient."""
BATCH_NORM_EPSILON, BATCH_NORM_MOMENTUM = 1e-5, 0.1  # PyTorch's; the share of the new batch
KERNEL_INIT = nn.initializers.variance_scaling(2.0, "fan_out", "normal")


class Convolution(nn.Module):
    """A convolution without bias, zero-padded by half its (odd) kernel on every side.

    XLA's "SAME" would put the odd pixel of a strided convolution behind, PyTorch has it in front.
    """

    features: int
    kernel: int
    stride: int = 1
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, x: Float[Array, "B H W C"]) -> Float[Array, "B h w K"]:
        """Apply it."""
        init = logical(KERNEL_INIT, None, None, "channels", "embed")
        shape = (self.kernel, self.kernel, x.shape[-1], self.features)
        kernel = self.param("kernel", init, shape).astype(self.dtype)
        return jax.lax.conv_general_dilated(
            x.astype(self.dtype),
            kernel,
            (self.stride, self.stride),
            [(self.kernel // 2, self.kernel // 2)] * 2,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )


class BatchNorm(nn.Module):
    """Batch normalization as PyTorch's: by the batch in training, else by running statistics.

    Training normalizes by the biased variance of the whole batch, on however many devices it lies,
    and moves `running_var` by the unbiased one (Flax's moves by the biased one).
    """

    scale_init: nn.initializers.Initializer = nn.initializers.ones
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, x: Float[Array, "B H W C"], train: bool) -> Float[Array, "B H W C"]:
        """Normalize each channel."""
        zeros, ones = nn.initializers.zeros, nn.initializers.ones
        channels = (x.shape[-1],)
        scale = self.param("scale", logical(self.scale_init, "norm"), channels)
        bias = self.param("bias", logical(zeros, "norm"), channels)
        running_mean = self.variable(STATISTICS, "running_mean", zeros, None, channels, jnp.float32)
        running_var = self.variable(STATISTICS, "running_var", ones, None, channels, jnp.float32)
        if train:
            wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
            mean = wide.mean(axis=(0, 1, 2))
            variance = jnp.square(wide - mean).mean(axis=(0, 1, 2))
            if not self.is_initializing():
                count = x.size // x.shape[-1]
                unbiased = variance * (count / max(count - 1, 1))
                for running, new in ((running_mean, mean), (running_var, unbiased)):
                    new = jax.lax.stop_gradient(new)
                    running.value += BATCH_NORM_MOMENTUM * (new - running.value)
        else:
            mean, variance = running_mean.value, running_var.value
        factor = scale * jax.lax.rsqrt(variance + BATCH_NORM_EPSILON)
        return x * factor.astype(self.dtype) + (bias - mean * factor).astype(self.dtype)


class StochasticDepth(nn.Module):
    """Drops a residual branch of some images in training, and scales what is left (Huang 2016)."""

    @nn.compact
    def __call__(
        self, x: Float[Array, "B ..."], rate: float | Float[Array, ""], train: bool
    ) -> Float[Array, "B ..."]:
        """Drop, by the random stream `drop_path`, which only training with a rate needs.

        Args:
            rate: share of the images that lose the branch.
        """
        if not train or not self.has_rng("drop_path"):
            return x
        shape = (len(x),) + (1,) * (x.ndim - 1)
        kept = jax.random.bernoulli(self.make_rng("drop_path"), 1.0 - rate, shape)
        return jnp.where(kept, x / (1.0 - rate), 0.0).astype(x.dtype)


def drop_rates(largest: float, blocks: int) -> Sequence[float]:
    """Rates of stochastic depth: from 0 at the first block to the largest at the last."""
    return [largest * number / max(blocks - 1, 1) for number in range(blocks)]


class PatchEmbedding(nn.Module):
    """A convolution whose stride is its kernel: square patches cut out, and one matrix product."""

    features: int
    patch: int
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, images: Float[Array, "B H W C"]) -> Float[Array, "B h w K"]:
        """Embed every patch.

        Raises:
            ValueError: the size of the images is no multiple of the patch's.
        """
        (B, H, W, C), p = images.shape, self.patch
        if H % p or W % p:
            raise ValueError(f"images of {H} x {W} pixels, expected multiples of {p}")
        init = logical(nn.initializers.normal(0.02), None, None, "patch", "embed")
        kernel = self.param("kernel", init, (p, p, C, self.features))
        zeros = logical(nn.initializers.zeros, "embed")
        bias = self.param("bias", zeros, (self.features,))
        x = (
            images.astype(self.dtype)
            .reshape(B, H // p, p, W // p, p, C)
            .transpose(0, 1, 3, 2, 4, 5)
        )
        x = x.reshape(B * (H // p) * (W // p), p * p * C)
        y = x @ kernel.astype(self.dtype).reshape(-1, self.features) + bias.astype(self.dtype)
        return y.reshape(B, H // p, W // p, self.features)


def tokens(
    module: nn.Module,
    images: Float[Array, "B H W C"],
    hidden_size: int,
    patch: int,
    dtype: DTypeLike,
) -> Float[Array, "B N K"]:
    """The class token, then the embedded patches in raster order.

    Args:
        module: within whose compact method it is called; it makes `patch_embed` and `cls_token`.
    """
    x = PatchEmbedding(hidden_size, patch, dtype, name="patch_embed")(images)
    x = x.reshape(len(images), -1, hidden_size)
    zeros = logical(nn.initializers.zeros, None, None, "embed")
    cls = module.param("cls_token", zeros, (1, 1, hidden_size)).astype(dtype)
    return jnp.concatenate([jnp.broadcast_to(cls, (len(x), 1, hidden_size)), x], axis=1)


def mlp(
    x: Float[Array, "B *N C"],
    inner: int,
    epsilon: float,
    lora: LoRA | None = None,
    dtype: DTypeLike = jnp.float32,
) -> Float[Array, "B *N C"]:
    """The second branch of a pre-norm block: normalization, then two layers with GELU between.

    To be called within a compact module, whose parameters `norm2`, `fc1` and `fc2` it makes.

    Args:
        inner: channels between the layers.
        epsilon: of the normalization.
    """
    y = layer_norm(epsilon, dtype, "norm2")(x)
    y = Linear(inner, ("embed", "mlp"), True, lora, dtype, name="fc1")(y)
    y = constrain(nn.gelu(y, approximate=False), "batch", *[None] * (x.ndim - 2), "mlp")
    return Linear(x.shape[-1], ("mlp", "embed"), True, lora, dtype, name="fc2")(y)


def head(classes: int, dtype: DTypeLike, features: Float[Array, "B F"]) -> Float[Array, "B K"]:
    """Logits of the classes; the features themselves where there is no class.

    To be called within a compact module, whose parameter `head` it makes.
    """
    if not classes:
        return features
    return Linear(classes, ("embed", "classes"), use_bias=True, dtype=dtype, name="head")(features)
