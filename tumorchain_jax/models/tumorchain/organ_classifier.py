"""The auxiliary classifier Cls: is this organ abnormal? (paper, section 3.1 and 10.1)."""

import flax.linen as nn
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float

from tumorchain_jax.models.layers.linear import Linear


class OrganClassifier(nn.Module):
    """Mean of an organ's valid ROI tokens -> one fully connected layer -> (normal, abnormal)."""

    dtype: DTypeLike = jnp.float32

    def setup(self) -> None:
        """Declare the layer."""
        self.fc = Linear(2, ("embed", "classes"), use_bias=True, dtype=self.dtype)

    def __call__(
        self, tokens: Float[Array, "B O L K"], valid: Bool[Array, "B O L"]
    ) -> Float[Array, "B O 2"]:
        """Float32 logits of each organ; of an organ without valid tokens, the bias alone."""
        weight = valid[..., None].astype(tokens.dtype)
        mean = (tokens * weight).sum(axis=2) / jnp.maximum(weight.sum(axis=2), 1)
        return self.fc(mean).astype(jnp.float32)

    def classify_tokens(self, tokens: Float[Array, "*N K"]) -> Float[Array, "*N 2"]:
        """Float32 logits of each token alone, whose mean over an organ's is the organ's."""
        return self.fc(tokens).astype(jnp.float32)
