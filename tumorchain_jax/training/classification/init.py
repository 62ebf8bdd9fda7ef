"""Where a classifier's parameters start: random weights, or an imported model with or without head.

An imported head of another number of classes is refused: import it with `--drop-head`.
"""

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import numpy as np
from jaxtyping import Array
from ml_collections import ConfigDict

from tumorchain_jax.convert.imported import Imported
from tumorchain_jax.core.path_rules import flatten
from tumorchain_jax.core.remote import as_path, local_copy
from tumorchain_jax.models.image.layers import STATISTICS
from tumorchain_jax.training.classification.program import PART, init_variables
from tumorchain_jax.training.optimizer import STATISTICS as STATISTIC_PATHS
from tumorchain_jax.training.program import Program, sharding_of
from tumorchain_jax.training.state import Params, TrainState
from tumorchain_jax.weights.array_check import check_shapes

HEAD = f"{PART}/head/"
HINT = "set config.model to the imported one's; of another number of classes, import --drop-head"


def start(config: ConfigDict, program: Program) -> TrainState:
    """The state before the first step.

    Raises:
        InputError: `config.init` is of another model.
    """
    params, statistics = _random(config, program)
    if config.init:
        for path, value in flatten(open_init(config).restore()).items():
            where = statistics if STATISTIC_PATHS.fullmatch(path) else params
            like = where[path]
            where[path] = jax.device_put(np.asarray(value, like.dtype), like.sharding)
    return program.start(params, statistics)


def open_init(config: ConfigDict) -> Imported:
    """Open what `config.init` names, and compare it with the model.

    Raises:
        InputError: it was not imported, or is of another model.
    """
    imported = Imported(local_copy(as_path(config.init)))
    variables = jax.eval_shape(partial(init_variables, config), jax.random.key(0))
    unboxed = nn.meta.unbox(variables)
    flat = flatten(unboxed["params"]) | flatten(unboxed.get(STATISTICS, {}))
    found = {path: spec.shape for path, spec in imported.arrays.specs.items()}
    has_head = any(path.startswith(HEAD) for path in found)
    expected = {
        f"{PART}/{path}": leaf.shape
        for path, leaf in flat.items()
        if has_head or not f"{PART}/{path}".startswith(HEAD)
    }
    check_shapes(config.init, found, expected, HINT)
    return imported


def _random(config: ConfigDict, program: Program) -> tuple[Params, Params]:
    def init(key: Array) -> tuple[Any, Any]:
        variables = nn.meta.unbox(init_variables(config, key))
        under = [
            {f"{PART}/{path}": leaf for path, leaf in flatten(variables.get(name, {})).items()}
            for name in ("params", STATISTICS)
        ]
        return under[0], under[1]

    places = (program.params, program.state.statistics)
    shardings = jax.tree.map(sharding_of, places)
    params, statistics = jax.jit(init, out_shardings=shardings)(jax.random.key(config.seed))
    return dict(params), dict(statistics)
