"""The Qwen2.5 decoder (transformers, models/qwen2 and the text model of models/qwen2_5_vl).

What is unusual here: one set of parameters, two ways to run it. Training scans over layers stacked
on a leading axis; decoding runs them one by one (`unroll`), each with its own cache array, which is
three times faster on a CPU. The position by which a token is rotated is apart from the cache slot
that holds it: by default they are equal; a caller may give rotary positions of its own, and three
of them for each token where the configuration has an `mrope_section` (time, height, width, as in
Qwen2.5-VL). Three equal ones give what one gives, to the bit.

Shape letters: B batch, T new tokens, S cache slots, K embedding, H heads, G of these for keys and
values, E head size, V vocabulary.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

from tumorchain_jax.models.language.qwen2.rotary import RopeScaling, RotaryPositions, rotate
from tumorchain_jax.models.layers.attention import (
    Kernel,
    Packing,
    attend,
    cached_attention,
    one_sequence,
)
from tumorchain_jax.models.layers.embedding import look_up
from tumorchain_jax.models.layers.gated_mlp import GatedMLP
from tumorchain_jax.models.layers.linear import Linear, LoRA
from tumorchain_jax.models.layers.logical_axes import constrain, logical
from tumorchain_jax.models.layers.remat import Remat, rematerialized


@dataclass(frozen=True)
class Qwen2Config:
    """Sizes of the decoder, named as in Qwen2.5's config.json.

    Attributes:
        attention_bias: q, k and v have a bias, as in Qwen2; without it the block is Llama's.
        qk_norm: each head of queries and keys is normalized before its rotation, as in Qwen3.
        mrope_section: how many rotary frequencies turn by a token's time, height and width (head
            size / 2 together), as in Qwen2.5-VL; None for those with one position a token.
        rope_scaling: of Llama 3.1's rotary embedding; None for the plain one.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    tie_word_embeddings: bool
    rope_theta: float = 1e6
    rms_norm_eps: float = 1e-6
    attention_bias: bool = True
    mrope_section: tuple[int, int, int] | None = None
    rope_scaling: RopeScaling | None = None
    qk_norm: ClassVar[bool] = False


QWEN2_5_3B = Qwen2Config(
    vocab_size=151_936,
    hidden_size=2048,
    intermediate_size=11_008,
    num_hidden_layers=36,
    num_attention_heads=16,
    num_key_value_heads=2,
    head_dim=128,
    tie_word_embeddings=True,
)
QWEN2_5_7B = Qwen2Config(
    vocab_size=152_064,
    hidden_size=3584,
    intermediate_size=18_944,
    num_hidden_layers=28,
    num_attention_heads=28,
    num_key_value_heads=4,
    head_dim=128,
    tie_word_embeddings=False,
)


class LayerCache(NamedTuple):
    """Keys (rotated) and values of one layer; slot s holds the token at position s."""

    k: Float[Array, "B S H E"]
    v: Float[Array, "B S H E"]


def empty_cache(config: Qwen2Config, batch: int, slots: int, dtype: Any) -> tuple[LayerCache, ...]:
    """A cache of `slots` positions for each layer."""
    shape = (batch, slots, config.num_key_value_heads, config.head_dim)
    # Two arrays a layer: a shared one would be donated twice.
    return tuple(
        LayerCache(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))
        for _ in range(config.num_hidden_layers)
    )


class RMSNorm(nn.Module):
    """Root-mean-square norm: float32 inside, cast back before the weight, as in Qwen2RMSNorm."""

    epsilon: float
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, x: Float[Array, "*B K"]) -> Float[Array, "*B K"]:
        """Normalize the last axis."""
        ones = logical(nn.initializers.ones, "norm")
        weight = self.param("weight", ones, (x.shape[-1],))
        y = x.astype(jnp.float32)
        y = y * jax.lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + self.epsilon)
        return weight.astype(self.dtype) * y.astype(self.dtype)


