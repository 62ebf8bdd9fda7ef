"""The loss of encoder pretraining: classification of each patch by auxiliary labels.

Shape letters: K patches, S digestive organs, F findings: these and the kinds of
`phantoms/incidental.py`. The leading axes of `PatchLabels` and of the logits may be any that
count the patches.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Num

from tumorchain_jax.anatomy.organs import DIGESTIVE, ORGANS
from tumorchain_jax.data.dataset import SUBSTRUCTURES
from tumorchain_jax.phantoms.dataset import OTHER_TRAITS
from tumorchain_jax.phantoms.lesions import BORDERS, DENSITIES, SHAPES
from tumorchain_jax.training.pretraining.model import ABNORMAL
from tumorchain_jax.training.pretraining.source import BATCH_SHARES, CONTENTS, UNKNOWN
from tumorchain_jax.training.state import Metrics

# It is trivial that an organ outside the patch has no tumour in it.
ABSENT_WEIGHT = 0.1
TRAITS = {
    "density": len(DENSITIES),
    "shape": len(SHAPES),
    "border": len(BORDERS),
    "other": len(OTHER_TRAITS),
}
VALUES = {"organ": len(ORGANS), "part": len(SUBSTRUCTURES) + 1, "found": len(DIGESTIVE) + 3}
VALUES |= {"centre": 1, "place": 3} | TRAITS
"""Label -> how many logits it has."""
LOSS_WEIGHTS = {"organ": 0.3, "part": 0.3, "found": 3.0, "centre": 0.5, "place": 1.0}
LOSS_WEIGHTS |= {"density": 0.2, "shape": 0.6, "border": 0.6, "other": 0.6}
LOSS_WEIGHTS |= {ABNORMAL: 3.0}
CONTENT = "content"
NO_AUXILIARY: Mapping[str, float] = MappingProxyType({"segment": 0.0, CONTENT: 0.0})


def label_sizes(crops: bool, auxiliary: Mapping[str, float]) -> dict[str, int]:
    """How many logits each label has, of a model with or without crops.

    Args:
        auxiliary: as of `patch_label_loss`; what has no weight has no head.
    """
    sizes = VALUES | ({ABNORMAL: 2} if crops else {})
    return sizes | ({CONTENT: len(CONTENTS)} if auxiliary[CONTENT] else {})


class PatchLabels(NamedTuple):
    """Auxiliary labels of patches.

    Attributes:
        organ, part: the label that fills most of the patch; 0 is no part.
        present: whether the patch holds more than a few voxels of each digestive organ.
        found: whether it holds more than a few voxels of a tumour of each digestive organ, of a
            metastasis, of a node, of a look-alike.
        unsure: whether it holds only a few.
        centre: whether it holds the centre of a lesion.
        place: its position in the token grid, along each axis from -1 to 1; predicting it is what
            makes the features retain the position.
        traits: the numbers of the tumour's traits, as in `TRAITS`; -1 without a tumour.
        content: what it holds, as in `CONTENTS`, or `UNKNOWN`.
    """

    organ: Int[Array, "*K"]
    part: Int[Array, "*K"]
    present: Bool[Array, "*K S"]
    found: Bool[Array, "*K F"]
    unsure: Bool[Array, "*K F"]
    centre: Bool[Array, "*K"]
    place: Float[Array, "*K 3"]
    traits: Int[Array, "*K 4"]
    content: Int[Array, "*K"]


def patch_label_loss(
    logits: dict[str, Array],
    labels: PatchLabels,
    auxiliary: Mapping[str, float] = NO_AUXILIARY,
) -> tuple[Float[Array, ""], Metrics]:
    """The weighted sum of the losses of all labels, and metrics.

    Patches with a finding, healthy ones of a digestive organ and others count in `BATCH_SHARES`,
    however many there are of each.

    Args:
        logits: by label, `[*K, values]`; of `ABNORMAL` only for models with crops.
        auxiliary: weights of `config.pretrain.auxiliary`: `segment` adds to the weight of the part
            of the organ, `content` is that of what the patch holds.
    """
    patches = labels.organ.ndim
    logits = {name: values.reshape(-1, values.shape[-1]) for name, values in logits.items()}
    labels = PatchLabels(*(label.reshape(-1, *label.shape[patches:]) for label in labels))
    counts = _balance(labels)
    sites = labels.present.shape[-1]
    found = logits["found"]
    present = jnp.pad(labels.present, ((0, 0), (0, found.shape[-1] - sites)), constant_values=True)
    weight = counts[:, None] * jnp.where(present, 1.0, ABSENT_WEIGHT)
    weight = jnp.where(labels.unsure, 0.0, weight)
    tumour = counts * labels.found[:, :sites].any(axis=1)
    parted = counts * (labels.part > 0)
    losses = {
        "organ": _mean(_cross_entropy(logits["organ"], labels.organ), counts),
        "part": _mean(_cross_entropy(logits["part"], labels.part), parted),
        "found": _mean(_binary(found, labels.found), weight),
        "centre": _mean(_binary(logits["centre"][:, 0], labels.centre), tumour),
        "place": _mean(jnp.mean((logits["place"] - labels.place) ** 2, axis=1), counts),
    }
    if ABNORMAL in logits:
        # A look-alike, the last kind, is benign.
        pathological = labels.found[:, :-1].any(axis=1)
        sure = counts * (pathological | ~labels.unsure[:, :-1].any(axis=1))
        value = pathological.astype(jnp.int32)
        losses[ABNORMAL] = _mean(_cross_entropy(logits[ABNORMAL], value), sure)
    weights = LOSS_WEIGHTS | {"part": LOSS_WEIGHTS["part"] + auxiliary["segment"]}
    known = counts * (labels.content != UNKNOWN)
    content = jnp.maximum(labels.content, 0)
    if CONTENT in logits:
        weights[CONTENT] = auxiliary[CONTENT]
        losses[CONTENT] = _mean(_cross_entropy(logits[CONTENT], content), known)
    metrics: Metrics = {"part_accuracy": _accuracy(logits["part"], labels.part, parted)}
    for number, trait in enumerate(TRAITS):
        value = jnp.maximum(labels.traits[:, number], 0)
        losses[trait] = _mean(_cross_entropy(logits[trait], value), tumour)
        metrics[f"{trait}_accuracy"] = _accuracy(logits[trait], value, tumour)
    if CONTENT in logits:
        metrics["content_accuracy"] = _accuracy(logits[CONTENT], content, known)
    own, ill = found[:, :sites], labels.found[:, :sites]
    healthy = labels.present & ~ill & ~labels.unsure[:, :sites]
    metrics |= {
        "loss": sum((weights[label] * loss for label, loss in losses.items()), jnp.zeros(())),
        **{f"{label}_loss": loss for label, loss in losses.items()},
        "tumour_sensitivity": _mean(own > 0, ill),
        "tumour_specificity": _mean(own <= 0, healthy),
        "other_sensitivity": _mean(found[:, sites:] > 0, labels.found[:, sites:]),
    }
    return metrics["loss"], metrics


def _balance(labels: PatchLabels) -> Float[Array, " K"]:
    """The weight of each patch."""
    ill, digestive = labels.found.any(axis=1), labels.present.any(axis=1)
    groups = ill, digestive & ~ill, ~digestive & ~ill
    weights = [
        share * group / jnp.maximum(group.sum(), 1)
        for share, group in zip(BATCH_SHARES, groups, strict=True)
    ]
    return sum(weights, jnp.zeros(len(labels.organ)))


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
    """The weighted mean; zero where all weights are."""
    return jnp.sum(values * weight) / jnp.maximum(jnp.sum(weight), 1e-6)
