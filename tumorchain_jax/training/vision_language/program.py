"""The training step of Qwen2.5-VL, from a configuration and a mesh."""

from typing import Any

import jax.numpy as jnp
from jax.sharding import Mesh
from ml_collections import ConfigDict

from tumorchain_jax.models.qwen_vl.model import (
    QwenVL,
    QwenVLConfig,
    abstract_params,
    attention_heads,
    logical_axes,
    part_of,
)
from tumorchain_jax.parallel.partition import param_shardings, rules_for
from tumorchain_jax.training.program import (
    Program,
    accumulation_on,
    check_kernel,
    make_program,
    rows,
)
from tumorchain_jax.training.vision_language.loss import AnswerLoss, Batch


def build_program(config: ConfigDict, mesh: Mesh) -> Program:
    """The step that a configuration describes.

    Raises:
        InputError: the configuration is at odds with itself or with the mesh.
    """
    accumulation = accumulation_on(config, mesh)
    check_kernel(config, mesh)
    model: QwenVLConfig = config.model
    network = QwenVL(
        model, remat=config.remat, kernel=config.attention, scan_unroll=config.scan_unroll
    )
    heads = attention_heads(model)
    rules = rules_for(heads, mesh)
    program = make_program(
        config,
        loss=AnswerLoss(network, config.logits_chunks),
        params=abstract_params(model),
        shardings=param_shardings(logical_axes(model), heads, mesh, rules),
        trainable=config.trainable,
        batch=_abstract_batch(config, mesh),
        steps=config.steps,
        learning_rate_peak=config.learning_rate,
        decay=config.decay,
        lr_multiplier=config.lr_multiplier,
        frozen_dtype=config.frozen_dtype,
        accumulation=accumulation,
        rules=rules,
    )
    facts = {"remat": config.remat, "lora": model.lora is not None}
    return program._replace(facts=facts, part_of=part_of)


def _abstract_batch(config: ConfigDict, mesh: Mesh) -> Batch:
    length, patches = (config.data.length,), (config.data.patches,)

    def array(shape: tuple[int, ...], dtype: Any) -> Any:
        return rows(mesh, (config.batch_size, *shape), dtype)

    return Batch(
        patches=array((*patches, config.model.tower.patch_values), jnp.float32),
        window=array(patches, jnp.int32),
        hw=array((*patches, 2), jnp.int32),
        picture=array(patches, jnp.int32),
        tokens=array(length, jnp.int32),
        is_picture=array(length, jnp.bool_),
        loss_mask=array(length, jnp.bool_),
        valid=array(length, jnp.bool_),
        positions=array((3, *length), jnp.int32),
    )
