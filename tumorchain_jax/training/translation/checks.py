"""Checks of a translation's training before it starts, for `preflight`."""

from jax.sharding import Mesh
from ml_collections import ConfigDict

from tumorchain_jax.core.files import AnyPath
from tumorchain_jax.training.program import Program, rows_per_device
from tumorchain_jax.training.translation.train import looks, open_pictures


def check_data(config: ConfigDict, workdir: AnyPath) -> str:
    """Read the manifest, render its pictures, and count those of each look.

    Raises:
        InputError: training would refuse the settings or the data.
    """
    found = looks(open_pictures(config, workdir), config)
    return f"{config.data.a}: {found['a'].sum()}, {config.data.b}: {found['b'].sum()} pictures"


def check_init(config: ConfigDict, workdir: AnyPath) -> str:
    """Translations start from random weights."""
    return "random weights"


def check_batch(config: ConfigDict, mesh: Mesh) -> str:
    """Divide a batch among the devices.

    Raises:
        InputError: it cannot be divided.
    """
    return f"{rows_per_device(config, mesh)} pictures of each look per device"


def check_step(config: ConfigDict, program: Program, mesh: Mesh) -> str:
    """Return that the memory of this task's step is not estimated."""
    return "of a step: not estimated for this task"
