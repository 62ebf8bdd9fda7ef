"""Prefill, extend and sample: one round of decoding as a loop on the device.

Shape letters: B batch, T tokens of a round, K embedding, M visual tokens,
V vocabulary; R rounds.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.language.qwen2.model import LayerCache
from tumorchain_jax.models.layers.apply import run
from tumorchain_jax.models.tumorchain.model import TumorChain
from tumorchain_jax.reasoning.roi import Turn


@dataclass(frozen=True)
class Sampling:
    """Rule by which tokens are chosen: greedily at temperature 0, else at that temperature from the
    smallest set of tokens whose probability reaches `top_p`.

    Raises:
        InputError: the temperature is negative, or `top_p` not within 0 (excluded) and 1.
    """

    temperature: float = 0.0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            found = str(self.temperature)
            raise InputError("sampling", "temperature", found, "0 (greedy) or more", "change it")
        if not 0 < self.top_p <= 1:
            raise InputError("sampling", "top-p", str(self.top_p), "over 0, at most 1", "change it")


GREEDY = Sampling()


def sample(
    logits: Float[Array, "B V"], keys: Key[Array, " B"], sampling: Sampling
) -> Int[Array, " B"]:
    """Choose one token per row; each row draws from its own key, so rows are independent."""
    if sampling.temperature == 0:
        return jnp.argmax(logits, axis=-1).astype(jnp.int32)
    logits = logits / sampling.temperature
    if sampling.top_p < 1:
        order = jnp.argsort(logits, axis=-1, descending=True)
        probability = jax.nn.softmax(jnp.take_along_axis(logits, order, axis=-1), axis=-1)
        in_order = jnp.cumsum(probability, axis=-1) - probability < sampling.top_p
        # Token by token, not by a least logit: of equal ones (common in bfloat16) some may be out.
        nowhere = jnp.zeros_like(in_order)
        likely = jnp.put_along_axis(nowhere, order, in_order, axis=-1, inplace=False)
        logits = jnp.where(likely, logits, -jnp.inf)
    return jax.vmap(jax.random.categorical)(keys, logits).astype(jnp.int32)


class DecodeState(NamedTuple):
    """State of the decoder between two calls of `extend`.

    Attributes:
        cache: keys and values of each layer.
        length: positions of the cache that are filled.
        logits: of the next token.
    """

    cache: tuple[LayerCache, ...]
    length: Int[Array, " B"]
    logits: Float[Array, "B V"]


def extend(
    model: TumorChain,
    params: Any,
    visual_tokens: Float[Array, "B M K"],
    state: DecodeState,
    turn: Turn,
) -> DecodeState:
    """Read all positions of a turn at once: a prompt (prefill), an ROI turn, or one new token.

    Rows without a valid position stay as they are; in the others the last position must be valid.
    """
    embeddings = run(model, params, visual_tokens, turn.tokens, turn.visual_index, method="embed")
    hidden, cache, length = run(
        model, params, state.cache, state.length, embeddings, turn.valid, method="extend"
    )
    logits = run(model, params, hidden[:, -1:], method="logits")[:, 0]
    return DecodeState(cache, length, jnp.where(turn.valid[:, -1:], logits, state.logits))


class Generation(NamedTuple):
    """The text of one round, as tokens.

    Attributes:
        tokens: generated ids, 0 beyond `length`.
        length: how many.
        complete: the model ended its answer itself.
        log_probabilities: of each token under the model (temperature 1), 0 beyond `length`.
    """

    tokens: Int[Array, "*R B T"]
    length: Int[Array, "*R B"]
    complete: Bool[Array, "*R B"]
    log_probabilities: Float[Array, "*R B T"]

    @classmethod
    def empty(cls, *shape: int) -> "Generation":
        """Nothing generated; `shape` is (B, T), or (R, B, T) for R rounds."""
        *rows, _ = shape
        return cls(
            jnp.zeros(shape, jnp.int32),
            jnp.zeros(rows, jnp.int32),
            jnp.zeros(rows, bool),
            jnp.zeros(shape),
        )


class Writing(NamedTuple):
    """A round that is being written.

    Attributes:
        step: tokens that its longest row has been asked for.
        running: rows that have not ended their answer.
        limit: tokens that each row may write.
        written: so far.
    """

    step: Int[Array, ""]
    running: Bool[Array, " B"]
    limit: Int[Array, " B"]
    written: Generation

    @classmethod
    def begin(cls, running: Bool[Array, " B"], limit: Int[Array, " B"], tokens: int) -> "Writing":
        """Begin a round of at most `tokens` tokens; rows without a limit above 0 write nothing."""
        empty = Generation.empty(len(running), tokens)
        return cls(jnp.int32(0), running & (limit > 0), limit, empty)


def write_tokens(
    model: TumorChain,
    params: Any,
    visual_tokens: Float[Array, "B M K"],
    state: DecodeState,
    writing: Writing,
    *,
    keys: Key[Array, " B"],
    end_token: Int[Array, ""],
    sampling: Sampling,
    most: Int[Array, ""] | int,
) -> tuple[DecodeState, Writing]:
    """Write until each running row has ended its answer, or at most `most` tokens in each.

    The token that ends an answer is neither written nor read.
    """
    B, T = writing.written.tokens.shape
    end = jnp.minimum(T, writing.step + most)

    def unfinished(carry: tuple[DecodeState, Writing]) -> Bool[Array, ""]:
        return (carry[1].step < end) & jnp.any(carry[1].running)

    def write(carry: tuple[DecodeState, Writing]) -> tuple[DecodeState, Writing]:
        state, (step, running, limit, written) = carry
        step_keys = jax.vmap(jax.random.fold_in, (0, None))(keys, step)
        token = sample(state.logits, step_keys, sampling)
        ends = running & (token == end_token)
        writes = running & ~ends
        chosen = jnp.take_along_axis(jax.nn.log_softmax(state.logits), token[:, None], axis=1)
        length = written.length + writes
        written = Generation(
            written.tokens.at[:, step].set(jnp.where(writes, token, 0)),
            length,
            written.complete | ends,
            written.log_probabilities.at[:, step].set(jnp.where(writes, chosen[:, 0], 0.0)),
        )
        turn = Turn(token[:, None], jnp.full((B, 1), -1, jnp.int32), writes[:, None])
        state = extend(model, params, visual_tokens, state, turn)
        return state, Writing(step + 1, writes & (length < limit), limit, written)

    return lax.while_loop(unfinished, write, (state, writing))
