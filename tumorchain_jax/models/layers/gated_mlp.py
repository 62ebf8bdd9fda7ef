"""The MLP with a gate that decoders of Qwen2's kind and Qwen2.5-VL's vision tower have.

Shape letters: B batch, T tokens or patches, K hidden size, F inner size.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from tumorchain_jax.models.layers.linear import Linear, LoRA
from tumorchain_jax.models.layers.logical_axes import constrain


class GatedMLP(nn.Module):
    """down(silu(gate x) * up x).

    Attributes:
        size: F, inside.
        tokens: the logical name of the axis T; None where every device has all of it.
    """

    size: int
    use_bias: bool = False
    lora: LoRA | None = None
    dtype: DTypeLike = jnp.float32
    tokens: str | None = "length"

    @nn.compact
    def __call__(self, x: Float[Array, "B T K"]) -> Float[Array, "B T K"]:
        """Apply it to each token."""
        rest = (self.use_bias, self.lora, self.dtype)
        gate = Linear(self.size, ("embed", "mlp"), *rest, name="gate_proj")(x)
        up = Linear(self.size, ("embed", "mlp"), *rest, name="up_proj")(x)
        y = constrain(_gated(gate, up), "batch", self.tokens, "mlp")
        return Linear(x.shape[-1], ("mlp", "embed"), *rest, name="down_proj")(y)


@jax.checkpoint
def _gated(gate: Float[Array, "B T F"], up: Float[Array, "B T F"]) -> Float[Array, "B T F"]:
    """Made again in the backward pass: it would keep three more arrays of this size."""
    return nn.silu(gate) * up
