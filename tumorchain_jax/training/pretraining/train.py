"""Pretrain encoder and projector on auxiliary patch labels; see `training/pretraining/model.py`.

Two stages: single patches, where a step costs little; then whole scans, where patches attend to
each other.

Shape letters: K patches, p q r voxels of a patch.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.core import FrozenDict
from jax.sharding import Mesh
from jaxtyping import Array, Float, Num
from ml_collections import ConfigDict

from tumorchain_jax.core.files import AnyPath
from tumorchain_jax.core.path_rules import Rules, flatten, unflatten
from tumorchain_jax.core.remote import as_path
from tumorchain_jax.models.layers.apply import run
from tumorchain_jax.parallel.mesh import make_mesh
from tumorchain_jax.parallel.partition import on_mesh, rows_of
from tumorchain_jax.parallel.processes import gather_to_host, global_batch
from tumorchain_jax.training.fit import fit
from tumorchain_jax.training.optimizer import split_trainable
from tumorchain_jax.training.pretraining.curriculum import curriculum_of
from tumorchain_jax.training.pretraining.loss import (
    CONTENT,
    PatchLabels,
    label_sizes,
    patch_label_loss,
)
from tumorchain_jax.training.pretraining.model import (
    PatchClassifier,
    classify_patches,
    patch_encoder,
)
from tumorchain_jax.training.pretraining.source import Patches, PatchLabelSource, scan_batches
from tumorchain_jax.training.program import Program, make_program, replicated
from tumorchain_jax.training.state import Metrics, Params
from tumorchain_jax.training.step import MeanLoss
from tumorchain_jax.training.task import TrainingTask

# A patch by itself has nothing to attend to. The output of attention stays zero in the patch
# stage, so that the scan stage starts from what the encoder has learned there.
ATTENTION_OUT = r"encoder/blocks/out_proj/.*"
PATCH_STAGE, SCAN_STAGE = ((ATTENTION_OUT, False), (".*", True)), ((".*", True),)
PRETRAINED = ("encoder/", "projector/", "organ_classifier/")
"""The parts that are handed on, the last by models with crops alone; other heads are dropped."""
NOISE, OFFSET, GAIN = (0.0, 0.06), (-0.04, 0.04), (0.9, 1.1)
"""Ranges of augmentation: what is added, as shares of the window's width, and the contrast."""

Batch = dict[str, Any]
"""Voxels (`patches` and `patch_index`, or `volume`), and `labels`."""


class Stage(NamedTuple):
    """One stage of pretraining.

    Attributes:
        name: also of its folder, and of its fields in the configuration.
        classify: from parameters, a batch and a key for its augmentation to logits by label.
    """

    name: str
    trainable: Rules[bool]
    classify: Callable[[Params, Batch, Array], dict[str, Array]]
    batches_from: Callable[[int], Iterator[Patches]]


def stage_lines(config: ConfigDict) -> list[str]:
    """What pretraining will do, a line for each stage."""
    stages = ((name, config.pretrain[name].steps) for name in ("patch_stage", "scan_stage"))
    return [f"pretraining, {name}: {steps} steps" for name, steps in stages if steps]


def pretrain_encoder(config: ConfigDict, data: Path, workdir: AnyPath) -> dict[str, np.ndarray]:
    """Train encoder and projector on patch labels; their parameters by path.

    Every device holds the whole of this small model, and its share of each batch.

    Args:
        config: reads `model`, `seed`, `pretrain`, `mesh`, and the fields of optimizer and loop.
        workdir: of the run; it trains in `pretrain.folder`, or in `workdir/pretrain` without one.

    Raises:
        InputError: the training scans have no lesions to learn from.
    """
    named = config.pretrain.folder
    folder = as_path(named) if named else workdir / "pretrain"
    mesh = make_mesh(dict(config.mesh))
    labels = label_sizes(config.model.crop is not None, dict(config.pretrain.auxiliary))
    model = PatchClassifier(config.model, FrozenDict(labels))

    @jax.jit
    def init(key: Array) -> Params:
        volume = jnp.zeros((1, *patch_encoder(config.model).image))
        return flatten(nn.meta.unbox(model.init(key, volume))["params"])

    trained, frozen = split_trainable(init(jax.random.key(config.seed)), PATCH_STAGE)
    params = trained | jax.tree.map(jnp.zeros_like, frozen)
    params = _train_stage(config, mesh, folder, _patch_stage(config, model, data), params)
    if config.pretrain.scan_stage.steps:
        params = _train_stage(config, mesh, folder, _scan_stage(config, model, data), params)
    params = {path: leaf for path, leaf in params.items() if path.startswith(PRETRAINED)}
    return {path: gather_to_host(leaf) for path, leaf in params.items()}


