"""Checks of a classifier's training before it starts, for `preflight`."""

from pathlib import Path

from jax.sharding import Mesh
from ml_collections import ConfigDict

from tumorchain_jax.core.files import AnyPath
from tumorchain_jax.training.classification.init import open_init
from tumorchain_jax.training.classification.source import load_pictures, trained_on
from tumorchain_jax.training.program import Program, rows_per_device


def check_data(config: ConfigDict, workdir: AnyPath) -> str:
    """Read the manifest, render its pictures, and count those that are trained on.

    Raises:
        InputError: training would refuse the settings or the data.
    """
    pictures = load_pictures(config, Path(config.data.cache or workdir / "cache"))
    chosen = trained_on(pictures, config)
    return f"{config.data.folder}: {chosen.sum()} of {len(chosen)} pictures trained on"


def check_init(config: ConfigDict, workdir: AnyPath) -> str:
    """Compare what `config.init` names with the model.

    Raises:
        InputError: training would refuse it.
    """
    if not config.init:
        return "random weights"
    open_init(config)
    return config.init


def check_batch(config: ConfigDict, mesh: Mesh) -> str:
    """Deal a batch to the devices.

    Raises:
        InputError: it cannot be dealt evenly.
    """
    return f"{config.batch_size} pictures, {rows_per_device(config, mesh)} on each device"


def check_step(config: ConfigDict, program: Program, mesh: Mesh) -> str:
    """Return that the memory of this task's step is not estimated."""
    return "of a step: not estimated for this task"
