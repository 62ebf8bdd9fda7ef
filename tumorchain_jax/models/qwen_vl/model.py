"""Qwen2.5-VL: rows of words and pictures in, logits out.

Each row of a batch brings one bucket of patches with all of its pictures, so that a row is whole on
its devices; a row without a picture brings pads.

Shape letters: B rows, T positions, P patches of a row, F values of a patch, N visual tokens of a
bucket (P / 4), K embedding, V vocabulary.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from tumorchain_jax.core.path_rules import flatten
from tumorchain_jax.models.families import decoder_from_dict, decoder_to_dict
from tumorchain_jax.models.language.qwen2.model import QWEN2_5_3B, QWEN2_5_7B, Decoder, Qwen2Config
from tumorchain_jax.models.layers.attention import Kernel, Packing
from tumorchain_jax.models.layers.linear import LoRA
from tumorchain_jax.models.layers.remat import Remat
from tumorchain_jax.models.qwen_vl.plan import MERGE
from tumorchain_jax.models.qwen_vl.tower import TOWER_3B, TOWER_7B, Tower, TowerConfig


@dataclass(frozen=True)
class QwenVLConfig:
    """Sizes of both parts.

    Attributes:
        lora: which linear layers of either have adapters; None: none.
        dtype: of computation.
    """

    tower: TowerConfig
    decoder: Qwen2Config
    lora: LoRA | None = None
    dtype: str = "float32"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**asdict(self), "decoder": decoder_to_dict(self.decoder)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "QwenVLConfig":
        """The inverse of `to_dict`.

        Raises:
            KeyError, TypeError, ValueError: a field is unknown or missing.
        """
        lora = values["lora"]
        return cls(
            TowerConfig.from_dict(values["tower"]),
            decoder_from_dict(values["decoder"]),
            None if lora is None else LoRA.from_dict(lora),
            values["dtype"],
        )


_SECTION = (16, 24, 24)
QWEN2_5_VL_3B = QwenVLConfig(TOWER_3B, replace(QWEN2_5_3B, mrope_section=_SECTION))
QWEN2_5_VL_7B = QwenVLConfig(TOWER_7B, replace(QWEN2_5_7B, mrope_section=_SECTION))
BUS_NANO_VLM = QwenVLConfig(
    TowerConfig(4, 128, 344, 4, 192, 14, 56, (1, 3)),
    Qwen2Config(1024, 192, 512, 4, 6, 2, 32, True, 1e4, mrope_section=(4, 6, 6)),
)
"""For training from random weights on two CPU cores: 3,081,152 parameters."""


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
    remat: Remat = "none"
    kernel: Kernel = "xla"
    scan_unroll: int = 1

    def setup(self) -> None:
        """Declare the parts."""
        config = self.config
        rest = (config.lora, jnp.dtype(config.dtype))
        run: dict[str, Any] = {"remat": self.remat, "scan_unroll": self.scan_unroll}
        self.tower = Tower(config.tower, *rest, **run)
        self.decoder = Decoder(config.decoder, *rest, kernel=self.kernel, **run)

    def see(self, pictures: Pictures) -> Float[Array, "B N K"]:
        """Visual tokens of the patches, meaningless at pads."""
        return self.tower(*map(jnp.asarray, pictures))[0]

    def embed(
        self, pictures: Pictures, tokens: Int[Array, "B T"], is_picture: Bool[Array, "B T"]
    ) -> Float[Array, "B T K"]:
        """Embeddings of words, and visual tokens in order where `is_picture`."""
        visual = self.see(pictures)
        index = jnp.maximum(jnp.cumsum(is_picture, axis=1) - 1, 0)
        placed = jnp.take_along_axis(visual, index[..., None], axis=1)
        return jnp.where(is_picture[..., None], placed, self.decoder.embed(tokens))

    def hidden(
        self,
        pictures: Pictures,
        tokens: Int[Array, "B T"],
        is_picture: Bool[Array, "B T"],
        valid: Bool[Array, "B T"],
        positions: Int[Array, "3 B T"],
    ) -> Float[Array, "B T K"]:
        """Hidden states of whole rows, pads on either side.

        Args:
            is_picture: where a visual token stands; there are as many as the row's pictures have.
            valid: where there is no pad.
            positions: see `positions.py`.
        """
        # Pads are a segment of their own, which the rest does not see.
        packing = Packing(positions[0], jnp.where(valid, 0, 1))
        embeddings = self.embed(pictures, tokens, is_picture)
        return self.decoder(embeddings, packing, positions)[0]

    def logits(self, hidden: Float[Array, "B T K"]) -> Float[Array, "B T V"]:
        """Logits of the next token."""
        return self.decoder.logits(hidden)

    def __call__(
        self,
        pictures: Pictures,
        tokens: Int[Array, "B T"],
        is_picture: Bool[Array, "B T"],
        valid: Bool[Array, "B T"],
        positions: Int[Array, "3 B T"],
    ) -> Float[Array, "B T V"]:
        """Logits of whole rows; the arguments are those of `hidden`."""
        return self.logits(self.hidden(pictures, tokens, is_picture, valid, positions))


def init_params(config: QwenVLConfig, key: Array) -> dict[str, Any]:
    """New parameters by path."""
    return flatten(nn.meta.unbox(_variables(config, key))["params"])


def abstract_params(config: QwenVLConfig) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes of the parameters by path, without making any."""
    return jax.eval_shape(partial(init_params, config), jax.random.key(0))


def logical_axes(
    config: QwenVLConfig,
) -> dict[str, tuple[tuple[str | None, ...], tuple[int, ...]]]:
    """The logical names of each parameter's axes, and its shape, by path."""
    variables = jax.eval_shape(partial(_variables, config), jax.random.key(0))
    return {
        path: (box.names, box.value.shape) for path, box in flatten(variables["params"]).items()
    }


def attention_heads(config: QwenVLConfig) -> dict[str, tuple[str, int]]:
    """Numbers of heads by part, each with the logical axis of activations that it is cut along."""
    decoder = config.decoder
    return {
        "tower num_heads": ("attention_heads", config.tower.num_heads),
        "decoder num_attention_heads": ("attention_heads", decoder.num_attention_heads),
        "decoder num_key_value_heads": ("projected_heads", decoder.num_key_value_heads),
    }


def part_of(path: str) -> str:
    """The part of the model that a parameter is of, as the tools that train it call these."""
    if path.startswith("tower/patch_embed"):
        return "patch embedding"
    if path.startswith("tower/merger/"):
        return "merger"
    return "tower" if path.startswith("tower/") else "text"


def _variables(config: QwenVLConfig, key: Array) -> Any:
    row = jnp.zeros((1, MERGE**2), jnp.int32)
    patches = jnp.zeros((*row.shape, config.tower.patch_values))
    pictures = Pictures(patches, row, jnp.zeros((*row.shape, 2), jnp.int32), row)
    tokens, positions = jnp.zeros((1, 2), jnp.int32), jnp.zeros((3, 1, 2), jnp.int32)
    return QwenVL(config).init(key, pictures, tokens, tokens > 0, tokens == 0, positions)
