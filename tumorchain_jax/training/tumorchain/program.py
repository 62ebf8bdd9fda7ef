"""The training step of TumorChain, from a configuration and a mesh."""

from typing import Any

import jax.numpy as jnp
from jax.sharding import Mesh
from ml_collections import ConfigDict

from tumorchain_jax.anatomy.organs import ORGANS
from tumorchain_jax.core.path_rules import Rules, first_match
from tumorchain_jax.models.tumorchain.crops import WORLD
from tumorchain_jax.models.tumorchain.flops import training_flops
from tumorchain_jax.models.tumorchain.model import (
    TumorChain,
    TumorChainConfig,
    abstract_params,
    attention_heads,
    logical_axes,
)
from tumorchain_jax.parallel.partition import param_shardings, rules_for
from tumorchain_jax.training.optimizer import Unfreeze
from tumorchain_jax.training.program import (
    Program,
    accumulation_on,
    check_kernel,
    make_program,
    rows,
)
from tumorchain_jax.training.tumorchain.loss import Batch, HybridLoss

ENCODER = "encoder/.*"


def build_program(config: ConfigDict, mesh: Mesh) -> Program:
    """The step that a configuration describes.

    Raises:
        InputError: the configuration is at odds with itself or with the mesh.
    """
    accumulation = accumulation_on(config, mesh)
    check_kernel(config, mesh)
    model: TumorChainConfig = config.model
    network = TumorChain(
        model, remat=config.remat, kernel=config.attention, scan_unroll=config.scan_unroll
    )
    params, heads = abstract_params(model), attention_heads(model)
    rules = rules_for(heads, mesh)
    trainable, unfreeze = _trained(config)
    trained = {path for path in params if first_match(trainable, path)}
    program = make_program(
        config,
        loss=HybridLoss(network, config.alpha, config.logits_chunks),
        params=params,
        shardings=param_shardings(logical_axes(model), heads, mesh, rules),
        trainable=trainable,
        batch=_abstract_batch(config, mesh),
        steps=config.steps,
        learning_rate_peak=config.learning_rate,
        lr_multiplier=config.lr_multiplier,
        unfreeze=unfreeze,
        frozen_dtype=config.frozen_dtype,
        accumulation=accumulation,
        rules=rules,
    )
    return program._replace(
        flops=training_flops(model, config.batch_size, config.data.length, len(ORGANS), trained),
        facts={"remat": config.remat, "lora": model.lora is not None},
    )


def _trained(config: ConfigDict) -> tuple[Rules[bool], Unfreeze | None]:
    """Which parameters the step trains, and which of them late (`config.unfreeze_encoder`)."""
    late = config.unfreeze_encoder
    if not late.lr_factor:
        return config.trainable, None
    start = round(late.start * config.steps)
    return ((ENCODER, True), *config.trainable), Unfreeze(ENCODER, start, late.lr_factor)


def _abstract_batch(config: ConfigDict, mesh: Mesh) -> Batch:
    model: TumorChainConfig = config.model
    length = config.data.length

    def array(shape: tuple[int, ...], dtype: Any) -> Any:
        return rows(mesh, (config.batch_size, *shape), dtype)

    crops: dict[str, Any] = {}
    if model.crop:
        count = len(model.crop.regions)
        crops["crops"] = array((count, *model.encoder.image), jnp.uint8)
        crops["crop_world"] = array((count, WORLD), jnp.float32)
    return Batch(
        volume=array(model.encoder.image, jnp.uint8),
        tokens=array((length,), jnp.int32),
        visual_index=array((length,), jnp.int32),
        loss_mask=array((length,), jnp.bool_),
        positions=array((length,), jnp.int32),
        segment_ids=array((length,), jnp.int32),
        roi_index=array((len(ORGANS), model.roi.candidates), jnp.int32),
        roi_valid=array((len(ORGANS), model.roi.candidates), jnp.bool_),
        abnormal=array((len(ORGANS),), jnp.int8),
        **crops,
    )
