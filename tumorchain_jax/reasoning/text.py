"""Plain text with the decoder alone: read prompts, write their continuations on the device.

Shape letters: B prompts, T positions, N new tokens, K embedding, V vocabulary.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from tumorchain_jax.models.language.qwen2.model import Decoder, empty_cache
from tumorchain_jax.reasoning.generate import GREEDY, Sampling, sample


class Embedded(NamedTuple):
    """Prompts with pictures in them, of Qwen2.5-VL.

    Attributes:
        embeddings: of the prompts, which then take the place of their tokens'.
        positions: rotary positions of the prompts.
        delta: of each row, added to the rotary positions of what is written.
    """

    embeddings: Float[Array, "B T K"]
    positions: Int[Array, "3 B T"]
    delta: Int[Array, " B"]


def _read(
    decoder: Decoder,
    cache: Any,
    length: Array,
    tokens: Array,
    valid: Array,
    embeddings: Array | None = None,
    positions: Array | None = None,
    delta: Array | None = None,
) -> tuple[Array, Any, Array]:
    """Logits after the last position, the new cache, its new length."""
    embeddings = decoder.embed(tokens) if embeddings is None else embeddings
    hidden, cache, length = decoder.extend(cache, length, embeddings, valid, positions, delta)
    return decoder.logits(hidden[:, -1:])[:, 0], cache, length


@partial(jax.jit, static_argnames=("decoder", "limit", "sampling"))
def continue_text(
    decoder: Decoder,
    params: Any,
    tokens: Int[Array, "B T"],
    valid: Bool[Array, "B T"],
    end_tokens: Int[Array, " E"],
    keys: Key[Array, " B"],
    embedded: Embedded | None = None,
    *,
    limit: int,
    sampling: Sampling = GREEDY,
) -> tuple[Int[Array, "B N"], Int[Array, " B"]]:
    """Write until every row has ended, or has `limit` tokens.

    Args:
        decoder: an `unrolled` one.
        params: its own, unrolled.
        tokens: prompts, pads on the left.
        valid: where they are no pads.
        end_tokens: any of them ends a row; it is not written.
        keys: of each row's draws.
        embedded: the prompts, where there are pictures in them.
        limit: N.

    Returns:
        the new tokens (0 beyond the end of a row), and how many each row has.
    """
    B, T = tokens.shape
    run: Any = partial(decoder.apply, {"params": params}, method=_read)

    def choose(step: Array, logits: Array, going: Array) -> tuple[Array, Array]:
        token = sample(logits, jax.vmap(jax.random.fold_in, (0, None))(keys, step), sampling)
        return token, going & ~jnp.isin(token, end_tokens)

    def unfinished(carry: tuple) -> Bool[Array, ""]:
        step, _, going = carry[:3]
        return (step < limit) & jnp.any(going)

    def write(carry: tuple) -> tuple:
        step, token, going, cache, length, written, count = carry
        logits, cache, length = run(cache, length, token[:, None], going[:, None], delta=delta)
        token, going = choose(step, logits, going)
        written = written.at[:, step].set(jnp.where(going, token, 0))
        return step + 1, token, going, cache, length, written, count + going

    cache = empty_cache(decoder.config, B, T + limit, decoder.dtype)
    prompts = embedded[:2] if embedded else ()
    delta = embedded.delta if embedded else None
    logits, cache, length = run(cache, jnp.zeros(B, jnp.int32), tokens, valid, *prompts)
    token, going = choose(jnp.int32(0), logits, jnp.ones(B, bool))
    written = jnp.zeros((B, limit), jnp.int32).at[:, 0].set(jnp.where(going, token, 0))
    start = (jnp.int32(1), token, going, cache, length, written, going.astype(jnp.int32))
    return lax.while_loop(unfinished, write, start)[-2:]


@partial(jax.jit, static_argnames="decoder")
def next_logits(
    decoder: Decoder,
    params: Any,
    tokens: Int[Array, "B T"],
    valid: Bool[Array, "B T"],
    embedded: Embedded | None = None,
) -> Float[Array, "B V"]:
    """Logits of what comes after each row; the arguments are those of `continue_text`."""
    B, T = tokens.shape
    cache = empty_cache(decoder.config, B, T, decoder.dtype)
    start, prompts = jnp.zeros(B, jnp.int32), embedded[:2] if embedded else ()
    return decoder.apply({"params": params}, cache, start, tokens, valid, *prompts, method=_read)[0]


@partial(jax.jit, static_argnames=("decoder", "slots"))
def read_text(
    decoder: Decoder,
    params: Any,
    tokens: Int[Array, "B T"],
    valid: Bool[Array, "B T"],
    *,
    slots: int,
) -> Float[Array, "B V"]:
    """Read prompts as `continue_text` does, with a cache of `slots`; the next token's logits."""
    cache = empty_cache(decoder.config, len(tokens), slots, decoder.dtype)
    start = jnp.zeros(len(tokens), jnp.int32)
    return decoder.apply({"params": params}, cache, start, tokens, valid, method=_read)[0]
