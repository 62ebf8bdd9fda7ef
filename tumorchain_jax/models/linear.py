"""A linear layer that can carry a LoRA adapter, and the rule that says which layers do.

The adapter's parameters sit beside the kernel they adapt (`q_proj/{kernel,lora_a,lora_b}`), so the
rest of the tree keeps its names, with or without LoRA.
"""

import re
from dataclasses import dataclass
from typing import cast

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float


@dataclass(frozen=True)
class LoRA:
    """Which linear layers get a low-rank adapter, and its size (Hu et al. 2021; PEFT's scaling).

    Attributes:
        targets: regexes over a layer's path, e.g. `.*/(q_proj|v_proj)`; any may match.
        rank: columns of A, rows of B.
        alpha: the adapter's output is scaled by alpha / rank.
    """

    targets: tuple[str, ...]
    rank: int = 16
    alpha: float = 32.0

    def adapts(self, path: str) -> bool:
        """Whether the layer at `path` carries an adapter."""
        return any(re.fullmatch(target, path) for target in self.targets)

    @property
    def scale(self) -> float:
        """What B(A(x)) is multiplied by."""
        return self.alpha / self.rank


def logical(init: nn.initializers.Initializer, *axes: str | None) -> nn.initializers.Initializer:
    """An initializer whose parameter carries the logical names of its axes, for sharding."""
    return cast(nn.initializers.Initializer, nn.with_logical_partitioning(init, axes))


class Linear(nn.Module):
    """y = x W (+ b) (+ scale x A B). Kernel `[inputs, features]`: PyTorch's weight transposed.

    Attributes:
        features: size of the output.
        axes: logical names of the kernel's two axes.
        use_bias: whether there is a bias, starting at zero.
        lora: the model's LoRA rule, None for no adapters anywhere.
    """

    features: int
    axes: tuple[str, str]
    use_bias: bool = False
    lora: LoRA | None = None
    dtype: DTypeLike = jnp.float32
    kernel_init: nn.initializers.Initializer = nn.initializers.normal(0.02)

    @nn.compact
    def __call__(self, x: Float[Array, "... I"]) -> Float[Array, "... O"]:
        """Apply it to the last axis."""
        axis_in, axis_out = self.axes
        shape = (x.shape[-1], self.features)
        kernel = self.param("kernel", logical(self.kernel_init, *self.axes), shape)
        x = x.astype(self.dtype)
        y = x @ kernel.astype(self.dtype)
        if self.use_bias:
            zeros = logical(nn.initializers.zeros, axis_out)
            y += self.param("bias", zeros, (self.features,)).astype(self.dtype)
        if self.lora is not None and self.lora.adapts("/".join(self.path)):
            # A as PEFT draws it (Kaiming uniform, a = sqrt 5), B zero: the adapter starts silent.
            init_a = logical(_kaiming_uniform, axis_in, "lora_rank")
            init_b = logical(nn.initializers.zeros, "lora_rank", axis_out)
            lora_a = self.param("lora_a", init_a, (x.shape[-1], self.lora.rank))
            lora_b = self.param("lora_b", init_b, (self.lora.rank, self.features))
            y += (x @ lora_a.astype(self.dtype)) @ lora_b.astype(self.dtype) * self.lora.scale
        return y


def _kaiming_uniform(key: Array, shape: tuple[int, int], dtype: DTypeLike = jnp.float32) -> Array:
    bound = shape[0] ** -0.5
    return jax.random.uniform(key, shape, dtype, -bound, bound)
