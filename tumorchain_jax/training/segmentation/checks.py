"""Checks of a segmenter's training before it starts, for `preflight`."""

from pathlib import Path
from tempfile import TemporaryDirectory

from jax.sharding import Mesh
from ml_collections import ConfigDict

from tumorchain_jax.core.files import AnyPath
from tumorchain_jax.segmentation.plans import Intensity, read_plan
from tumorchain_jax.training.program import Program, rows_per_device
from tumorchain_jax.training.segmentation.patches import check_manifest
from tumorchain_jax.training.segmentation.plan import write_plan
from tumorchain_jax.training.segmentation.train import (
    check_workdir,
    data_folder,
    patient_settings,
    read_intensity,
)

ANY_INTENSITY = Intensity(0.0, 1.0, -1.0, 1.0)
"""Of digital patients whose intensities are not measured yet."""


def check_data(config: ConfigDict, workdir: AnyPath) -> str:
    """Read the plan that the configuration makes, and compare the data folder with it.

    Raises:
        InputError: training would refuse the settings, the working folder or the data.
    """
    check_workdir(workdir)
    data = data_folder(config, Path(workdir))
    measured = read_intensity(data)
    with TemporaryDirectory() as scratch:
        write_plan(Path(scratch), config.segmenter, measured or ANY_INTENSITY)
        plan = read_plan(Path(scratch))
    if measured is None:
        return f"{config.data.phantoms} phantoms, to be made in {data}"
    check_manifest(
        data, plan, config.data.first_seed, config.data.phantoms, patient_settings(config)
    )
    return f"{data}: {config.data.phantoms} phantoms"


def check_init(config: ConfigDict, workdir: AnyPath) -> str:
    """Return where the parameters start."""
    return "random weights"


def check_batch(config: ConfigDict, mesh: Mesh) -> str:
    """Deal a batch to the devices.

    Raises:
        InputError: it cannot be dealt evenly.
    """
    return f"{config.batch_size} patches, {rows_per_device(config, mesh)} on each device"


def check_step(config: ConfigDict, program: Program, mesh: Mesh) -> str:
    """Return that the memory of this task's step is not estimated."""
    return "of a step: not estimated for this task"
