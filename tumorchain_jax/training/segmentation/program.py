"""The training step of a segmenter, from a configuration and a mesh."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array
from ml_collections import ConfigDict

from tumorchain_jax.core.path_rules import flatten, unflatten
from tumorchain_jax.models.layers.apply import run
from tumorchain_jax.models.unet3d.model import UNet3D
from tumorchain_jax.training.program import Program, make_program, replicated, rows, rows_per_device
from tumorchain_jax.training.segmentation.augmentation import augment
from tumorchain_jax.training.segmentation.loss import segmentation_loss
from tumorchain_jax.training.state import Metrics, Params
from tumorchain_jax.training.step import MeanLoss


def build_program(config: ConfigDict, mesh: Mesh) -> Program:
    """The step that a configuration describes.

    Every device holds the whole of this small model, and its share of each batch.

    Raises:
        InputError: the configuration is at odds with itself or with the mesh.
    """
    rows_per_device(config, mesh)
    segmenter = config.segmenter
    model = UNet3D(segmenter.network)

    def loss(
        params: Params, statistics: Params, batch: dict[str, Array], key: Array
    ) -> tuple[Metrics, Params]:
        image, labels = augment(key, batch["image"], batch["labels"], config.augmentation)
        _, metrics = segmentation_loss(run(model, unflatten(params), image), labels)
        return metrics, statistics

    params = jax.eval_shape(partial(init_params, config), jax.random.key(0))
    patches = (config.batch_size, *segmenter.patch_size)
    return make_program(
        config,
        loss=MeanLoss(loss),
        params=params,
        shardings=replicated(params, mesh),
        trainable=((".*", True),),
        batch={
            "image": rows(mesh, (*patches, 1), jnp.float32),
            "labels": rows(mesh, patches, jnp.uint8),
        },
        steps=config.steps,
        learning_rate_peak=config.learning_rate,
    )


def init_params(config: ConfigDict, key: Array) -> Params:
    """New parameters by path."""
    segmenter = config.segmenter
    patch = jnp.zeros((1, *segmenter.patch_size, segmenter.network.in_channels))
    return flatten(nn.meta.unbox(UNet3D(segmenter.network).init(key, patch))["params"])
