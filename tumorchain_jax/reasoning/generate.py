"""Prefill, extend and sample: one round of writing, as a loop on the device.

Shape letters: B batch, T tokens of a round, K positions read at once, V vocabulary.
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
    """How a token is chosen: greedily at temperature 0, else from the smallest set of tokens whose
    probability reaches `top_p`, at that temperature.

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
    """One token a row; each row draws from its own key, so rows do not influence each other."""
    if sampling.temperature == 0:
        return jnp.argmax(logits, axis=-1).astype(jnp.int32)
    logits = logits / sampling.temperature
    if sampling.top_p < 1:
        order = jnp.argsort(logits, axis=-1, descending=True)
        probability = jax.nn.softmax(jnp.take_along_axis(logits, order, axis=-1), axis=-1)
        in_order = jnp.cumsum(probability, axis=-1) - probability < sampling.top_p
        # Token by token, not by a least logit: of equal ones (common in bfloat16) some may be out.
        nowhere = jnp.zeros_like(in_order)
        kept = jnp.put_along_axis(nowhere, order, in_order, axis=-1, inplace=False)
        logits = jnp.where(kept, logits, -jnp.inf)
    return jax.vmap(jax.random.categorical)(keys, logits).astype(jnp.int32)


class DecodeState(NamedTuple):
    """Where the decoder stands: its cache, how much of it is filled, what it expects next."""

    cache: tuple[LayerCache, ...]
    length: Int[Array, " B"]
    logits: Float[Array, "B V"]


def read(
    model: TumorChain,
    params: Any,
    visual_tokens: Float[Array, "B M K"],
    reading: DecodeState,
    turn: Turn,
) -> DecodeState:
    """Read a turn at once. Rows without a valid position stay as they are; where there are valid
    ones, the last position must be one.
    """
    embeddings = run(model, params, visual_tokens, turn.tokens, turn.visual_index, method="embed")
    hidden, cache, length = run(
        model, params, reading.cache, reading.length, embeddings, turn.valid, method="extend"
    )
    logits = run(model, params, hidden[:, -1:], method="logits")[:, 0]
    return DecodeState(cache, length, jnp.where(turn.valid[:, -1:], logits, reading.logits))


class Generation(NamedTuple):
    """What one round wrote.

    Attributes:
        tokens: generated ids, 0 beyond `length`.
        length: how many.
        complete: the model ended its answer itself.
        log_probabilities: of each token under the model (temperature 1).
        logits: of each step, the one that ended the answer too; of width 0 if they are not kept.
    """

    tokens: Int[Array, "B T"]
    length: Int[Array, " B"]
    complete: Bool[Array, " B"]
    log_probabilities: Float[Array, "B T"]
    logits: Float[Array, "B T W"]


def generate_round(
    model: TumorChain,
    params: Any,
    visual_tokens: Float[Array, "B M K"],
    reading: DecodeState,
    running: Bool[Array, " B"],
    limit: Int[Array, " B"],
    keys: Key[Array, " B"],
    *,
    end_token: Int[Array, ""],
    tokens_per_round: int,
    sampling: Sampling,
    keep_logits: bool,
) -> tuple[DecodeState, Generation]:
    """Write until each running row ends its answer, or has `limit` or `tokens_per_round` tokens.

    The token that ends an answer is neither written nor read.
    """
    B, V = reading.logits.shape
    T = tokens_per_round

    def unfinished(carry: tuple) -> Bool[Array, ""]:
        step, going, _, _ = carry
        return (step < T) & jnp.any(going)

    def write(carry: tuple) -> tuple:
        step, going, reading, written = carry
        step_keys = jax.vmap(jax.random.fold_in, (0, None))(keys, step)
        token = sample(reading.logits, step_keys, sampling)
        ends = going & (token == end_token)
        writes = going & ~ends
        chosen = jnp.take_along_axis(jax.nn.log_softmax(reading.logits), token[:, None], axis=1)
        length = written.length + writes
        kept = jnp.where(going[:, None], reading.logits, 0.0)
        written = Generation(
            written.tokens.at[:, step].set(jnp.where(writes, token, 0)),
            length,
            written.complete | ends,
            written.log_probabilities.at[:, step].set(jnp.where(writes, chosen[:, 0], 0.0)),
            written.logits.at[:, step].set(kept) if keep_logits else written.logits,
        )
        turn = Turn(token[:, None], jnp.full((B, 1), -1, jnp.int32), writes[:, None])
        reading = read(model, params, visual_tokens, reading, turn)
        return step + 1, writes & (length < limit), reading, written

    nothing = Generation(
        jnp.zeros((B, T), jnp.int32),
        jnp.zeros(B, jnp.int32),
        jnp.zeros(B, bool),
        jnp.zeros((B, T)),
        jnp.zeros((B, T, V if keep_logits else 0)),
    )
    start = (jnp.int32(0), running & (limit > 0), reading, nothing)
    _, _, reading, written = lax.while_loop(unfinished, write, start)
    return reading, written
