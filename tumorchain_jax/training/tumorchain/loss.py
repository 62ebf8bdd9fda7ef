"""The hybrid loss of Eq. 8.

Shape letters: B scans, C crops, T positions of a row, O organs, S ROI slots or candidates for them,
V vocabulary.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Num

from tumorchain_jax.core.path_rules import unflatten
from tumorchain_jax.models.layers.apply import run
from tumorchain_jax.models.layers.attention import Packing
from tumorchain_jax.models.tumorchain.crops import Crops
from tumorchain_jax.models.tumorchain.model import TumorChain
from tumorchain_jax.training.state import Metrics, Params
from tumorchain_jax.training.token_loss import cross_entropy, next_token_sums


class Batch(NamedTuple):
    """The input of a step; see `data/pipeline.py`."""

    volume: Num[Array, "B D H W"]
    tokens: Int[Array, "B T"]
    visual_index: Int[Array, "B T"]
    loss_mask: Bool[Array, "B T"]
    positions: Int[Array, "B T"]
    segment_ids: Int[Array, "B T"]
    roi_index: Int[Array, "B O S"]
    roi_valid: Bool[Array, "B O S"]
    abnormal: Int[Array, "B O"]
    crops: Num[Array, "B C D H W"] | None = None
    crop_world: Float[Array, "B C 7"] | None = None

    def inputs(self) -> tuple[Float[Array, "B D H W"], Crops | None]:
        """What the model's encoder reads: intensities in [0, 1]."""
        volume = _intensities(self.volume)
        if self.crops is None or self.crop_world is None:
            return volume, None
        return volume, Crops(_intensities(self.crops), self.crop_world)


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


def loss_sums(model: TumorChain, params: dict, batch: Batch, parts: int = 1) -> Sums:
    """Run the model on a batch and sum up both terms of Eq. 8.

    The classifier's term is printed in the paper without a logarithm; it is a cross-entropy.

    Args:
        parts: into how many the logits of each row are cut, computed one after the other, and again
            in the backward pass: those of a large vocabulary would need most of the memory.

    Raises:
        InputError: they do not divide the row.
    """
    volume, crops = batch.inputs()
    hidden, organ_logits = run(
        model,
        params,
        volume,
        batch.tokens,
        batch.visual_index,
        Packing(batch.positions, batch.segment_ids),
        batch.roi_index,
        batch.roi_valid,
        crops,
        method="hidden",
    )

    def logits(hidden: Float[Array, "B t K"]) -> Float[Array, "B t V"]:
        return run(model, params, hidden, method="logits")

    token_loss, token_hits, tokens = next_token_sums(
        logits, hidden, batch.tokens, batch.loss_mask, parts
    )
    organ_loss, organ_hits, organs = cross_entropy(
        organ_logits, jnp.maximum(batch.abnormal, 0), known_organs(batch)
    )
    return Sums(token_loss, token_hits, tokens, organ_loss, organ_hits, organs)


def _intensities(voxels: Num[Array, "*B D H W"]) -> Float[Array, "*B D H W"]:
    """Intensities in [0, 1]; a data set stores them in steps of 1/255."""
    if jnp.issubdtype(voxels.dtype, jnp.integer):
        return voxels.astype(jnp.float32) / 255
    return voxels


class Totals(NamedTuple):
    """What a batch holds.

    Attributes:
        targets, organs: the denominators N and M of Eq. 8.
        positions: text and visual tokens, without padding.
    """

    targets: Float[Array, ""]
    organs: Float[Array, ""]
    positions: Float[Array, ""]


@dataclass(frozen=True)
class HybridLoss:
    """Eq. 8, with the means taken over the whole batch; see `training/step.py`.

    Attributes:
        alpha: the weight of the organ classifier's loss.
        logits_chunks: see `loss_sums`.
    """

    model: TumorChain
    alpha: float
    logits_chunks: int = 1

    def totals(self, batch: Batch) -> Totals:
        """What the means are taken over."""
        targets, organs = totals(batch)
        return Totals(targets, organs, jnp.sum(batch.segment_ids >= 0).astype(jnp.float32))

    def __call__(
        self, params: Params, statistics: Params, part: Batch, totals: Totals, key: Array
    ) -> tuple[Float[Array, ""], Sums, Params]:
        """The part's share of the loss, its sums, and the statistics as they are."""
        sums = loss_sums(self.model, unflatten(params), part, self.logits_chunks)
        return hybrid_loss(sums, totals.targets, totals.organs, self.alpha), sums, statistics

    def metrics(self, sums: Sums, totals: Totals) -> Metrics:
        """The losses and accuracies of a batch."""
        targets, organs = jnp.maximum(totals.targets, 1), jnp.maximum(totals.organs, 1)
        return {
            "loss": hybrid_loss(sums, totals.targets, totals.organs, self.alpha),
            "text_loss": sums.token_loss / targets,
            "token_accuracy": sums.token_hits / targets,
            "organ_loss": sums.organ_loss / organs,
            "organ_accuracy": sums.organ_hits / organs,
            "tokens": totals.positions,
        }


def hybrid_loss(
    sums: Sums, tokens: Float[Array, ""], organs: Float[Array, ""], alpha: float
) -> Float[Array, ""]:
    """Eq. 8 with the means taken over `tokens` and `organs`: those of the whole batch."""
    return sums.token_loss / jnp.maximum(tokens, 1) + alpha * sums.organ_loss / jnp.maximum(
        organs, 1
    )


def totals(batch: Batch) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Numbers of target tokens and of known organs: the denominators N and M of Eq. 8."""
    tokens = jnp.sum(batch.loss_mask[:, 1:]).astype(jnp.float32)
    return tokens, jnp.sum(known_organs(batch)).astype(jnp.float32)
