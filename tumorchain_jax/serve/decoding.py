"""The decoder one token at a time, with a mask over tokens, in few compiled shapes.

Shape letters: S slots of the cache, T tokens read at once, V vocabulary, W words of 32 bits, L
likeliest tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from tumorchain_jax.inference.language_model import LanguageModel
from tumorchain_jax.models.language.qwen2.model import Decoder, empty_cache
from tumorchain_jax.serve.chat_request import MOST_LOGPROBS
from tumorchain_jax.serve.grammar import Matcher

CHUNK = 64
"""Tokens of a prompt that are read at once."""
FEWEST_SLOTS = 512
"""Sizes of caches: this times a power of two."""


@dataclass(frozen=True)
class Chosen:
    """A token of a reply.

    Attributes:
        token: its id.
        logprob: under the model (temperature 1, no mask).
        likeliest: ids and log probabilities of the likeliest tokens.
    """

    token: int
    logprob: float
    likeliest: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Choice:
    """How tokens are chosen; as `reasoning.generate.Sampling`, but not compiled in."""

    temperature: float
    top_p: float
    seed: int
    likeliest: int = 0


@partial(jax.jit, static_argnames=("decoder",), donate_argnames=("cache",))
def _read(
    decoder: Decoder,
    params: Any,
    cache: Any,
    length: Int[Array, " 1"],
    tokens: Int[Array, "1 T"],
    valid: Bool[Array, "1 T"],
) -> tuple[Float[Array, " V"], Any, Int[Array, " 1"]]:
    """Logits after the last position, which must be valid; the new cache, and its length."""

    def read(module: Decoder) -> tuple[Array, Any, Array]:
        hidden, extended, total = module.extend(cache, length, module.embed(tokens), valid)
        return module.logits(hidden[:, -1:])[0, 0], extended, total

    result: Any = decoder.apply({"params": params}, method=read)
    return result


@partial(jax.jit, static_argnames=("nucleus",))
def _choose(
    logits: Float[Array, " V"],
    allowed: Int[Array, " W"],
    key: Key[Array, ""],
    temperature: Float[Array, ""],
    top_p: Float[Array, ""],
    *,
    nucleus: bool,
) -> tuple[Int[Array, ""], Float[Array, ""], Float[Array, " L"], Int[Array, " L"]]:
    """A token among the allowed ones, and log probabilities of it and of the likeliest ones."""
    logits = logits.astype(jnp.float32)
    logprobs = jax.nn.log_softmax(logits)
    number = jnp.arange(len(logits))
    bit = (allowed[number // 32] >> (number % 32)) & 1
    masked = jnp.where(bit == 1, logits, -jnp.inf)
    scaled = masked / jnp.maximum(temperature, 1e-6)
    if nucleus:
        order = jnp.argsort(scaled, descending=True)
        probability = jax.nn.softmax(scaled[order])
        kept = jnp.cumsum(probability) - probability < top_p
        scaled = scaled.at[order].set(jnp.where(kept, scaled[order], -jnp.inf))
    drawn = jax.random.categorical(key, scaled)
    token = jnp.where(temperature == 0, jnp.argmax(masked), drawn)
    top, ids = jax.lax.top_k(logprobs, min(MOST_LOGPROBS, len(logits)))
    return token, logprobs[token], top, ids


class TokenDecoder:
    """Goes on with prompts, a token at a time.

    Args:
        model: the language model.
        context: the most tokens of a prompt and its reply.
    """

    def __init__(self, model: LanguageModel, context: int):
        self._model, self.context = model, context
        self.ends = frozenset(map(int, model.end_tokens))
        self.vocabulary = model.decoder.config.vocab_size
        self._all = np.full(-(-self.vocabulary // 32), -1, np.int32)
        self.compiled: set[int] = set()

    def slots(self, tokens: int) -> int:
        """Slots of a cache for so many tokens."""
        size = FEWEST_SLOTS
        while size < tokens:
            size *= 2
        return size

    def warm(self) -> None:
        """Compile what a short reply needs."""
        for _ in self.reply([0], 3, Choice(0.0, 1.0, 0), None):
            pass

    def reply(
        self, prompt: Sequence[int], limit: int, choice: Choice, matcher: Matcher | None
    ) -> Iterator[Chosen]:
        """Yield up to `limit` tokens; the last one may be one of `ends`.

        Args:
            matcher: of a schema; the reply ends once it is complete.
        """
        size = self.slots(len(prompt) + limit)
        self.compiled.add(size)
        decoder, params = self._model.decoder, self._model.params
        cache = empty_cache(decoder.config, 1, size, decoder.dtype)
        length = jnp.zeros(1, jnp.int32)
        for tokens, valid in _chunks(prompt):
            logits, cache, length = _read(decoder, params, cache, length, tokens, valid)
        key = jax.random.key(choice.seed)
        yes = np.ones((1, 1), bool)
        for step in range(limit):
            allowed = self._all if matcher is None else matcher.mask()
            token_, logprob, top, ids = jax.device_get(
                _choose(
                    logits,
                    allowed,
                    jax.random.fold_in(key, step),
                    np.float32(choice.temperature),
                    np.float32(choice.top_p),
                    nucleus=choice.top_p < 1 and choice.temperature > 0,
                )
            )
            token = int(token_)
            pairs = zip(ids.tolist(), top.tolist(), strict=True)
            likeliest = tuple(pairs)[: choice.likeliest]
            yield Chosen(token, float(logprob), likeliest)
            if token in self.ends or (matcher is not None and matcher.take(token)):
                return
            logits, cache, length = _read(
                decoder, params, cache, length, np.full((1, 1), token, np.int32), yes
            )


def _chunks(prompt: Sequence[int]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The prompt in equal pieces, pads at the very beginning."""
    count = -(-len(prompt) // CHUNK)
    tokens = np.zeros(count * CHUNK, np.int32)
    tokens[len(tokens) - len(prompt) :] = prompt
    valid = np.arange(len(tokens)) >= len(tokens) - len(prompt)
    for start in range(0, len(tokens), CHUNK):
        piece = slice(start, start + CHUNK)
        yield tokens[None, piece], valid[None, piece]
