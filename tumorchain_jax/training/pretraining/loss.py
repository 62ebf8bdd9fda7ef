"""The loss of the encoder's lessons: how well each cell is told for what it holds.

Shape letters: K cells, S digestive organs, F findings: these and the kinds of
`phantoms/incidental.py`. The leading axes of `Tags` and of the logits may be any that count the
cells.
"""

from typing import NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Num

from tumorchain_jax.anatomy.organs import DIGESTIVE, ORGANS
from tumorchain_jax.data.dataset import SUBSTRUCTURES
from tumorchain_jax.phantoms.dataset import OTHER_TRAITS
from tumorchain_jax.phantoms.lesions import BORDERS, DENSITIES, SHAPES
from tumorchain_jax.training.pretraining.source import BATCH_SHARES
from tumorchain_jax.training.state import Metrics

# That an organ which is not in the cell has no tumour there is trivial.
ABSENT_WEIGHT = 0.1
TRAITS = {
    "density": len(DENSITIES),
    "shape": len(SHAPES),
    "border": len(BORDERS),
    "other": len(OTHER_TRAITS),
}
VALUES = {"organ": len(ORGANS), "part": len(SUBSTRUCTURES) + 1, "found": len(DIGESTIVE) + 3}
VALUES |= {"centre": 1, "place": 3} | TRAITS
"""Tag -> how many logits it has."""
LOSS_WEIGHTS = {"organ": 0.3, "part": 0.3, "found": 3.0, "centre": 0.5, "place": 1.0}
LOSS_WEIGHTS |= {"density": 0.2, "shape": 0.6, "border": 0.6, "other": 0.6}


class Tags(NamedTuple):
    """What cells hold.

    Attributes:
        organ, part: the label that fills most of the cell; 0 is no part.
        present: whether the cell holds more than a few voxels of each digestive organ.
        found: whether it holds more than a few voxels of a tumour of each digestive organ, of a
            metastasis, of a node, of what looks alike.
        unsure: whether it holds a few.
        centre: whether the middle of a lesion lies in it.
        place: where it lies in the token grid, along each axis from -1 to 1. Nothing else keeps the
            features from forgetting that.
        traits: the numbers of the tumour's traits, as in `TRAITS`; -1 without a tumour.
    """

    organ: Int[Array, "*K"]
    part: Int[Array, "*K"]
    present: Bool[Array, "*K S"]
    found: Bool[Array, "*K F"]
    unsure: Bool[Array, "*K F"]
    centre: Bool[Array, "*K"]
    place: Float[Array, "*K 3"]
    traits: Int[Array, "*K 4"]


def patch_label_loss(logits: dict[str, Array], tags: Tags) -> tuple[Float[Array, ""], Metrics]:
    """The weighted sum of all tags' losses, and what to log.

    Cells with a finding, healthy ones of a digestive organ and others count in `BATCH_SHARES`,
    however many there are of each.

    Args:
        logits: by tag, `[*K, values]`.
    """
    cells = tags.organ.ndim
    logits = {name: values.reshape(-1, values.shape[-1]) for name, values in logits.items()}
    tags = Tags(*(tag.reshape(-1, *tag.shape[cells:]) for tag in tags))
    counts = _balance(tags)
    sites = tags.present.shape[-1]
    found = logits["found"]
    present = jnp.pad(tags.present, ((0, 0), (0, found.shape[-1] - sites)), constant_values=True)
    weight = counts[:, None] * jnp.where(present, 1.0, ABSENT_WEIGHT)
    weight = jnp.where(tags.unsure, 0.0, weight)
    tumour = counts * tags.found[:, :sites].any(axis=1)
    parted = counts * (tags.part > 0)
    losses = {
        "organ": _mean(_cross_entropy(logits["organ"], tags.organ), counts),
        "part": _mean(_cross_entropy(logits["part"], tags.part), parted),
        "found": _mean(_binary(found, tags.found), weight),
        "centre": _mean(_binary(logits["centre"][:, 0], tags.centre), tumour),
        "place": _mean(jnp.mean((logits["place"] - tags.place) ** 2, axis=1), counts),
    }
    metrics: Metrics = {"part_accuracy": _accuracy(logits["part"], tags.part, parted)}
    for number, trait in enumerate(TRAITS):
        value = jnp.maximum(tags.traits[:, number], 0)
        losses[trait] = _mean(_cross_entropy(logits[trait], value), tumour)
        metrics[f"{trait}_accuracy"] = _accuracy(logits[trait], value, tumour)
    own, ill = found[:, :sites], tags.found[:, :sites]
    healthy = tags.present & ~ill & ~tags.unsure[:, :sites]
    metrics |= {
        "loss": sum((LOSS_WEIGHTS[tag] * loss for tag, loss in losses.items()), jnp.zeros(())),
        **{f"{tag}_loss": loss for tag, loss in losses.items()},
        "tumour_sensitivity": _mean(own > 0, ill),
        "tumour_specificity": _mean(own <= 0, healthy),
        "other_sensitivity": _mean(found[:, sites:] > 0, tags.found[:, sites:]),
    }
    return metrics["loss"], metrics


def _balance(tags: Tags) -> Float[Array, " K"]:
    """How much each cell counts."""
    ill, digestive = tags.found.any(axis=1), tags.present.any(axis=1)
    groups = ill, digestive & ~ill, ~digestive & ~ill
    weights = [
        share * group / jnp.maximum(group.sum(), 1)
        for share, group in zip(BATCH_SHARES, groups, strict=True)
    ]
    return sum(weights, jnp.zeros(len(tags.organ)))


def _cross_entropy(logits: Float[Array, "K V"], values: Int[Array, " K"]) -> Float[Array, " K"]:
    return optax.softmax_cross_entropy_with_integer_labels(logits, values)


def _binary(logits: Float[Array, "*K"], values: Bool[Array, "*K"]) -> Float[Array, "*K"]:
    return optax.sigmoid_binary_cross_entropy(logits, values.astype(jnp.float32))


def _accuracy(
    logits: Float[Array, "K V"], values: Int[Array, " K"], weight: Num[Array, " K"]
) -> Float[Array, ""]:
    return _mean(jnp.argmax(logits, axis=-1) == values, weight)


def _mean(
    values: Num[Array, "*K"] | Bool[Array, "*K"], weight: Num[Array, "*K"] | Bool[Array, "*K"]
) -> Float[Array, ""]:
    """Zero where nothing counts."""
    return jnp.sum(values * weight) / jnp.maximum(jnp.sum(weight), 1e-6)
