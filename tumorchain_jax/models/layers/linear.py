"""A linear layer that can carry a LoRA adapter, and the rule that says which layers do.

The adapter's parameters sit beside the kernel they adapt (`q_proj/{kernel,lora_a,lora_b}`), so the
rest of the tree keeps its names, with or without LoRA.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from tumorchain_jax.core.path_rules import first_match
from tumorchain_jax.models.layers.logical_axes import constrain, logical, on_one_device


@dataclass(frozen=True)
class LoRA:
    """Which linear layers get a low-rank adapter, and its size (Hu et al. 2021; PEFT's scaling).

    Attributes:
        targets: regexes over a layer's path, e.g. `.*/(q_proj|v_proj)`; any may match.
        rank: columns of A, rows of B.
        alpha: the adapter's output is scaled by alpha / rank.
        rslora: by alpha / sqrt(rank) instead (Kalajdzievski 2023).
        ranks, alphas: (regex over a layer's path, its own rank or alpha); the first that matches.
    """

    targets: tuple[str, ...]
    rank: int = 16
    alpha: float = 32.0
    rslora: bool = False
    ranks: tuple[tuple[str, int], ...] = ()
    alphas: tuple[tuple[str, float], ...] = ()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "LoRA":
        """The inverse of `dataclasses.asdict`; lists from JSON become tuples.

        Raises:
            TypeError: a field is unknown or missing.
        """
        return cls(**{name: _tuples(value) for name, value in values.items()})

    def adapts(self, path: str) -> bool:
        """Whether the layer at `path` carries an adapter."""
        return any(re.fullmatch(target, path) for target in self.targets)

    def rank_of(self, path: str) -> int:
        """The rank of the layer at `path`."""
        return first_match((*self.ranks, (".*", self.rank)), path)

    def alpha_of(self, path: str) -> float:
        """The alpha of the layer at `path`."""
        return first_match((*self.alphas, (".*", self.alpha)), path)

    def scale_of(self, path: str) -> float:
        """What B(A(x)) of the layer at `path` is multiplied by."""
        rank = self.rank_of(path)
        return self.alpha_of(path) / (rank**0.5 if self.rslora else rank)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


class Linear(nn.Module):
    """y = x W (+ b) (+ scale x A B). Kernel `[inputs, features]`: PyTorch's weight transposed.

    Attributes:
        features: size of the output.
        axes: logical names of the kernel's two axes.
        use_bias: whether there is a bias, starting at zero.
        lora: the model's LoRA rule, None for no adapters anywhere.
        used_as: logical names by which the kernel is laid out where it is used, if by others.
    """

    features: int
    axes: tuple[str, str]
    use_bias: bool = False
    lora: LoRA | None = None
    dtype: DTypeLike = jnp.float32
    kernel_init: nn.initializers.Initializer = nn.initializers.normal(0.02)
    used_as: tuple[str | None, str | None] | None = None

    @nn.compact
    def __call__(self, x: Float[Array, "... I"]) -> Float[Array, "... O"]:
        """Apply it to the last axis."""
        axis_in, axis_out = self.axes
        shape = (x.shape[-1], self.features)
        kernel = self.param("kernel", logical(self.kernel_init, *self.axes), shape)
        x = x.astype(self.dtype)
        kernel = jnp.asarray(kernel, self.dtype)
        y = _product(x, constrain(kernel, *self.used_as) if self.used_as else kernel)
        if self.use_bias:
            zeros = logical(nn.initializers.zeros, axis_out)
            y += self.param("bias", zeros, (self.features,)).astype(self.dtype)
        path = "/".join(self.path)
        if self.lora is not None and self.lora.adapts(path):
            rank = self.lora.rank_of(path)
            # A as PEFT draws it (Kaiming uniform, a = sqrt 5), B zero: the adapter starts silent.
            init_a = logical(_kaiming_uniform, axis_in, "lora_rank")
            init_b = logical(nn.initializers.zeros, "lora_rank", axis_out)
            lora_a = self.param("lora_a", init_a, (x.shape[-1], rank))
            lora_b = self.param("lora_b", init_b, (rank, self.features))
            low = (x @ lora_a.astype(self.dtype)) @ lora_b.astype(self.dtype)
            y += low * self.lora.scale_of(path)
        return y


def _product(x: Float[Array, "... I"], kernel: Float[Array, "I O"]) -> Float[Array, "... O"]:
    """x @ kernel, as a product of matrices where no mesh cuts the rows of x.

    For the gradient of more than two axes XLA's CPU compiler copies transposed operands, which
    takes a third of a step.
    """
    if on_one_device():
        return (x.reshape(-1, x.shape[-1]) @ kernel).reshape(*x.shape[:-1], -1)
    return x @ kernel


def _kaiming_uniform(key: Array, shape: tuple[int, int], dtype: DTypeLike = jnp.float32) -> Array:
    bound = shape[0] ** -0.5
    return jax.random.uniform(key, shape, dtype, -bound, bound)
