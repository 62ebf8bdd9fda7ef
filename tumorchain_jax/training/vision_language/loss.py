"""The loss of chats about pictures: cross-entropy of the answers' tokens.

Shape letters: B rows, T positions, P patches, F values of a patch, K embedding, V vocabulary.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from tumorchain_jax.core.path_rules import unflatten
from tumorchain_jax.models.layers.apply import run
from tumorchain_jax.models.qwen_vl.model import Pictures, QwenVL
from tumorchain_jax.training.state import Metrics, Params
from tumorchain_jax.training.token_loss import TokenSums, next_token_sums


class Batch(NamedTuple):
    """The input of a step; see `source.py`."""

    patches: Float[Array, "B P F"]
    window: Int[Array, "B P"]
    hw: Int[Array, "B P 2"]
    picture: Int[Array, "B P"]
    tokens: Int[Array, "B T"]
    is_picture: Bool[Array, "B T"]
    loss_mask: Bool[Array, "B T"]
    valid: Bool[Array, "B T"]
    positions: Int[Array, "B 3 T"]


class Totals(NamedTuple):
    """What a batch holds.

    Attributes:
        targets: tokens that count in the loss.
        positions: text and visual tokens, without padding.
    """

    targets: Float[Array, ""]
    positions: Float[Array, ""]


@dataclass(frozen=True)
class AnswerLoss:
    """The mean over the answers' tokens of the whole batch; see `training/step.py`.

    Attributes:
        logits_chunks: see `training/token_loss.py`.
    """

    model: QwenVL
    logits_chunks: int = 1

    def totals(self, batch: Batch) -> Totals:
        """What the means are taken over."""
        counts = batch.loss_mask[:, 1:], batch.valid
        return Totals(*(jnp.sum(each).astype(jnp.float32) for each in counts))

    def __call__(
        self, params: Params, statistics: Params, part: Batch, totals: Totals, key: Array
    ) -> tuple[Float[Array, ""], TokenSums, Params]:
        """The part's share of the loss, its sums, and the statistics as they are."""
        tree = unflatten(params)
        hidden = run(
            self.model,
            tree,
            Pictures(part.patches, part.window, part.hw, part.picture),
            part.tokens,
            part.is_picture,
            part.valid,
            jnp.moveaxis(part.positions, 1, 0),
            method="hidden",
        )

        def logits(hidden: Float[Array, "B t K"]) -> Float[Array, "B t V"]:
            return run(self.model, tree, hidden, method="logits")

        sums = next_token_sums(logits, hidden, part.tokens, part.loss_mask, self.logits_chunks)
        return sums[0] / jnp.maximum(totals.targets, 1), sums, statistics

    def metrics(self, sums: TokenSums, totals: Totals) -> Metrics:
        """The loss and accuracy of a batch."""
        targets = jnp.maximum(totals.targets, 1)
        return {
            "loss": sums[0] / targets,
            "token_accuracy": sums[1] / targets,
            "tokens": totals.positions,
        }
