"""The hybrid loss of Eq. 8.

Shape letters: B scans, T positions of a row, O organs, L ROI slots, V vocabulary.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Num

from tumorchain_jax.models.qwen2.model import Packing
from tumorchain_jax.models.tumorchain import TumorChain, run


class Batch(NamedTuple):
    """What a step reads; see `data/pipeline.py`."""

    volume: Num[Array, "B D H W"]
    tokens: Int[Array, "B T"]
    bank_rows: Int[Array, "B T"]
    is_target: Bool[Array, "B T"]
    positions: Int[Array, "B T"]
    owner: Int[Array, "B T"]
    roi_rows: Int[Array, "B O L"]
    roi_valid: Bool[Array, "B O L"]
    abnormal: Int[Array, "B O"]


class Sums(NamedTuple):
    """Sums over a batch, so that parts of a batch add up exactly."""

    token_loss: Float[Array, ""]
    token_hits: Float[Array, ""]
    tokens: Float[Array, ""]
    organ_loss: Float[Array, ""]
    organ_hits: Float[Array, ""]
    organs: Float[Array, ""]


def known_organs(batch: Batch) -> Bool[Array, "B O"]:
    """Organs whose state is known and that the scan shows."""
    return (batch.abnormal >= 0) & batch.roi_valid.any(axis=2)


def loss_sums(model: TumorChain, params: dict, batch: Batch) -> Sums:
    """Run the model on a batch and sum up both terms of Eq. 8.

    The classifier's term is printed in the paper without a logarithm; it is a cross-entropy.
    """
    volume = batch.volume
    if jnp.issubdtype(volume.dtype, jnp.integer):
        volume = volume.astype(jnp.float32) / 255  # as stored in a data set
    logits, organ_logits = run(
        model,
        params,
        volume,
        batch.tokens,
        batch.bank_rows,
        Packing(batch.positions, batch.owner),
        batch.roi_rows,
        batch.roi_valid,
    )
    token_loss, token_hits, tokens = _cross_entropy(
        logits[:, :-1], batch.tokens[:, 1:], batch.is_target[:, 1:]
    )
    organ_loss, organ_hits, organs = _cross_entropy(
        organ_logits, jnp.maximum(batch.abnormal, 0), known_organs(batch)
    )
    return Sums(token_loss, token_hits, tokens, organ_loss, organ_hits, organs)


def _cross_entropy(
    logits: Float[Array, "*N V"], labels: Int[Array, "*N"], weight: Bool[Array, "*N"]
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    hits = jnp.argmax(logits, axis=-1) == labels
    return (
        jnp.sum(loss, where=weight),
        jnp.sum(hits & weight).astype(jnp.float32),
        jnp.sum(weight).astype(jnp.float32),
    )


def hybrid_loss(
    sums: Sums, tokens: Float[Array, ""], organs: Float[Array, ""], alpha: float
) -> Float[Array, ""]:
    """Eq. 8 with the means taken over `tokens` and `organs`: those of the whole batch."""
    return sums.token_loss / jnp.maximum(tokens, 1) + alpha * sums.organ_loss / jnp.maximum(
        organs, 1
    )


def totals(batch: Batch) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Numbers of target tokens and of known organs: the denominators N and M of Eq. 8."""
    tokens = jnp.sum(batch.is_target[:, 1:]).astype(jnp.float32)
    return tokens, jnp.sum(known_organs(batch)).astype(jnp.float32)


def split(batch: Batch, parts: int) -> Batch:
    """Cut a batch into `parts` along a new leading axis."""
    return jax.tree.map(lambda x: x.reshape(parts, x.shape[0] // parts, *x.shape[1:]), batch)
