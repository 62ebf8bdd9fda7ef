"""The encoder's lessons before it learns to speak: cell tags; see `training/pretraining/model.py`.

First cells alone, where a step costs little and most of them matter; then whole scans, where the
cells attend to each other.

Shape letters: K cells, p q r voxels of a cell.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.core import FrozenDict
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Num
from ml_collections import ConfigDict

from tumorchain_jax.core.files import AnyPath
from tumorchain_jax.core.path_rules import Rules, flatten, unflatten
from tumorchain_jax.core.remote import as_path
from tumorchain_jax.models.layers.apply import run
from tumorchain_jax.parallel.mesh import make_mesh
from tumorchain_jax.parallel.partition import rows_of
from tumorchain_jax.parallel.processes import gather_to_host, global_batch
from tumorchain_jax.training.fit import Job, fit
from tumorchain_jax.training.optimizer import learning_rate, make_optimizer, split_trainable
from tumorchain_jax.training.pretraining.loss import VALUES, Tags, patch_label_loss
from tumorchain_jax.training.pretraining.model import PatchClassifier, classify_patches
from tumorchain_jax.training.pretraining.source import Cells, PatchLabelSource, scan_batches
from tumorchain_jax.training.state import Metrics, TrainState
from tumorchain_jax.training.throughput import Work

# Alone, a cell has nothing to attend to: what attention adds stays nothing, so that the encoder
# starts out among its neighbours as it was alone.
ATTENTION_OUT = r"encoder/blocks/out_proj/.*"
PATCH_STAGE, SCAN_STAGE = ((ATTENTION_OUT, False), (".*", True)), ((".*", True),)
KEPT = ("encoder/", "projector/")
# Of a window's width: the least and the most that is added, and by what contrast is multiplied.
NOISE, OFFSET, GAIN = (0.0, 0.06), (-0.04, 0.04), (0.9, 1.1)

Params = dict[str, Any]
"""Parameters by path."""
Batch = dict[str, Any]
"""What the cells are shown in, and `tags`."""
TagCells = Callable[[Params, Batch, Array], dict[str, Array]]
"""From parameters, a batch and a key for its augmentation to the logits of each tag."""


def pretrain_encoder(config: ConfigDict, data: Path, workdir: AnyPath) -> dict[str, np.ndarray]:
    """Train encoder and projector on cell tags; their parameters by path.

    Every device has the whole of this small model, and its share of each batch.

    Args:
        config: reads `model`, `seed`, `encoder`, `mesh`, and the optimizer's and the loop's fields.
        workdir: the run's; it trains in `encoder.folder`, or in `workdir/pretrain` without one.
    """
    patch_stage, scan_stage = config.pretrain.patch_stage, config.pretrain.scan_stage
    named = config.pretrain.folder
    folder = as_path(named) if named else workdir / "pretrain"
    model = PatchClassifier(config.model, FrozenDict(VALUES))
    encoder, seed = config.model.encoder, config.seed

    def label_patches(params: Params, batch: Batch, key: Array) -> dict[str, Array]:
        of_turn, of_noise = jax.random.split(key)
        cells = add_noise(of_noise, turn(of_turn, batch["cells"]))
        return classify_patches(model, params, cells, batch["numbers"])

    def label_scans(params: Params, batch: Batch, key: Array) -> dict[str, Array]:
        return run(model, unflatten(params), add_noise(key, batch["volume"]))

    def patches_from(step: int) -> Iterator[Cells]:
        source = PatchLabelSource(data, encoder, patch_stage.crops_per_scan, seed)
        yield from source.batches(patch_stage.patches_per_batch, seed, step)

    def scans_from(step: int) -> Iterator[Cells]:
        yield from scan_batches(data, encoder, scan_stage.scans, seed, step)

    @jax.jit
    def init(key: Array) -> Params:
        return flatten(nn.meta.unbox(model.init(key, jnp.zeros((1, *encoder.image))))["params"])

    trained, frozen = split_trainable(init(jax.random.key(seed)), PATCH_STAGE)
    params = trained | jax.tree.map(jnp.zeros_like, frozen)
    learn = partial(_learn, config, make_mesh(dict(config.mesh)))
    with nn.logical_axis_rules(()):  # a cell is no scan: to cut its one row would be refused
        params = learn(
            folder / "patch_stage", patch_stage, params, PATCH_STAGE, label_patches, patches_from
        )
        if scan_stage.steps:
            params = learn(
                folder / "scan_stage", scan_stage, params, SCAN_STAGE, label_scans, scans_from
            )
    return {path: gather_to_host(leaf) for path, leaf in params.items() if path.startswith(KEPT)}


def _learn(
    config: ConfigDict,
    mesh: Mesh,
    folder: AnyPath,
    lesson: ConfigDict,
    params: Params,
    trainable: Rules[bool],
    tag: TagCells,
    batches_from: Callable[[int], Iterator[Cells]],
) -> Params:
    """One lesson; its `steps` and `learning_rate` are its own."""
    schedule = learning_rate(lesson.learning_rate, lesson.steps, config.warmup_ratio)
    optimizer = make_optimizer(
        config.optimizer, schedule, config.weight_decay, config.clip_norm, ((".*", 1.0),)
    )

    def update(state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        key = jax.random.fold_in(jax.random.key(config.seed), state.step)

        def loss(trained: Params) -> tuple[Float[Array, ""], Metrics]:
            return patch_label_loss(tag(state.frozen | trained, batch, key), batch["tags"])

        gradient, metrics = jax.grad(loss, has_aux=True)(state.trained)
        updates, new_optimizer = optimizer.update(gradient, state.optimizer, state.trained)
        trained = optax.apply_updates(state.trained, updates)
        state = state._replace(step=state.step + 1, trained=trained, optimizer=new_optimizer)
        return state, metrics

    trained, frozen = split_trainable(params, trainable)
    everywhere = NamedSharding(mesh, PartitionSpec())

    def initial() -> TrainState:
        state = TrainState(jnp.zeros((), jnp.int32), trained, frozen, optimizer.init(trained))
        return jax.device_put(state, everywhere)

    job = Job(
        jax.tree.map(partial(_placed, everywhere), jax.eval_shape(initial)),
        initial,
        jax.jit(update, donate_argnums=0, out_shardings=(everywhere, None)),
        lambda step: map(partial(_batch, rows_of(mesh)), batches_from(step)),
        schedule,
        lesson.steps,
        Work(volumes=lesson.get("scans", 0)),
    )
    state = fit(folder, job, config)
    return state.frozen | state.trained


def _placed(sharding: NamedSharding, leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def _batch(sharding: NamedSharding, cells: Cells) -> Batch:
    count = len(next(iter(cells.values())))
    arrays = global_batch(cells, range(count), count, sharding)
    tags = Tags(*(arrays.pop(field) for field in Tags._fields))
    return {**arrays, "tags": tags}


def turn(key: Array, cells: Num[Array, "K p q q"]) -> Num[Array, "K p q q"]:
    """Cells (square in the slice) mirrored and turned, so that none is learned by heart."""
    drawn = jax.random.bernoulli(key, 0.5, (4, len(cells), 1, 1, 1))
    for axis in range(3):
        cells = jnp.where(drawn[axis], jnp.flip(cells, axis + 1), cells)
    return jnp.where(drawn[3], cells.swapaxes(2, 3), cells)


def add_noise(key: Array, voxels: Num[Array, "K p q r"]) -> Float[Array, "K p q r"]:
    """Intensities in [0, 1], each cell (or scan) with gain, offset and noise of its own."""
    shown = voxels.astype(jnp.float32)
    if jnp.issubdtype(voxels.dtype, jnp.integer):
        shown /= 255
    *of_each, of_noise = jax.random.split(key, 4)
    gain, offset, deviation = (
        jax.random.uniform(own, (len(voxels), 1, 1, 1), minval=low, maxval=high)
        for own, (low, high) in zip(of_each, (GAIN, OFFSET, NOISE), strict=True)
    )
    return gain * shown + offset + deviation * jax.random.normal(of_noise, voxels.shape)
