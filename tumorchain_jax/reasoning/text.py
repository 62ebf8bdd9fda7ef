"""Plain text with the decoder alone: read prompts, write their continuations on the device.

Shape letters: B prompts, T positions, N new tokens.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int, Key

from tumorchain_jax.models.qwen2.model import Decoder, empty_cache
from tumorchain_jax.reasoning.generate import GREEDY, Sampling, sample


def _read(
    decoder: Decoder, cache: Any, length: Array, tokens: Array, valid: Array
) -> tuple[Array, Any, Array]:
    """Logits after the last position, the new cache, its new length."""
    hidden, cache, length = decoder.extend(cache, length, decoder.embed(tokens), valid)
    return decoder.logits(hidden[:, -1:])[:, 0], cache, length


@partial(jax.jit, static_argnames=("decoder", "limit", "sampling"))
def continue_text(
    decoder: Decoder,
    params: Any,
    tokens: Int[Array, "B T"],
    valid: Bool[Array, "B T"],
    end_tokens: Int[Array, " E"],
    keys: Key[Array, " B"],
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
        limit: N.

    Returns:
        the new tokens (0 beyond the end of a row), and how many each row has.
    """
    B, T = tokens.shape
    run: Any = partial(decoder.apply, {"params": params}, method=_read)
    cache = empty_cache(decoder.config, B, T + limit, decoder.dtype)
    logits, cache, length = run(cache, jnp.zeros(B, jnp.int32), tokens, valid)

    def unfinished(carry: tuple) -> Bool[Array, ""]:
        step, going = carry[:2]
        return (step < limit) & jnp.any(going)

    def write(carry: tuple) -> tuple:
        step, going, logits, cache, length, written, count = carry
        token = sample(logits, jax.vmap(jax.random.fold_in, (0, None))(keys, step), sampling)
        going &= ~jnp.isin(token, end_tokens)
        written = written.at[:, step].set(jnp.where(going, token, 0))
        logits, cache, length = run(cache, length, token[:, None], going[:, None])
        return step + 1, going, logits, cache, length, written, count + going

    nothing = jnp.zeros((B, limit), jnp.int32)
    start = (
        jnp.int32(0),
        jnp.ones(B, bool),
        logits,
        cache,
        length,
        nothing,
        jnp.zeros(B, jnp.int32),
    )
    *_, written, count = lax.while_loop(unfinished, write, start)
    return written, count
