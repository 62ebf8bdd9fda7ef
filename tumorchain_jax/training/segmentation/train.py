"""A segmenter as a training task, trained on digital patients as nnU-Net trains: an nnU-Net plan,
patches, Dice and cross-entropy.
"""

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import AnyPath, is_remote, write_file
from tumorchain_jax.core.path_rules import unflatten
from tumorchain_jax.parallel.partition import rows_of
from tumorchain_jax.parallel.processes import barrier, global_batch, is_primary, local_rows
from tumorchain_jax.phantoms.settings import PatientSettings
from tumorchain_jax.segmentation.model_folder import (
    SegmentationModel,
    digest,
    save_segmentation_model,
)
from tumorchain_jax.segmentation.plans import Intensity, Plan, read_plan
from tumorchain_jax.training.program import Program, sharding_of
from tumorchain_jax.training.segmentation.patches import (
    PatchSource,
    measure_intensity,
    write_labelled_phantoms,
)
from tumorchain_jax.training.segmentation.plan import write_plan
from tumorchain_jax.training.segmentation.program import init_params
from tumorchain_jax.training.state import TrainState
from tumorchain_jax.training.task import HostArrays, TrainingTask

TRAINER = "nnUNetTrainerNoMirroring"
"""What nnU-Net calls training without mirror images: organs have a side."""
INTENSITY = "intensity.json"
"""Beside the data."""


def build_task(config: ConfigDict, workdir: AnyPath, mesh: Mesh, program: Program) -> TrainingTask:
    """Write the plan and the digital patients, as far as they are missing, and open them.

    Raises:
        InputError: the folder holds other data.
    """
    check_workdir(workdir)
    data = data_folder(config, Path(workdir))
    plan_folder = workdir / "plan"
    settings = patient_settings(config)
    if is_primary():
        plan_folder.mkdir(parents=True, exist_ok=True)
        write_plan(
            plan_folder, config.segmenter, _intensity(data, config.data.first_seed, settings)
        )
        plan = read_plan(plan_folder)
        first_seed, count = config.data.first_seed, config.data.phantoms
        write_labelled_phantoms(data, plan, first_seed, count, settings=settings)
    barrier("data")
    plan = read_plan(plan_folder)
    source, rows = PatchSource(data, plan.patch_size), rows_of(mesh)

    def batches_from(step: int) -> Iterator[dict[str, jax.Array]]:
        own = local_rows(rows, config.batch_size)
        for batch in source.batches(config.batch_size, own, config.seed, step):
            yield global_batch(batch, own, config.batch_size, rows)

    def initial() -> TrainState:
        shardings = jax.tree.map(sharding_of, program.params)
        init = jax.jit(partial(init_params, config), out_shardings=shardings)
        return program.start(init(jax.random.key(config.seed)))

    def write(params: HostArrays, statistics: HostArrays) -> None:
        export(workdir / "export", plan, params)

    return TrainingTask(
        name="segmentation",
        program=program,
        steps=config.steps,
        initial=initial,
        batches_from=batches_from,
        volumes=config.batch_size,
        best=config.checkpoint.best,
        describe_batch=partial(source.names, config.batch_size, config.seed),
        data_fingerprint={
            "seed": config.seed,
            "batch_size": config.batch_size,
            "scans": len(source),
        },
        export=write,
    )


def check_workdir(workdir: AnyPath) -> None:
    """Refuse an object store: nnU-Net's files are read and written by name.

    Raises:
        InputError: the working folder is not of this machine.
    """
    if is_remote(workdir):
        hint = "name a local folder, and copy its export to the bucket"
        raise InputError("--workdir", "segmenter", str(workdir), "a local folder", hint)


def data_folder(config: ConfigDict, workdir: Path) -> Path:
    """Return the folder of the digital patients."""
    return Path(config.data.folder or workdir / "data")


def patient_settings(config: ConfigDict) -> PatientSettings:
    """Return the kind of digital patients.

    Raises:
        InputError: there is no such kind, or its anatomies cannot be read.
    """
    return PatientSettings(config.data.phantom_kind, config.data.anatomies)


def read_intensity(data: Path) -> Intensity | None:
    """Read the intensities of the digital patients; None before they are measured."""
    path = data / INTENSITY
    return Intensity(**json.loads(path.read_bytes())) if path.is_file() else None


def _intensity(data: Path, first_seed: int, settings: PatientSettings) -> Intensity:
    """Read the intensities of the digital patients, measured once."""
    if not (data / INTENSITY).is_file():
        values = asdict(measure_intensity(first_seed, settings))
        write_file(data / INTENSITY, json.dumps(values, indent=1).encode())
    return Intensity(**json.loads((data / INTENSITY).read_bytes()))


def export(folder: Path, plan: Plan, params: HostArrays) -> None:
    """Write the model folder, in place of an older one."""
    plan, fold = replace(plan, trainer=TRAINER), unflatten(params)
    model = SegmentationModel(plan, (fold,), digest(plan, [fold]), str(folder))
    shutil.rmtree(folder, ignore_errors=True)
    save_segmentation_model(model, folder)