def _patch_stage(config: ConfigDict, model: PatchClassifier, data: Path) -> Stage:
    fields, encoder, seed = config.pretrain.patch_stage, patch_encoder(config.model), config.seed

    def classify(params: Params, batch: Batch, key: Array) -> dict[str, Array]:
        turn_key, noise_key = jax.random.split(key)
        patches = add_noise(noise_key, turn(turn_key, batch["patches"]))
        return classify_patches(model, params, patches, batch["patch_index"])

    def batches_from(step: int) -> Iterator[Patches]:
        views = config.model.crop is not None
        source = PatchLabelSource(
            data,
            encoder,
            fields.crops_per_scan,
            seed,
            views,
            curriculum_of(config),
            bool(config.pretrain.auxiliary[CONTENT]),
        )
        yield from source.batches(fields.patches_per_batch, seed, step)

    return Stage("patch_stage", PATCH_STAGE, classify, batches_from)


def _scan_stage(config: ConfigDict, model: PatchClassifier, data: Path) -> Stage:
    encoder, scans = patch_encoder(config.model), config.pretrain.scan_stage.scans

    def classify(params: Params, batch: Batch, key: Array) -> dict[str, Array]:
        return run(model, unflatten(params), add_noise(key, batch["volume"]))

    def batches_from(step: int) -> Iterator[Patches]:
        views = config.model.crop is not None
        curriculum = curriculum_of(config, config.pretrain.patch_stage.steps)
        yield from scan_batches(data, encoder, scans, config.seed, step, views, curriculum)

    return Stage("scan_stage", SCAN_STAGE, classify, batches_from)


def _train_stage(
    config: ConfigDict, mesh: Mesh, folder: AnyPath, stage: Stage, params: Params
) -> Params:
    fields = config.pretrain[stage.name]
    program = _stage_program(config, mesh, stage, params)

    def batches_from(step: int) -> Iterator[Batch]:
        for arrays in stage.batches_from(step):
            count = len(arrays["organ"])
            batch = global_batch(arrays, range(count), count, rows_of(mesh))
            labels = PatchLabels(*(batch.pop(field) for field in PatchLabels._fields))
            yield {**batch, "labels": labels}

    task = TrainingTask(
        name=f"pretraining, {stage.name}",
        program=program,
        steps=fields.steps,
        initial=lambda: program.start(jax.device_put(params, replicated(params, mesh))),
        batches_from=batches_from,
        volumes=fields.get("scans", 0),
        data_fingerprint=_fingerprint(config),
    )
    # No partition rules: a single patch has one row, which cannot be cut.
    with on_mesh(mesh, program.rules):
        return fit(folder / stage.name, task, config).params


def _fingerprint(config: ConfigDict) -> dict[str, float]:
    """What must be the same on resume, yet decides no array's shape; nothing by default."""
    auxiliary, curriculum = config.pretrain.auxiliary, config.pretrain.curriculum
    weights = {f"pretrain.auxiliary.{name}": auxiliary[name] for name in auxiliary}
    fields = {name: weight for name, weight in weights.items() if weight}
    if (whole := curriculum_of(config)) is not None:
        fields |= {f"pretrain.curriculum.{name}": curriculum[name] for name in curriculum}
        fields["pretrain.curriculum.steps"] = whole.steps
    return fields


def _stage_program(config: ConfigDict, mesh: Mesh, stage: Stage, params: Params) -> Program:
    """The step of a stage; its `steps` and `learning_rate` are its own."""
    fields = config.pretrain[stage.name]

    def loss(
        params: Params, statistics: Params, batch: Batch, key: Array
    ) -> tuple[Metrics, Params]:
        logits = stage.classify(params, batch, key)
        _, metrics = patch_label_loss(logits, batch["labels"], dict(config.pretrain.auxiliary))
        return metrics, statistics

    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), params)
    return make_program(
        config,
        loss=MeanLoss(loss),
        params=shapes,
        shardings=replicated(shapes, mesh),
        trainable=stage.trainable,
        batch=rows_of(mesh),
        steps=fields.steps,
        learning_rate_peak=fields.learning_rate,
    )


def turn(key: Array, patches: Num[Array, "K p q q"]) -> Num[Array, "K p q q"]:
    """Mirror and turn patches (square in the slice) at random, against overfitting."""
    drawn = jax.random.bernoulli(key, 0.5, (4, len(patches), 1, 1, 1))
    for axis in range(3):
        patches = jnp.where(drawn[axis], jnp.flip(patches, axis + 1), patches)
    return jnp.where(drawn[3], patches.swapaxes(2, 3), patches)


def add_noise(key: Array, voxels: Num[Array, "K p q r"]) -> Float[Array, "K p q r"]:
    """Intensities in [0, 1] with a random gain, offset and noise for each patch (or scan)."""
    shown = voxels.astype(jnp.float32)
    if jnp.issubdtype(voxels.dtype, jnp.integer):
        shown /= 255
    *of_each, of_noise = jax.random.split(key, 4)
    gain, offset, deviation = (
        jax.random.uniform(own, (len(voxels), 1, 1, 1), minval=low, maxval=high)
        for own, (low, high) in zip(of_each, (GAIN, OFFSET, NOISE), strict=True)
    )
    return gain * shown + offset + deviation * jax.random.normal(of_noise, voxels.shape)
