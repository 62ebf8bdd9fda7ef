"""Pretraining of the encoder on cell tags; see `models/cell_tagger.py`.

Shape letters: K cells, p q r voxels of a cell, S digestive organs, F findings: these and the kinds
of `scan/incidental.py`.
"""

from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.core import FrozenDict
from jaxtyping import Array, Bool, Float, Int, Num
from ml_collections import ConfigDict

from tumorchain_jax.data.cell_source import CellSource
from tumorchain_jax.data.dataset import OTHER_TRAITS, PARTS
from tumorchain_jax.models.cell_tagger import CellTagger, tag_alone
from tumorchain_jax.path_rules import flatten
from tumorchain_jax.scan.lesions import BORDERS, DENSITIES, DIGESTIVE, SHAPES
from tumorchain_jax.scan.organs import ORGANS
from tumorchain_jax.training.fit import fit
from tumorchain_jax.training.optimizer import learning_rate, make_optimizer, split_trainable
from tumorchain_jax.training.step import Metrics, TrainState

# Alone, a cell has nothing to attend to: what attention adds stays nothing, so that the encoder
# starts out among its neighbours as it was alone.
ATTENTION_OUT = r"encoder/blocks/out_proj/.*"
KEPT = ("encoder/", "projector/")
TRAINABLE = ((ATTENTION_OUT, False), (".*", True))
# Of a window's width: the most that is added to a cell's own noise.
NOISE = 0.06
# That an organ which is not in the cell has no tumour there is trivial.
ABSENT_WEIGHT = 0.1
TRAITS = {
    "density": len(DENSITIES),
    "shape": len(SHAPES),
    "border": len(BORDERS),
    "other": len(OTHER_TRAITS),
}
TAGS = {"organ": len(ORGANS), "part": len(PARTS) + 1, "found": len(DIGESTIVE) + 3, "centre": 1}
TAGS |= TRAITS
LOSS_WEIGHTS = {"organ": 0.3, "part": 0.3, "found": 3.0, "centre": 0.5}
LOSS_WEIGHTS |= {"density": 0.2, "shape": 0.6, "border": 0.6, "other": 0.6}


class CellBatch(NamedTuple):
    """Cells of scans, and their tags.

    Attributes:
        cells: voxels; integers are steps of 1/255.
        numbers: raster index of each cell in the token grid.
        organ, part: the label that fills most of the cell; 0 is no part.
        present: whether the cell holds more than a few voxels of each digestive organ.
        found: whether it holds more than a few voxels of a tumour of each digestive organ, of a
            metastasis, of a node, of what looks alike.
        unsure: whether it holds a few.
        centre: whether the middle of a lesion lies in it.
        traits: the numbers of the tumour's traits, as in `TRAITS`; -1 without a tumour.
    """

    cells: Num[Array, "K p q r"]
    numbers: Int[Array, " K"]
    organ: Int[Array, " K"]
    part: Int[Array, " K"]
    present: Bool[Array, "K S"]
    found: Bool[Array, "K F"]
    unsure: Bool[Array, "K F"]
    centre: Bool[Array, " K"]
    traits: Int[Array, "K 4"]


def pretrain_encoder(config: ConfigDict, data: Path, workdir: Path) -> dict[str, Any]:
    """Train encoder and projector on cell tags; their parameters by path.

    Args:
        config: reads `model`, `seed`, `encoder`, and the optimizer's and the loop's fields.
        workdir: the run's; it trains in `encoder.folder`, or in `workdir/encoder` without one.
    """
    encoder = config.encoder
    model = CellTagger(config.model, FrozenDict(TAGS))
    schedule = learning_rate(encoder.learning_rate, encoder.steps, config.warmup_ratio)
    optimizer = make_optimizer(
        config.optimizer, schedule, config.weight_decay, config.clip_norm, ((".*", 1.0),)
    )

    @jax.jit
    def init(key: Array) -> dict[str, Any]:
        volume = jnp.zeros((1, *config.model.encoder.image))
        return flatten(nn.meta.unbox(model.init(key, volume))["params"])

    def update(state: TrainState, batch: CellBatch) -> tuple[TrainState, Metrics]:
        cells = augment(jax.random.fold_in(jax.random.key(config.seed), state.step), batch.cells)

        def loss(trained: dict[str, Any]) -> tuple[Float[Array, ""], Metrics]:
            return _loss(model, state.frozen | trained, cells, batch)

        gradient, metrics = jax.grad(loss, has_aux=True)(state.trained)
        updates, new_optimizer = optimizer.update(gradient, state.optimizer, state.trained)
        trained = optax.apply_updates(state.trained, updates)
        state = state._replace(step=state.step + 1, trained=trained, optimizer=new_optimizer)
        return state, metrics

    trained, frozen = split_trainable(init(jax.random.key(config.seed)), TRAINABLE)
    frozen = jax.tree.map(jnp.zeros_like, frozen)
    state = TrainState(jnp.zeros((), jnp.int32), trained, frozen, optimizer.init(trained))
    source = CellSource(data, config.model.encoder, encoder.cuts, config.seed)
    state = fit(
        Path(encoder.folder or workdir / "encoder"),
        state,
        jax.jit(update, donate_argnums=0),
        lambda step: (
            CellBatch(**jax.tree.map(jnp.asarray, batch))
            for batch in source.batches(encoder.cells, config.seed, step)
        ),
        schedule,
        encoder.steps,
        config,
    )
    params = state.frozen | state.trained
    return {path: leaf for path, leaf in params.items() if path.startswith(KEPT)}