class Attention(nn.Module):
    """Grouped-query attention with rotary positions."""

    config: Qwen2Config
    lora: LoRA | None = None
    dtype: DTypeLike = jnp.float32
    kernel: Kernel = "xla"

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B T K"],
        positions: RotaryPositions,
        mask: Bool[Array, "B 1 T S"],
        cache: LayerCache | None = None,
        slots: Int[Array, "B T"] | None = None,
    ) -> tuple[Float[Array, "B T K"], LayerCache | None]:
        """Attend where `mask` allows; with a cache, to all that it holds.

        Args:
            slots: of the cache, where the new keys and values go.
        """
        config = self.config
        B, T, K = x.shape
        E = config.head_dim

        def project(name: str, heads: int) -> Float[Array, "B T H E"]:
            rest = (config.attention_bias, self.lora, self.dtype)
            linear = Linear(heads * E, ("embed", "heads"), *rest, name=name)
            return linear(x).reshape(B, T, heads, E)

        def project_and_rotate(which: str, heads: int) -> Float[Array, "B T H E"]:
            y = project(f"{which}_proj", heads)
            if config.qk_norm:
                y = RMSNorm(config.rms_norm_eps, self.dtype, name=f"{which}_norm")(y)
            rope = (config.rope_theta, config.mrope_section, config.rope_scaling)
            return rotate(y, positions, *rope)

        q = project_and_rotate("q", config.num_attention_heads)
        k = project_and_rotate("k", config.num_key_value_heads)
        v = project("v_proj", config.num_key_value_heads)
        q = constrain(q, "batch", None, "attention_heads", None)
        k, v = (constrain(y, "batch", None, "projected_heads", None) for y in (k, v))
        if cache is not None:
            # A slot outside the cache marks a pad: its key and value are dropped.
            rows = jnp.arange(B)[:, None]
            k = cache.k.at[rows, slots].set(k.astype(cache.k.dtype), mode="drop")
            v = cache.v.at[rows, slots].set(v.astype(cache.v.dtype), mode="drop")
            cache = LayerCache(k, v)
        seen = (
            attend(q, k, v, mask, self.kernel) if cache is None else cached_attention(q, k, v, mask)
        )
        y = constrain(seen, "batch", None, "attention_heads", None)
        y = y.reshape(B, T, -1)
        out = Linear(K, ("heads", "embed"), False, self.lora, self.dtype, name="o_proj")
        return out(y), cache


class Block(nn.Module):
    """One decoder layer; returns its new cache, or its output when there is none to keep."""

    config: Qwen2Config
    lora: LoRA | None = None
    dtype: DTypeLike = jnp.float32
    kernel: Kernel = "xla"

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B T K"],
        positions: RotaryPositions,
        mask: Bool[Array, "B 1 T S"],
        cache: LayerCache | None = None,
        slots: Int[Array, "B T"] | None = None,
    ) -> tuple[Float[Array, "B T K"], Any]:
        """Run the layer; `slots` are those of the cache that the new tokens fill."""
        config, rest = self.config, (self.lora, self.dtype)
        epsilon = config.rms_norm_eps
        y = RMSNorm(epsilon, self.dtype, name="input_layernorm")(x)
        attention = Attention(config, *rest, self.kernel, name="self_attn")
        y, cache = attention(y, positions, mask, cache, slots)
        x = x + y
        y = RMSNorm(epsilon, self.dtype, name="post_attention_layernorm")(x)
        x = x + GatedMLP(config.intermediate_size, False, *rest, name="mlp")(y)
        x = constrain(x, "batch", "length", None)
        return x, (x if cache is None else cache)


