"""A configuration and a mesh -> the compiled step, and what it takes: shapes, types and places.

Nothing here makes an array, so that a step can be built for devices that are not at hand.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from tumorchain_jax.anatomy.organs import ORGANS
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.path_rules import unflatten
from tumorchain_jax.models.layers.attention import KERNELS, PLATFORMS
from tumorchain_jax.models.tumorchain.flops import training_flops
from tumorchain_jax.models.tumorchain.model import (
    TumorChain,
    TumorChainConfig,
    abstract_params,
    attention_heads,
    logical_axes,
)
from tumorchain_jax.parallel.partition import param_shardings, rows_of, state_shardings
from tumorchain_jax.training.optimizer import learning_rate, make_optimizer, split_trainable
from tumorchain_jax.training.state import Step, TrainState
from tumorchain_jax.training.step import make_step
from tumorchain_jax.training.tumorchain.loss import Batch


class Program(NamedTuple):
    """The step of a training run.

    Attributes:
        step: consumes the state that it is given. To be traced on the mesh, see `on_mesh`.
        state, batch: what it takes, as shapes with shardings.
    """

    step: Step
    state: TrainState
    batch: Batch
    optimizer: optax.GradientTransformation
    schedule: optax.Schedule

    @property
    def params(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Of the state, by path."""
        return self.state.frozen | self.state.trained

    def start(self, params: dict[str, jax.Array]) -> TrainState:
        """The state before the first step, with these parameters, which it consumes."""
        trained = {path: params[path] for path in self.state.trained}
        frozen = {path: params[path] for path in self.state.frozen}
        shardings = jax.tree.map(_sharding, self.state.optimizer)
        optimizer = jax.jit(self.optimizer.init, out_shardings=shardings)(trained)
        step = jax.device_put(np.int32(0), self.state.step.sharding)
        return TrainState(step, trained, frozen, optimizer)


def build_program(config: ConfigDict, mesh: Mesh) -> Program:
    """The step that a configuration describes.

    Raises:
        InputError: the configuration is at odds with itself or with the mesh.
    """
    accumulation = accumulation_on(config, mesh)
    _check_kernel(config, mesh)
    schedule = learning_rate(config.learning_rate, config.steps, config.warmup_ratio)
    optimizer = make_optimizer(
        config.optimizer, schedule, config.weight_decay, config.clip_norm, config.lr_multiplier
    )
    state = _abstract_state(config, mesh, optimizer)
    batch = _abstract_batch(config, mesh)
    step = make_step(
        TumorChain(
            config.model,
            remat=config.remat,
            kernel=config.attention,
            scan_unroll=config.scan_unroll,
        ),
        optimizer,
        config.alpha,
        accumulation,
        config.logits_chunks,
        (jax.tree.map(_sharding, state), jax.tree.map(_sharding, batch)),
    )
    return Program(step, state, batch, optimizer, schedule)


def accumulation_on(config: ConfigDict, mesh: Mesh) -> int:
    """How many parts a batch is cut into, one after the other: no more than memory asks for.

    Raises:
        InputError: the batch cannot be cut so.
    """
    devices = mesh.shape["data"] * mesh.shape["fsdp"]
    rows, over = divmod(config.batch_size, devices)
    if over or rows < 1:
        expected = f"a multiple of {devices}, the mesh's data x fsdp"
        raise InputError("config", "batch_size", str(config.batch_size), expected, "change it")
    at_once = config.micro_batch_size
    if at_once < 1 or (rows > at_once and rows % at_once):
        expected = f"a divisor of {rows}, the rows of a batch for each of {devices} devices"
        raise InputError("config", "micro_batch_size", str(at_once), expected, "change it")
    return max(1, rows // at_once)


def step_flops(config: ConfigDict, program: Program) -> int:
    """Floating-point operations of a step, see `models/tumorchain/flops.py`."""
    trained = program.state.trained.keys()
    return training_flops(config.model, config.batch_size, config.data.length, len(ORGANS), trained)


def _sharding(leaf: jax.ShapeDtypeStruct) -> Any:
    return leaf.sharding


def _check_kernel(config: ConfigDict, mesh: Mesh) -> None:
    kernel, platform = config.attention, mesh.devices.flat[0].platform
    if kernel not in KERNELS:
        raise InputError("config", "attention", kernel, ", ".join(KERNELS), "name one of them")
    if platform not in PLATFORMS.get(kernel, (platform,)):
        found, expected = f"{kernel} on {platform}", f"xla, or {PLATFORMS[kernel][0]} devices"
        raise InputError("config", "attention", found, expected, "change it")
    if kernel == "cudnn" and config.model.dtype not in ("bfloat16", "float16"):
        found = f"{kernel} in {config.model.dtype}"
        raise InputError("config", "attention", found, "bfloat16 or float16", "change it")


def _abstract_state(
    config: ConfigDict, mesh: Mesh, optimizer: optax.GradientTransformation
) -> TrainState:
    params = unflatten(abstract_params(config.model))
    trained, frozen = split_trainable(params, config.trainable)
    dtype = jnp.dtype(config.frozen_dtype)
    frozen = {path: jax.ShapeDtypeStruct(leaf.shape, dtype) for path, leaf in frozen.items()}
    step: Any = jax.ShapeDtypeStruct((), jnp.int32)
    state = TrainState(step, trained, frozen, jax.eval_shape(optimizer.init, trained))
    shardings = state_shardings(
        state, param_shardings(logical_axes(config.model), attention_heads(config.model), mesh)
    )
    return jax.tree.map(
        lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        state,
        shardings,
    )


def _abstract_batch(config: ConfigDict, mesh: Mesh) -> Batch:
    model: TumorChainConfig = config.model
    sharding, length = rows_of(mesh), config.data.length

    def array(shape: tuple[int, ...], dtype: Any) -> Any:
        return jax.ShapeDtypeStruct((config.batch_size, *shape), dtype, sharding=sharding)

    return Batch(
        volume=array(model.encoder.image, jnp.uint8),
        tokens=array((length,), jnp.int32),
        visual_index=array((length,), jnp.int32),
        loss_mask=array((length,), jnp.bool_),
        positions=array((length,), jnp.int32),
        segment_ids=array((length,), jnp.int32),
        roi_index=array((len(ORGANS), model.roi_slots), jnp.int32),
        roi_valid=array((len(ORGANS), model.roi_slots), jnp.bool_),
        abnormal=array((len(ORGANS),), jnp.int8),
    )
