"""Qwen2.5-VL: rows of words and pictures in, logits out.

Each row of a batch brings one bucket of patches with all of its pictures, so that a row is whole on
its devices; a row without a picture brings pads.

Shape letters: B rows, T positions, P patches of a row, F values of a patch, K embedding, V
vocabulary.
"""

from dataclasses import dataclass
from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

from tumorchain_jax.models.language.qwen2.model import Decoder, Qwen2Config
from tumorchain_jax.models.layers.attention import Kernel, Packing
from tumorchain_jax.models.layers.linear import LoRA
from tumorchain_jax.models.layers.remat import Remat
from tumorchain_jax.models.qwen_vl.tower import Tower, TowerConfig


@dataclass(frozen=True)
class QwenVLConfig:
    """Sizes of both parts."""

    tower: TowerConfig
    decoder: Qwen2Config


class Pictures(NamedTuple):
    """A bucket of patches for each row, see `plan.py` and `pictures.py`."""

    patches: Float[Array | np.ndarray, "B P F"]
    window: Int[Array | np.ndarray, "B P"]
    hw: Int[Array | np.ndarray, "B P 2"]
    picture: Int[Array | np.ndarray, "B P"]


class QwenVL(nn.Module):
    """The tower and the decoder.

    For decoding, `embed` makes the embeddings of a prompt, and a `Decoder` of its own, `unrolled`,
    goes on from them with the same parameters.
    """

    config: QwenVLConfig
    lora: LoRA | None = None
    dtype: DTypeLike = jnp.float32
    remat: Remat = "none"
    kernel: Kernel = "xla"

    def setup(self) -> None:
        """Declare the parts."""
        config, rest = self.config, (self.lora, self.dtype)
        self.tower = Tower(config.tower, *rest, remat=self.remat)
        self.decoder = Decoder(config.decoder, *rest, remat=self.remat, kernel=self.kernel)

    def embed(
        self, pictures: Pictures, tokens: Int[Array, "B T"], is_picture: Bool[Array, "B T"]
    ) -> Float[Array, "B T K"]:
        """Embeddings of words, and visual tokens in order where `is_picture`."""
        visual, _ = self.tower(*map(jnp.asarray, pictures))
        index = jnp.maximum(jnp.cumsum(is_picture, axis=1) - 1, 0)
        placed = jnp.take_along_axis(visual, index[..., None], axis=1)
        return jnp.where(is_picture[..., None], placed, self.decoder.embed(tokens))

    def __call__(
        self,
        pictures: Pictures,
        tokens: Int[Array, "B T"],
        is_picture: Bool[Array, "B T"],
        valid: Bool[Array, "B T"],
        positions: Int[Array, "3 B T"],
    ) -> Float[Array, "B T V"]:
        """Logits of whole rows, pads on either side.

        Args:
            is_picture: where a visual token stands; there are as many as the row's pictures have.
            valid: where there is no pad.
            positions: see `positions.py`.
        """
        # Pads are a segment of their own, which the rest does not see.
        packing = Packing(positions[0], jnp.where(valid, 0, 1))
        embeddings = self.embed(pictures, tokens, is_picture)
        hidden, _ = self.decoder(embeddings, packing, positions)
        return self.decoder.logits(hidden)
