"""Training of a segmenter on digital patients, as nnU-Net trains: an nnU-Net plan, patches, Dice
and cross-entropy.

Every device has the whole of this small model, and its share of each batch.
"""

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Float
from ml_collections import ConfigDict

from tumorchain_jax.core.files import write_file
from tumorchain_jax.core.path_rules import flatten, unflatten
from tumorchain_jax.models.layers.apply import run
from tumorchain_jax.models.unet3d.model import UNet3D
from tumorchain_jax.parallel.mesh import make_mesh
from tumorchain_jax.parallel.partition import rows_of
from tumorchain_jax.parallel.processes import (
    barrier,
    gather_to_host,
    global_batch,
    is_primary,
    local_rows,
)
from tumorchain_jax.segmentation.model_folder import (
    SegmentationModel,
    digest,
    save_segmentation_model,
)
from tumorchain_jax.segmentation.plans import Intensity, Plan, read_plan
from tumorchain_jax.training.fit import Job, fit
from tumorchain_jax.training.optimizer import learning_rate, make_optimizer
from tumorchain_jax.training.segmentation.augmentation import augment
from tumorchain_jax.training.segmentation.loss import segmentation_loss
from tumorchain_jax.training.segmentation.patches import (
    PatchSource,
    measure_intensity,
    write_labelled_phantoms,
)
from tumorchain_jax.training.segmentation.plan import write_plan
from tumorchain_jax.training.settings import check_settings
from tumorchain_jax.training.state import Metrics, TrainState
from tumorchain_jax.training.throughput import Work

Params = dict[str, Any]
Batch = dict[str, jax.Array]
TRAINER = "nnUNetTrainerNoMirroring"
"""What nnU-Net calls training without mirror images: organs have a side."""


def train_segmenter(config: ConfigDict, workdir: Path) -> None:
    """Train and export to `workdir/export`, in nnU-Net's layout.

    Raises:
        InputError: the configuration is at odds with itself, the devices, the data or the
            checkpoint.
        FloatingPointError: a number is no longer finite.
        Stopped: it was asked to end, and has saved where it was.
    """
    check_settings(config)
    data = Path(config.data.folder or workdir / "data")
    plan_folder = workdir / "plan"
    if is_primary():
        plan_folder.mkdir(parents=True, exist_ok=True)
        write_plan(plan_folder, config.segmenter, _intensity(data, config.data.first_seed))
        plan = read_plan(plan_folder)
        write_labelled_phantoms(data, plan, config.data.first_seed, config.data.phantoms)
    barrier("data")
    plan = read_plan(plan_folder)
    params = learn(config, plan, data, workdir)
    if is_primary():
        export(workdir / "export", plan, params)
    barrier("exported")


def _intensity(data: Path, first_seed: int) -> Intensity:
    """Measured once, and kept beside the data."""
    path = data / "intensity.json"
    if not path.is_file():
        data.mkdir(parents=True, exist_ok=True)
        write_file(path, json.dumps(asdict(measure_intensity(first_seed)), indent=1).encode())
    return Intensity(**json.loads(path.read_bytes()))


def learn(config: ConfigDict, plan: Plan, data: Path, workdir: Path) -> Params:
    """Train on the patches of a folder of labelled scans; the parameters by path."""
    mesh = make_mesh(dict(config.mesh))
    model, rows = UNet3D(plan.network), rows_of(mesh)
    everywhere = NamedSharding(mesh, PartitionSpec())
    schedule = learning_rate(config.learning_rate, config.steps, config.warmup_ratio)
    optimizer = make_optimizer(config.optimizer, schedule, config.weight_decay, config.clip_norm)

    def update(state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        key = jax.random.fold_in(jax.random.key(config.seed), state.step)
        image, labels = augment(key, batch["image"], batch["labels"], config.augmentation)

        def loss(trained: Params) -> tuple[Float[Array, ""], Metrics]:
            return segmentation_loss(run(model, unflatten(trained), image), labels)

        gradient, metrics = jax.grad(loss, has_aux=True)(state.trained)
        updates, new_optimizer = optimizer.update(gradient, state.optimizer, state.trained)
        trained = optax.apply_updates(state.trained, updates)
        metrics["gradient_norm"] = optax.tree.norm(gradient)
        state = state._replace(step=state.step + 1, trained=trained, optimizer=new_optimizer)
        return state, metrics

    def initial() -> TrainState:
        patch = jnp.zeros((1, *plan.patch_size, plan.network.in_channels))
        params = flatten(nn.meta.unbox(model.init(jax.random.key(config.seed), patch))["params"])
        return TrainState(jnp.zeros((), jnp.int32), params, {}, optimizer.init(params))

    source = PatchSource(data, plan.patch_size)

    def batches_from(step: int) -> Iterator[Batch]:
        mine = local_rows(rows, config.batch_size)
        for batch in source.batches(config.batch_size, mine, config.seed, step):
            yield global_batch(batch, mine, config.batch_size, rows)

    with nn.logical_axis_rules(()):
        job = Job(
            jax.tree.map(partial(_placed, everywhere), jax.eval_shape(initial)),
            jax.jit(initial, out_shardings=everywhere),
            jax.jit(update, donate_argnums=0, out_shardings=(everywhere, None)),
            batches_from,
            schedule,
            config.steps,
            Work(config.batch_size),
            config.checkpoint.best,
            order={"seed": config.seed, "batch_size": config.batch_size, "scans": len(source)},
        )
        state = fit(workdir, job, config)
    return {path: gather_to_host(leaf) for path, leaf in state.trained.items()}


def _placed(sharding: NamedSharding, leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def export(folder: Path, plan: Plan, params: Params) -> None:
    """Write the model folder, anew if it is there."""
    plan, params = replace(plan, trainer=TRAINER), unflatten(params)
    model = SegmentationModel(plan, (params,), digest(plan, [params]), str(folder))
    shutil.rmtree(folder, ignore_errors=True)
    save_segmentation_model(model, folder)