def augment(key: Array, cells: Num[Array, "K p q r"]) -> Float[Array, "K p q r"]:
    """Cells mirrored at random, and with noise of their own, so that none is learned by heart."""
    voxels = cells.astype(jnp.float32)
    if jnp.issubdtype(cells.dtype, jnp.integer):
        voxels /= 255
    of_mirror, of_noise, of_level = jax.random.split(key, 3)
    mirrored = jax.random.bernoulli(of_mirror, 0.5, (3, len(voxels), 1, 1, 1))
    for axis in range(3):
        voxels = jnp.where(mirrored[axis], jnp.flip(voxels, axis + 1), voxels)
    deviation = NOISE * jax.random.uniform(of_level, (len(voxels), 1, 1, 1))
    return voxels + deviation * jax.random.normal(of_noise, voxels.shape)


def _loss(
    model: CellTagger, params: dict[str, Any], cells: Float[Array, "K p q r"], batch: CellBatch
) -> tuple[Float[Array, ""], Metrics]:
    logits = tag_alone(model, params, cells, batch.numbers)
    sites = batch.present.shape[-1]
    found = logits["found"]
    present = jnp.pad(batch.present, ((0, 0), (0, found.shape[-1] - sites)), constant_values=True)
    weight = jnp.where(present, 1.0, ABSENT_WEIGHT)
    weight = jnp.where(batch.unsure, 0.0, weight)
    tumour = batch.found[:, :sites].any(axis=1)
    losses = {
        "organ": _cross_entropy(logits["organ"], batch.organ).mean(),
        "part": _mean(_cross_entropy(logits["part"], batch.part), batch.part > 0),
        "found": _mean(_binary(found, batch.found), weight),
        "centre": _mean(_binary(logits["centre"][:, 0], batch.centre), tumour),
    }
    metrics: Metrics = {"part_accuracy": _accuracy(logits["part"], batch.part, batch.part > 0)}
    for number, trait in enumerate(TRAITS):
        value = jnp.maximum(batch.traits[:, number], 0)
        losses[trait] = _mean(_cross_entropy(logits[trait], value), tumour)
        metrics[f"{trait}_accuracy"] = _accuracy(logits[trait], value, tumour)
    own, ill = found[:, :sites], batch.found[:, :sites]
    healthy = batch.present & ~ill & ~batch.unsure[:, :sites]
    metrics |= {
        "loss": sum((LOSS_WEIGHTS[tag] * loss for tag, loss in losses.items()), jnp.zeros(())),
        **{f"{tag}_loss": loss for tag, loss in losses.items()},
        "tumour_sensitivity": _mean(own > 0, ill),
        "tumour_specificity": _mean(own <= 0, healthy),
        "other_sensitivity": _mean(found[:, sites:] > 0, batch.found[:, sites:]),
    }
    return metrics["loss"], metrics


def _cross_entropy(logits: Float[Array, "K V"], values: Int[Array, " K"]) -> Float[Array, " K"]:
    return optax.softmax_cross_entropy_with_integer_labels(logits, values)


def _binary(logits: Float[Array, "*K"], values: Bool[Array, "*K"]) -> Float[Array, "*K"]:
    return optax.sigmoid_binary_cross_entropy(logits, values.astype(jnp.float32))


def _accuracy(
    logits: Float[Array, "K V"], values: Int[Array, " K"], weight: Bool[Array, " K"]
) -> Float[Array, ""]:
    return _mean(jnp.argmax(logits, axis=-1) == values, weight)


def _mean(values: Num[Array, "*K"] | Bool[Array, "*K"], weight: Array) -> Float[Array, ""]:
    return jnp.sum(values * weight) / jnp.maximum(jnp.sum(weight), 1)
