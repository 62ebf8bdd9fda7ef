"""The training step of an image classifier, from a configuration and a mesh.

Shape letters: B pictures, S side, C channels, G cells of a predicted mask.
"""

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float
from ml_collections import ConfigDict

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.path_rules import flatten, unflatten
from tumorchain_jax.models.families import image_classifier
from tumorchain_jax.models.image.layers import STATISTICS
from tumorchain_jax.models.image.pyramid.model import MASK, MASKS, PyramidConfig
from tumorchain_jax.parallel.partition import RULES, LogicalAxes, param_shardings
from tumorchain_jax.training.classification.augmentation import augment
from tumorchain_jax.training.program import Program, make_program, rows, rows_per_device
from tumorchain_jax.training.state import Metrics, Params
from tumorchain_jax.training.step import MeanLoss

PART = "classifier"
"""The first name of every path, as in what `convert` writes."""


def build_model(config: ConfigDict) -> nn.Module:
    """The classifier that a configuration describes."""
    family = image_classifier(config.model)
    return family.build(
        config.model, dtype=config.dtype, remat=config.remat, drop_path=config.drop_path
    )


def build_program(config: ConfigDict, mesh: Mesh) -> Program:
    """The step that a configuration describes.

    A batch has `image` (grey values from 0 to 255), `label`, `weight` (of its class, with mean 1
    over the pictures) and, if the configuration has a `mask_weight`, `mask` (255 in the lesion).
    Batch normalization is over the whole batch, on however many devices.

    Raises:
        InputError: the configuration is at odds with itself or with the mesh.
    """
    rows_per_device(config, mesh)
    with_masks = bool(config.mask_weight)
    if with_masks and not isinstance(config.model, PyramidConfig):
        found = f"{config.mask_weight} with {type(config.model).__name__}"
        raise InputError(
            "config", "mask_weight", found, "0", "a PyramidConfig alone predicts masks"
        )
    model = build_model(config)
    variables = jax.eval_shape(partial(init_variables, config), jax.random.key(0))
    params = _under_part(nn.meta.unbox(variables)["params"])
    statistics = _under_part(nn.meta.unbox(variables).get(STATISTICS, {}))

    def loss(
        params: Params, statistics: Params, batch: dict[str, Array], key: Array
    ) -> tuple[Metrics, Params]:
        of_place, of_drop = jax.random.split(key)
        layers = [batch["image"], *([batch["mask"]] if with_masks else [])]
        moved = augment(of_place, jnp.stack(layers, axis=1) / 255, config.augmentation)
        tree = {"params": unflatten(params)[PART]}
        if statistics:
            tree[STATISTICS] = unflatten(statistics)[PART]
        rngs = {"drop_path": of_drop} if config.drop_path else {}
        (logits, _), new = model.apply(
            tree,
            normalized(config, moved[:, 0]),
            train=True,
            rngs=rngs,
            mutable=[STATISTICS, MASKS],
        )
        truth = jax.nn.one_hot(batch["label"], logits.shape[-1])
        truth = optax.smooth_labels(truth, config.label_smoothing)
        each = optax.softmax_cross_entropy(logits.astype(jnp.float32), truth)
        right = logits.argmax(axis=-1) == batch["label"]
        metrics = {"loss": (each * batch["weight"]).mean(), "accuracy": right.mean()}
        if with_masks:
            metrics["mask_loss"] = mask_loss(new[MASKS][MASK], moved[:, 1])
            metrics["loss"] += config.mask_weight * metrics["mask_loss"]
        return metrics, _under_part(new.get(STATISTICS, {}))

    side = config.data.side
    batch = {
        "image": rows(mesh, (config.batch_size, side, side), jnp.float32),
        "label": rows(mesh, (config.batch_size,), jnp.int32),
        "weight": rows(mesh, (config.batch_size,), jnp.float32),
    }
    if with_masks:
        batch["mask"] = batch["image"]
    return make_program(
        config,
        loss=MeanLoss(loss),
        params=params,
        shardings=param_shardings(_logical_axes(variables["params"]), {}, mesh),
        trainable=((".*", True),),
        batch=batch,
        statistics=statistics,
        steps=config.steps,
        learning_rate_peak=config.learning_rate,
        rules=RULES,
    )


def init_variables(config: ConfigDict, key: Array) -> dict[str, Any]:
    """New parameters and running statistics, with the logical names of their axes."""
    side = config.data.side
    images = jnp.zeros((1, side, side, config.model.channels))
    return dict(build_model(config).init(key, images))


def normalized(config: ConfigDict, image: Float[Array, "B S S"]) -> Float[Array, "B S S C"]:
    """Grey values from 0 to 1 as the model's channels, by the mean and deviation of each."""
    channels = config.model.channels
    mean, std = (jnp.array(each[:channels], jnp.float32) for each in (config.mean, config.std))
    return (image[..., None] - mean) / std


def mask_loss(logits: Float[Array, "B G G"], masks: Float[Array, "B S S"]) -> Float[Array, ""]:
    """Cross-entropy of the cells, and one less the Dice coefficient of each picture.

    Args:
        masks: 1 in the lesion; a cell's truth is the mean of its pixels. Pixels beyond a whole
            number of cells, behind and below, do not count.
    """
    pictures, cells = logits.shape[:2]
    size = masks.shape[1] // cells
    whole = masks[:, : cells * size, : cells * size]
    truth = whole.reshape(pictures, cells, size, cells, size).mean(axis=(2, 4))
    logits = logits.astype(jnp.float32)
    found = nn.sigmoid(logits)
    both = (found * truth).sum(axis=(1, 2))
    each = found.sum(axis=(1, 2)) + truth.sum(axis=(1, 2))
    dice = (2 * both + 1) / (each + 1)
    return optax.sigmoid_binary_cross_entropy(logits, truth).mean() + (1 - dice).mean()


def _under_part(tree: dict) -> Params:
    return {f"{PART}/{path}": leaf for path, leaf in flatten(tree).items()}


def _logical_axes(boxed: dict) -> LogicalAxes:
    """The logical axes and the shape of every parameter, by path."""
    return {f"{PART}/{path}": (box.names, box.value.shape) for path, box in flatten(boxed).items()}
