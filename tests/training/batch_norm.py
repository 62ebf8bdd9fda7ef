"""A training task with BatchNorm: its program on a mesh, and three steps of it as JSON.

    python tests/training/batch_norm.py

runs them on one and on eight virtual devices, whole and accumulated.
"""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jaxtyping import Array
from ml_collections import ConfigDict

from tumorchain_jax.core.path_rules import flatten, unflatten
from tumorchain_jax.parallel.mesh import make_mesh
from tumorchain_jax.parallel.partition import on_mesh, rows_of
from tumorchain_jax.training.checkpoint import Checkpoints
from tumorchain_jax.training.program import Program, make_program, replicated, rows
from tumorchain_jax.training.state import Metrics, Params, TrainState
from tumorchain_jax.training.step import MeanLoss

ROWS, FEATURES, CLASSES, MOMENTUM, STEPS = 16, 3, 4, 0.9, 3


class Classifier(nn.Module):
    """Dense, BatchNorm, dense."""

    @nn.compact
    def __call__(self, x: Array, train: bool = True) -> Array:
        x = nn.Dense(8, use_bias=False, name="first")(x)  # BatchNorm removes a bias
        x = nn.BatchNorm(use_running_average=not train, momentum=MOMENTUM, name="norm")(x)
        return nn.Dense(CLASSES, name="last")(nn.relu(x))


def loss(
    params: Params, statistics: Params, batch: dict[str, Array], key: Array
) -> tuple[Metrics, Params]:
    variables = {"params": unflatten(params), "batch_stats": unflatten(statistics)}
    logits, updated = Classifier().apply(variables, batch["x"], mutable=["batch_stats"])
    each = optax.softmax_cross_entropy_with_integer_labels(logits, batch["y"])
    return {"loss": each.mean()}, flatten(updated["batch_stats"])


def variables() -> tuple[Params, Params]:
    """Initial parameters and statistics, by path."""
    found = Classifier().init(jax.random.key(0), jnp.zeros((1, FEATURES)))
    return flatten(found["params"]), flatten(found["batch_stats"])


def program(mesh: Mesh, accumulation: int) -> Program:
    params, statistics = jax.eval_shape(variables)
    optimizer = {"optimizer": "adamw", "warmup_ratio": 0.0, "weight_decay": 0.0}
    return make_program(
        ConfigDict({**optimizer, "clip_norm": 1.0, "seed": 0}),
        loss=MeanLoss(loss),
        params=params,
        shardings=replicated(params, mesh),
        trainable=((".*", True),),
        batch={
            "x": rows(mesh, (ROWS, FEATURES), jnp.float32),
            "y": rows(mesh, (ROWS,), jnp.int32),
        },
        statistics=statistics,
        steps=STEPS,
        learning_rate_peak=0.1,
        accumulation=accumulation,
    )


def batch(step: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(step)
    x = rng.normal(2.0, 3.0, (ROWS, FEATURES)).astype(np.float32)
    return {"x": x, "y": rng.integers(0, CLASSES, ROWS, np.int32)}


def train(own: Program, mesh: Mesh, state: TrainState, first: int) -> tuple[TrainState, list]:
    """Steps `first` to the last: the state and the losses."""
    losses = []
    with on_mesh(mesh, own.rules):
        for step in range(first, STEPS):
            state, metrics = own.step(state, jax.device_put(batch(step), rows_of(mesh)))
            losses.append(float(metrics["loss"]))
    return state, losses


def start(own: Program, mesh: Mesh) -> TrainState:
    params, statistics = jax.device_put(variables(), jax.NamedSharding(mesh, jax.P()))
    return own.start(params, statistics)


def report(devices: int, accumulation: int) -> dict[str, Any]:
    mesh = make_mesh({"data": devices}, jax.devices()[:devices])
    own = program(mesh, accumulation)
    state, losses = train(own, mesh, start(own, mesh), 0)
    with TemporaryDirectory() as folder:  # saved from these devices, restored onto them
        checkpoints = Checkpoints(Path(folder), 1, {})
        checkpoints.save(STEPS, state, 0.0)
        checkpoints.close()
        checkpoints = Checkpoints(Path(folder), 1, {})
        restored = checkpoints.restore(own.state)
        checkpoints.close()
    assert restored is not None
    jax.tree.map(np.testing.assert_array_equal, restored, state)
    arrays = restored.statistics | restored.trained
    return {"losses": losses, "arrays": {path: np.ravel(x).tolist() for path, x in arrays.items()}}


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)
    print(json.dumps([report(n, parts) for n, parts in ((1, 1), (8, 1), (1, 2), (8, 2))]))
