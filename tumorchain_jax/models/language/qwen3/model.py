"""Qwen3's dense decoder (transformers, models/qwen3): a configuration of `qwen2.model.Decoder`.

It differs from Qwen2.5 in a norm over each head of queries and keys before their rotation, in
having no biases, and in a head size of its own, which hidden size / heads does not give.
"""

from dataclasses import dataclass
from typing import ClassVar

from tumorchain_jax.models.language.qwen2.model import Qwen2Config


@dataclass(frozen=True)
class Qwen3Config(Qwen2Config):
    """Sizes of the decoder, named as in Qwen3's config.json."""

    attention_bias: bool = False
    qk_norm: ClassVar[bool] = True


QWEN3_4B = Qwen3Config(
    vocab_size=151_936,
    hidden_size=2560,
    intermediate_size=9728,
    num_hidden_layers=36,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=128,
    tie_word_embeddings=True,
)
QWEN3_8B = Qwen3Config(
    vocab_size=151_936,
    hidden_size=4096,
    intermediate_size=12_288,
    num_hidden_layers=36,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=128,
    tie_word_embeddings=False,
)
