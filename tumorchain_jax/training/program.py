"""The compiled step of any task, and what it takes: shapes, types and shardings.

Nothing here makes an array, so that a step can be built, and compiled, for devices that are not
attached.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from ml_collections import ConfigDict

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.path_rules import Rules
from tumorchain_jax.models.layers.attention import KERNELS, PLATFORMS
from tumorchain_jax.parallel import partition
from tumorchain_jax.parallel.partition import rows_of, state_shardings
from tumorchain_jax.training.optimizer import (
    Decay,
    Unfreeze,
    constant_then_linear,
    learning_rate,
    make_adversarial_optimizer,
    make_optimizer,
    split_trainable,
)
from tumorchain_jax.training.state import Params, Step, TrainState
from tumorchain_jax.training.step import Loss, make_step

AbstractArrays = Mapping[str, jax.ShapeDtypeStruct]


def first_name(path: str) -> str:
    """The first name of a parameter's path."""
    return path.partition("/")[0]


class Program(NamedTuple):
    """The step of a training run.

    Attributes:
        step: consumes the state that it is given. To be traced in `on_mesh(mesh, rules)`.
        state, batch: what it takes, as shapes with shardings.
        rules: partition rules of the activations.
        accumulation: into how many parts a batch is cut, one after the other.
        flops: floating-point operations of the model in a step; 0 where they are not counted.
        facts: what else to report of it, such as `remat`.
        part_of: the part of the model that a parameter belongs to, by its path, for people.
    """

    step: Step
    state: TrainState
    batch: Any
    optimizer: optax.GradientTransformation
    schedule: optax.Schedule
    rules: partition.Rules = partition.RULES
    accumulation: int = 1
    flops: int = 0
    facts: Mapping[str, Any] = MappingProxyType({})
    part_of: Callable[[str], str] = first_name

    @property
    def params(self) -> dict[str, jax.ShapeDtypeStruct]:
        """All parameters of the state, by path."""
        return self.state.params

    def start(self, params: Params, statistics: Params | None = None) -> TrainState:
        """The state before the first step, with these parameters, which it consumes."""
        trained = {path: params[path] for path in self.state.trained}
        frozen = {path: params[path] for path in self.state.frozen}
        shardings = jax.tree.map(sharding_of, self.state.optimizer)
        optimizer = jax.jit(self.optimizer.init, out_shardings=shardings)(trained)
        step = jax.device_put(np.int32(0), self.state.step.sharding)
        return TrainState(step, trained, frozen, optimizer, statistics or {})


def rows_per_device(config: ConfigDict, mesh: Mesh) -> int:
    """Divide a batch among the devices of the mesh that take rows of their own.

    Raises:
        InputError: it cannot be divided evenly.
    """
    devices = mesh.shape["data"] * mesh.shape["fsdp"]
    count, over = divmod(config.batch_size, devices)
    if over or count < 1:
        expected = f"a multiple of {devices}, the mesh's data x fsdp"
        raise InputError("config", "batch_size", str(config.batch_size), expected, "change it")
    return count