class Decoder(nn.Module):
    """The language model from embeddings to hidden states, and the two ends of it.

    Attributes:
        unrolled: layers under `layers_0`, `layers_1`, ... with one cache each, for decoding; else
            stacked under `layers`. `unroll` turns the second tree into the first.
        remat: see `models/layers/remat.py`.
        kernel: of attention without a cache, see `models/layers/attention.py`.
        scan_unroll: stacked layers that one turn of the scan holds: more are faster on a CPU, and
            longer to compile.
    """

    config: Qwen2Config
    lora: LoRA | None = None
    dtype: DTypeLike = jnp.float32
    unrolled: bool = False
    remat: Remat = "none"
    kernel: Kernel = "xla"
    scan_unroll: int = 1

    def setup(self) -> None:
        """Declare the parts."""
        config, rest = self.config, (self.lora, self.dtype)
        self.embed_tokens = nn.Embed(
            config.vocab_size,
            config.hidden_size,
            dtype=self.dtype,
            embedding_init=logical(nn.initializers.normal(0.02), "vocab", "embed"),
        )
        if self.unrolled:
            count = config.num_hidden_layers
            self.layers: Any = [Block(config, *rest, self.kernel) for _ in range(count)]
        else:
            self.layers = nn.scan(
                rematerialized(Block, self.remat),
                variable_axes={"params": 0},
                split_rngs={"params": True},
                in_axes=(nn.broadcast, nn.broadcast),
                length=config.num_hidden_layers,
                unroll=self.scan_unroll,
                metadata_params={nn.PARTITION_NAME: "layers"},
            )(config, *rest, self.kernel)
        self.norm = RMSNorm(config.rms_norm_eps, self.dtype)
        if not config.tie_word_embeddings:
            axes, scored = ("embed", "vocab"), (None, "scored_vocab")
            self.lm_head = Linear(config.vocab_size, axes, False, *rest, used_as=scored)

    def embed(self, tokens: Int[Array, "B T"]) -> Float[Array, "B T K"]:
        """Token ids -> embeddings."""
        table = self.embed_tokens.embedding.astype(self.dtype)
        if self.is_initializing():  # on one row, which no mesh cuts
            return jnp.take(table, tokens, axis=0)
        return constrain(look_up(table, tokens), "batch", "length", None)

    def logits(self, hidden: Float[Array, "B T K"]) -> Float[Array, "B T V"]:
        """Hidden states -> float32 logits.

        Each device has a part of the vocabulary for the scans of all that hold other parts: hidden
        states are smaller than the head, which would have to go to every device.
        """
        hidden = constrain(hidden, "scored_batch", "length", None)
        if self.config.tie_word_embeddings:
            table = self.embed_tokens.embedding.astype(self.dtype)
            logits = hidden.astype(self.dtype) @ constrain(table, "scored_vocab", None).T
        else:
            logits = self.lm_head(hidden)
        return constrain(logits, "scored_batch", "length", "scored_vocab").astype(jnp.float32)

    def __call__(
        self,
        embeddings: Float[Array, "B T K"],
        packing: Packing | None = None,
        positions: RotaryPositions | None = None,
    ) -> tuple[Float[Array, "B T K"], Float[Array, "L B T K"]]:
        """Whole rows, causal. Pads go at the end.

        Args:
            packing: of rows that hold several questions; without it each is one sequence.
            positions: rotary positions, if not those of the packing.

        Returns:
            hidden states after the final norm, and the output of every layer.
        """
        packing = packing or one_sequence(*embeddings.shape[:2])
        positions = packing.positions if positions is None else positions
        mask = packing.mask()
        x = constrain(embeddings.astype(self.dtype), "batch", "length", None)
        if self.unrolled:
            outputs = []
            for layer in self.layers:
                x, output = layer(x, positions, mask)
                outputs.append(output)
            return self.norm(x), jnp.stack(outputs)
        x, outputs = self.layers(x, positions, mask)
        return self.norm(x), outputs

    def extend(
        self,
        cache: tuple[LayerCache, ...],
        length: Int[Array, " B"],
        embeddings: Float[Array, "B T K"],
        valid: Bool[Array, "B T"],
        positions: RotaryPositions | None = None,
        delta: Int[Array, " B"] | None = None,
    ) -> tuple[Float[Array, "B T K"], tuple[LayerCache, ...], Int[Array, " B"]]:
        """Read T more embeddings into the cache at once. Only when `unrolled`.

        Pads never occupy a slot: the valid embeddings of a row get consecutive slots from `length`
        on, wherever among the T they stand.

        Args:
            positions: rotary positions, if not the numbers of the slots.
            delta: added to the rotary positions of each row: after a picture, whose tokens share
                positions, words have lower positions than slots.

        Returns:
            hidden states (meaningless at pads), the new cache, the new length of each row.
        """
        size = cache[0].k.shape[1]
        slots = length[:, None] + jnp.cumsum(valid, axis=1, dtype=jnp.int32) - 1
        mask = (jnp.arange(size) <= slots[:, :, None])[:, None]
        slots = jnp.where(valid, slots, size)
        positions = slots if positions is None else positions
        if delta is not None:
            positions = positions + delta[:, None]
        x = embeddings.astype(self.dtype)
        extended = []
        for layer, layer_cache in zip(self.layers, cache, strict=True):
            x, layer_cache = layer(x, positions, mask, layer_cache, slots)
            extended.append(layer_cache)
        new_length = length + jnp.sum(valid, axis=1, dtype=jnp.int32)
        return self.norm(x), tuple(extended), new_length


def unroll(decoder: dict[str, Any]) -> dict[str, Any]:
    """Stacked parameters (`layers`) -> one subtree a layer (`layers_0`, ...). For `unrolled`."""
    rest = {name: leaf for name, leaf in decoder.items() if name != "layers"}
    stacked = decoder["layers"]
    count = jax.tree.leaves(stacked)[0].shape[0]
    layers = {f"layers_{i}": jax.tree.map(lambda leaf, i=i: leaf[i], stacked) for i in range(count)}
    return rest | layers
