"""Cross-entropy of the next token, in sums, so that parts of a batch add up exactly.

Shape letters: B rows, T positions of a row, t some of them, K embedding, V vocabulary.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Num

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.layers.logical_axes import constrain

TokenRows = tuple[Float[Array, "B t K"], Int[Array, "B t"], Bool[Array, "B t"]]
"""Hidden states, the next token of each, and whether it counts in the loss."""
TokenSums = tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]
"""Loss, tokens that have the highest logit, and tokens that count."""


def next_token_sums(
    logits: Callable[[Float[Array, "B t K"]], Float[Array, "B t V"]],
    hidden: Float[Array, "B T K"],
    tokens: Int[Array, "B T"],
    loss_mask: Bool[Array, "B T"],
    parts: int = 1,
) -> TokenSums:
    """Sum up the cross-entropy of the tokens that `loss_mask` marks.

    Args:
        logits: of hidden states.
        parts: into how many the logits of each row are cut, computed one after the other, and again
            in the backward pass: those of a large vocabulary would need most of the memory.

    Raises:
        InputError: they do not divide the row.
    """

    def token_sums(rows: TokenRows) -> TokenSums:
        labels, counted = (constrain(x, "scored_batch", "length") for x in rows[1:])
        return cross_entropy(logits(rows[0]), labels, counted)

    # Each position speaks of the next; the last of a row, of none. To roll and then to clear the
    # last is cut wrongly by XLA of jaxlib 0.10.2, where a device has part of one row.
    rows = hidden, _next(tokens), _next(loss_mask)
    return _sum_in_parts(token_sums, rows, parts)


def _next(x: Num[Array, "B T"] | Bool[Array, "B T"]) -> Num[Array, "B T"] | Bool[Array, "B T"]:
    """The values shifted by one position to the left, with 0 or False at the end."""
    return jnp.pad(x[:, 1:], ((0, 0), (0, 1)))


def _sum_in_parts(
    token_sums: Callable[[TokenRows], TokenSums], rows: TokenRows, parts: int
) -> TokenSums:
    if parts == 1:
        return token_sums(rows)
    length = rows[1].shape[1]
    if length % parts:
        expected = f"a divisor of the row's {length} positions"
        raise InputError("config", "logits_chunks", str(parts), expected, "choose another")

    def deal(x: Array) -> Array:
        # Every part takes positions from the whole row, so that a device that holds some of the
        # positions holds some of each part.
        return jnp.moveaxis(x.reshape(x.shape[0], length // parts, parts, *x.shape[2:]), 2, 0)

    def add(sums: TokenSums, part: TokenRows) -> tuple[TokenSums, None]:
        return jax.tree.map(jnp.add, sums, token_sums(part)), None

    zeros = (jnp.zeros(()),) * 3
    return jax.lax.scan(jax.checkpoint(add), zeros, jax.tree.map(deal, rows))[0]


def cross_entropy(
    logits: Float[Array, "*N V"], labels: Int[Array, "*N"], weight: Bool[Array, "*N"]
) -> TokenSums:
    """Sum up the cross-entropy where `weight` is set."""
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    hits = jnp.argmax(logits, axis=-1) == labels
    return (
        jnp.sum(loss, where=weight),
        jnp.sum(hits & weight).astype(jnp.float32),
        jnp.sum(weight).astype(jnp.float32),
    )