def accumulation_on(config: ConfigDict, mesh: Mesh) -> int:
    """How many parts a batch is cut into, one after the other.

    Raises:
        InputError: the batch cannot be cut so.
    """
    count, at_once = rows_per_device(config, mesh), config.micro_batch_size
    if at_once < 1 or (count > at_once and count % at_once):
        devices = config.batch_size // count
        expected = f"a divisor of {count}, the rows of a batch for each of {devices} devices"
        raise InputError("config", "micro_batch_size", str(at_once), expected, "change it")
    return max(1, count // at_once)


def check_kernel(config: ConfigDict, mesh: Mesh) -> None:
    """Refuse an attention kernel that a mesh's devices, or a dtype, do not have.

    Raises:
        InputError: it names them.
    """
    kernel, platform = config.attention, mesh.devices.flat[0].platform
    if kernel not in KERNELS:
        raise InputError("config", "attention", kernel, ", ".join(KERNELS), "name one of them")
    if platform not in PLATFORMS.get(kernel, (platform,)):
        found, expected = f"{kernel} on {platform}", f"xla, or {PLATFORMS[kernel][0]} devices"
        raise InputError("config", "attention", found, expected, "change it")
    if kernel == "cudnn" and config.model.dtype not in ("bfloat16", "float16"):
        found = f"{kernel} in {config.model.dtype}"
        raise InputError("config", "attention", found, "bfloat16 or float16", "change it")


def make_program(
    config: ConfigDict,
    *,
    loss: Loss,
    params: AbstractArrays,
    shardings: Mapping[str, NamedSharding],
    trainable: Rules[bool],
    batch: Any,
    statistics: AbstractArrays | None = None,
    steps: int,
    learning_rate_peak: float,
    decay: Decay = "cosine",
    lr_multiplier: Rules[float] = ((".*", 1.0),),
    unfreeze: Unfreeze | None = None,
    frozen_dtype: str = "float32",
    accumulation: int = 1,
    rules: partition.Rules = (),
    adversarial: bool = False,
) -> Program:
    """The step of a task.

    Args:
        config: reads `optimizer`, `warmup_ratio`, `weight_decay`, `clip_norm` and `seed`.
        params, shardings: of the model, by path.
        batch: shapes with shardings; or one sharding for all of its arrays.
        statistics: by path; replicated on every device.
        decay: of the learning rate after warm-up.
        unfreeze: which of the trained parameters are trained late.
        frozen_dtype: of the parameters that are not trained.
        rules: partition rules of the activations.
        adversarial: Adam as adversarial networks are trained, see `make_adversarial_optimizer`,
            instead of what the configuration names.

    Raises:
        InputError: no such optimizer, or no rule for some parameter.
    """
    if adversarial:
        schedule = constant_then_linear(learning_rate_peak, steps)
        optimizer = make_adversarial_optimizer(schedule, config.clip_norm)
    else:
        schedule = learning_rate(learning_rate_peak, steps, config.warmup_ratio, decay)
        optimizer = make_optimizer(
            config.optimizer, schedule, config.weight_decay, config.clip_norm, lr_multiplier,
            unfreeze,
        )  # fmt: skip
    trained, frozen = split_trainable(dict(params), trainable)
    dtype = jnp.dtype(frozen_dtype)
    frozen = {path: jax.ShapeDtypeStruct(leaf.shape, dtype) for path, leaf in frozen.items()}
    count: Any = jax.ShapeDtypeStruct((), jnp.int32)
    moments = jax.eval_shape(optimizer.init, trained)
    plain = TrainState(count, trained, frozen, moments, dict(statistics or {}))
    state = jax.tree.map(with_sharding, plain, state_shardings(plain, shardings))
    placed = (jax.tree.map(sharding_of, state), jax.tree.map(sharding_of, batch))
    step = make_step(loss, optimizer, accumulation=accumulation, seed=config.seed, shardings=placed)
    return Program(step, state, batch, optimizer, schedule, rules, accumulation)


def replicated(params: Mapping[str, Any], mesh: Mesh) -> dict[str, NamedSharding]:
    """Shardings of a model that every device holds whole, by path."""
    return dict.fromkeys(params, NamedSharding(mesh, PartitionSpec()))


def rows(mesh: Mesh, shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
    """An array of a batch, its rows over the devices."""
    return jax.ShapeDtypeStruct(shape, dtype, sharding=rows_of(mesh))


def with_sharding(leaf: Any, sharding: NamedSharding) -> jax.ShapeDtypeStruct:
    """An abstract array, placed."""
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def sharding_of(leaf: Any) -> Any:
    """The sharding of an abstract array, or one itself."""
    return leaf if isinstance(leaf, NamedSharding) else leaf.sharding
