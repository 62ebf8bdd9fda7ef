"""The training tasks by name, and training of any of them."""

from collections.abc import Callable
from typing import NamedTuple

import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.remote import AnyPath
from tumorchain_jax.parallel.mesh import make_mesh
from tumorchain_jax.parallel.partition import on_mesh
from tumorchain_jax.parallel.processes import barrier, gather_to_host, is_primary
from tumorchain_jax.training.classification import checks as classification_checks
from tumorchain_jax.training.classification.program import build_program as classification_program
from tumorchain_jax.training.classification.train import build_task as classification_task
from tumorchain_jax.training.fit import fit
from tumorchain_jax.training.program import Program
from tumorchain_jax.training.segmentation import checks as segmentation_checks
from tumorchain_jax.training.segmentation.program import build_program as segmentation_program
from tumorchain_jax.training.segmentation.train import build_task as segmentation_task
from tumorchain_jax.training.settings import check_settings
from tumorchain_jax.training.task import TrainingTask
from tumorchain_jax.training.translation import checks as translation_checks
from tumorchain_jax.training.translation.program import build_program as translation_program
from tumorchain_jax.training.translation.train import build_task as translation_task
from tumorchain_jax.training.tumorchain import checks as tumorchain_checks
from tumorchain_jax.training.tumorchain.program import build_program as tumorchain_program
from tumorchain_jax.training.tumorchain.train import build_task as tumorchain_task
from tumorchain_jax.training.vision_language import checks as vision_language_checks
from tumorchain_jax.training.vision_language.program import build_program as vision_language_program
from tumorchain_jax.training.vision_language.train import build_task as vision_language_task


class TaskChecks(NamedTuple):
    """Checks before a start; each returns what it found, or raises what training would.

    Attributes:
        data, init: of the data set and the initial weights, on each host, without a device.
        batch: of a batch on a mesh.
        step: of the memory that a step takes.
    """

    data: Callable[[ConfigDict, AnyPath], str]
    init: Callable[[ConfigDict, AnyPath], str]
    batch: Callable[[ConfigDict, Mesh], str]
    step: Callable[[ConfigDict, Program, Mesh], str]


class TaskBuilder(NamedTuple):
    """How a task is made from a configuration.

    Attributes:
        program: the step on a mesh, without data and without making an array.
        task: opens the data (makes it if need be) in a working folder, for a program.
        checks: what `preflight` asks before a training starts.
    """

    program: Callable[[ConfigDict, Mesh], Program]
    task: Callable[[ConfigDict, AnyPath, Mesh, Program], TrainingTask]
    checks: TaskChecks


TASKS = {
    "tumorchain": TaskBuilder(
        tumorchain_program,
        tumorchain_task,
        TaskChecks(
            tumorchain_checks.check_data,
            tumorchain_checks.check_init,
            tumorchain_checks.check_batch,
            tumorchain_checks.check_step,
        ),
    ),
    "segmentation": TaskBuilder(
        segmentation_program,
        segmentation_task,
        TaskChecks(
            segmentation_checks.check_data,
            segmentation_checks.check_init,
            segmentation_checks.check_batch,
            segmentation_checks.check_step,
        ),
    ),
    "classification": TaskBuilder(
        classification_program,
        classification_task,
        TaskChecks(
            classification_checks.check_data,
            classification_checks.check_init,
            classification_checks.check_batch,
            classification_checks.check_step,
        ),
    ),
    "translation": TaskBuilder(
        translation_program,
        translation_task,
        TaskChecks(
            translation_checks.check_data,
            translation_checks.check_init,
            translation_checks.check_batch,
            translation_checks.check_step,
        ),
    ),
    "vision_language": TaskBuilder(
        vision_language_program,
        vision_language_task,
        TaskChecks(
            vision_language_checks.check_data,
            vision_language_checks.check_init,
            tumorchain_checks.check_batch,
            tumorchain_checks.check_step,
        ),
    ),
}


def task_name(config: ConfigDict) -> str:
    """The task of a configuration.

    Raises:
        InputError: there is no such task.
    """
    name = config.get("task", "tumorchain")
    if name not in TASKS:
        raise InputError("config", "task", name, f"one of {', '.join(TASKS)}", "choose one")
    return name


def build_program(config: ConfigDict, mesh: Mesh) -> Program:
    """The compiled step of a configuration's task.

    Raises:
        InputError: the configuration is at odds with itself or with the mesh.
    """
    return TASKS[task_name(config)].program(config, mesh)


def train(config: ConfigDict, workdir: AnyPath) -> None:
    """Train a configuration's task and export the model to `workdir/export`.

    A resumed run continues as if it had not been stopped: the batch of a step depends on the seed
    and the step alone, not on how many processes read it.

    Raises:
        InputError: the configuration is at odds with itself, the devices, the data or the
            checkpoint.
        FloatingPointError: a metric is not finite.
        Stopped: a signal stopped it; it has saved a checkpoint.
    """
    check_settings(config)
    builder = TASKS[task_name(config)]
    mesh = make_mesh(dict(config.mesh))
    program = builder.program(config, mesh)
    task = builder.task(config, workdir, mesh, program)
    with on_mesh(mesh, program.rules):
        state = fit(workdir, task, config)
    params, statistics = (
        jax.tree.map(gather_to_host, arrays) for arrays in (state.params, state.statistics)
    )
    if is_primary():
        task.export(params, statistics)
    barrier("exported")
