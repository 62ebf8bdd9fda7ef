"""Pretraining of the encoder on cell tags; see `models/cell_tagger.py`.

Shape letters: B scans, K cells of each, p q r voxels of a cell, O organ labels, S digestive organs.
"""

from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Num
from ml_collections import ConfigDict

from tumorchain_jax.data.pipeline import CellSource, batches
from tumorchain_jax.models.cell_tagger import CellTagger, tag_alone
from tumorchain_jax.path_rules import flatten
from tumorchain_jax.scan.organs import DIGESTIVE, ORGANS
from tumorchain_jax.training.fit import fit
from tumorchain_jax.training.optimizer import learning_rate, make_optimizer, split_trainable
from tumorchain_jax.training.step import Metrics, TrainState

# Alone, a cell has nothing to attend to: what attention adds stays nothing, so that the encoder
# starts out among its neighbours as it was alone.
ATTENTION_OUT = r"encoder/blocks/out_proj/.*"
TRAINABLE = ((ATTENTION_OUT, False), (".*", True))
# A lesion in a cell is rare; that an organ which is not in the cell has none there is trivial.
ILL_WEIGHT, ABSENT_WEIGHT = 4.0, 0.03


class CellBatch(NamedTuple):
    """Cells of scans, and their tags.

    Attributes:
        cells: voxels; integers are steps of 1/255.
        numbers: raster index of each cell in the token grid.
        organ: the label that fills most of the cell.
        present: whether the cell holds more than a few voxels of each digestive organ.
        lesion: whether it holds more than a few voxels of a lesion of that organ.
        unsure: whether it holds a few.
    """

    cells: Num[Array, "B K p q r"]
    numbers: Int[Array, "B K"]
    organ: Int[Array, "B K"]
    present: Bool[Array, "B K S"]
    lesion: Bool[Array, "B K S"]
    unsure: Bool[Array, "B K S"]


def pretrain_encoder(config: ConfigDict, data: Path, workdir: Path) -> dict[str, Any]:
    """Train the encoder on cell tags in `workdir/encoder`; its parameters by path, `encoder/...`.

    Args:
        config: reads `model`, `seed`, `encoder`, and the optimizer's and the loop's fields.
    """
    encoder = config.encoder
    model = CellTagger(config.model.encoder, len(ORGANS), len(DIGESTIVE))
    schedule = learning_rate(encoder.learning_rate, encoder.steps, config.warmup_ratio)
    optimizer = make_optimizer(
        config.optimizer, schedule, config.weight_decay, config.clip_norm, ((".*", 1.0),)
    )

    @jax.jit
    def init(key: Array) -> dict[str, Any]:
        volume = jnp.zeros((1, *config.model.encoder.image))
        return flatten(nn.meta.unbox(model.init(key, volume))["params"])

    def update(state: TrainState, batch: CellBatch) -> tuple[TrainState, Metrics]:
        def loss(trained: dict[str, Any]) -> tuple[Float[Array, ""], Metrics]:
            return _loss(model, state.frozen | trained, batch)

        gradient, metrics = jax.grad(loss, has_aux=True)(state.trained)
        updates, new_optimizer = optimizer.update(gradient, state.optimizer, state.trained)
        trained = optax.apply_updates(state.trained, updates)
        state = state._replace(step=state.step + 1, trained=trained, optimizer=new_optimizer)
        return state, metrics

    trained, frozen = split_trainable(init(jax.random.key(config.seed)), TRAINABLE)
    frozen = jax.tree.map(jnp.zeros_like, frozen)
    state = TrainState(jnp.zeros((), jnp.int32), trained, frozen, optimizer.init(trained))
    source = CellSource(data, config.model.encoder, encoder.cells)
    state = fit(
        workdir / "encoder",
        state,
        jax.jit(update, donate_argnums=0),
        lambda step: (
            CellBatch(**batch) for batch in batches(source, encoder.batch_size, config.seed, step)
        ),
        schedule,
        encoder.steps,
        config,
    )
    params = state.frozen | state.trained
    return {path: leaf for path, leaf in params.items() if path.startswith("encoder/")}


def _loss(
    model: CellTagger, params: dict[str, Any], batch: CellBatch
) -> tuple[Float[Array, ""], Metrics]:
    batch = jax.tree.map(
        lambda x: x.reshape(-1, *x.shape[2:]), batch
    )  # whose cell it is: no matter
    cells = batch.cells.astype(jnp.float32)
    if jnp.issubdtype(batch.cells.dtype, jnp.integer):
        cells /= 255
    organ, lesion = tag_alone(model, params, cells, batch.numbers)
    organ_loss = optax.softmax_cross_entropy_with_integer_labels(organ, batch.organ).mean()
    weight = jnp.where(batch.present, 1.0, ABSENT_WEIGHT)
    weight = jnp.where(batch.lesion, ILL_WEIGHT, jnp.where(batch.unsure, 0.0, weight))
    each = optax.sigmoid_binary_cross_entropy(lesion, batch.lesion.astype(jnp.float32))
    lesion_loss = _mean(each, weight)
    healthy = batch.present & ~batch.lesion & ~batch.unsure
    metrics = {
        "loss": 0.3 * organ_loss + 3 * lesion_loss,
        "organ_loss": organ_loss,
        "lesion_loss": lesion_loss,
        "lesion_sensitivity": _mean(lesion > 0, batch.lesion),
        "lesion_specificity": _mean(lesion <= 0, healthy),
    }
    return metrics["loss"], metrics


def _mean(values: Num[Array, "K S"] | Bool[Array, "K S"], weight: Array) -> Float[Array, ""]:
    return jnp.sum(values * weight) / jnp.maximum(jnp.sum(weight), 1)
