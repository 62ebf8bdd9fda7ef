"""Pretraining of the encoder on cell tags; see `models/cell_tagger.py`.

Shape letters: B scans, N cells, O organ labels.
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
from tumorchain_jax.models.cell_tagger import CellTagger
from tumorchain_jax.models.tumorchain import run
from tumorchain_jax.path_rules import flatten, unflatten
from tumorchain_jax.scan.organs import DIGESTIVE, ORGANS
from tumorchain_jax.training.fit import fit
from tumorchain_jax.training.optimizer import adamw, learning_rate
from tumorchain_jax.training.step import Metrics, TrainState


class CellBatch(NamedTuple):
    """Scans and the tags of their cells: which organ fills it, whether it holds a lesion."""

    volume: Num[Array, "B D H W"]
    organ: Int[Array, "B N"]
    lesion: Bool[Array, "B N"]


def pretrain_encoder(config: ConfigDict, data: Path, workdir: Path) -> dict[str, Any]:
    """Train the encoder on cell tags in `workdir/encoder`; its parameters by path, `encoder/...`.

    Args:
        config: reads `model`, `seed`, `encoder`, and the optimizer's and the loop's fields.
    """
    encoder = config.encoder
    model = CellTagger(config.model.encoder, len(ORGANS))
    schedule = learning_rate(encoder.learning_rate, encoder.steps, config.warmup_ratio)
    optimizer = adamw(schedule, config.weight_decay, config.clip_norm)

    @jax.jit
    def init(key: Array) -> dict[str, Any]:
        volume = jnp.zeros((1, *config.model.encoder.image))
        return flatten(nn.meta.unbox(model.init(key, volume))["params"])

    def loss(params: dict[str, Any], batch: CellBatch) -> tuple[Float[Array, ""], Metrics]:
        volume = batch.volume.astype(jnp.float32) / 255
        organ, lesion = run(model, unflatten(params), volume)
        organ_loss = optax.softmax_cross_entropy_with_integer_labels(organ, batch.organ).mean()
        # Cells with a lesion are few. What they must be told from are the healthy cells of the same
        # organs; to tell those organs from others is the easy part, and weighs less.
        ill = batch.lesion
        each = optax.sigmoid_binary_cross_entropy(lesion, ill.astype(jnp.float32))
        alike = ~ill & jnp.isin(batch.organ, jnp.array(DIGESTIVE))
        lesion_loss = 0.5 * _mean(each, ill) + 0.4 * _mean(each, alike)
        lesion_loss += 0.1 * _mean(each, ~ill & ~alike)
        metrics = {
            "loss": organ_loss + lesion_loss,
            "organ_loss": organ_loss,
            "lesion_loss": lesion_loss,
            "lesion_sensitivity": _mean(lesion > 0, ill),
            "lesion_specificity": _mean(lesion <= 0, alike),
        }
        return metrics["loss"], metrics

    def update(state: TrainState, batch: CellBatch) -> tuple[TrainState, Metrics]:
        gradient, metrics = jax.grad(loss, has_aux=True)(state.trained, batch)
        updates, new_optimizer = optimizer.update(gradient, state.optimizer, state.trained)
        trained = optax.apply_updates(state.trained, updates)
        state = state._replace(step=state.step + 1, trained=trained, optimizer=new_optimizer)
        return state, metrics

    params = init(jax.random.key(config.seed))
    state = TrainState(jnp.zeros((), jnp.int32), params, {}, optimizer.init(params))
    source = CellSource(data, config.model.encoder.cells)
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
    return {path: leaf for path, leaf in state.trained.items() if path.startswith("encoder/")}


def _mean(values: Num[Array, "B N"] | Bool[Array, "B N"], where: Bool[Array, "B N"]) -> Array:
    return jnp.sum(values * where) / jnp.maximum(jnp.sum(where), 1)
