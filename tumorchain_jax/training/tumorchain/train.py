"""Training from a configuration to an exported checkpoint, on every device of every process.

Order on start: data set (made if need be), mesh, step, latest checkpoint; without one, parameters.
A run that was stopped and starts again goes on as if it had not: the batch of a step depends on
the seed and the step alone, not on how many processes read it.
"""

from collections.abc import Iterator
from functools import partial

import jax
from ml_collections import ConfigDict

from tumorchain_jax.core.files import AnyPath
from tumorchain_jax.data.pipeline import batch_names, batches
from tumorchain_jax.models.tumorchain.model import TumorChainConfig
from tumorchain_jax.parallel.mesh import make_mesh
from tumorchain_jax.parallel.partition import on_mesh, rows_of
from tumorchain_jax.parallel.processes import (
    barrier,
    gather_to_host,
    global_batch,
    is_primary,
    local_rows,
)
from tumorchain_jax.training.fit import Job, fit
from tumorchain_jax.training.pretraining.train import pretrain_encoder
from tumorchain_jax.training.settings import check_settings
from tumorchain_jax.training.state import TrainState
from tumorchain_jax.training.throughput import Work
from tumorchain_jax.training.tumorchain.dataset import data_folder, open_dataset, preprocess_of
from tumorchain_jax.training.tumorchain.initial import loaded_params, place, random_params
from tumorchain_jax.training.tumorchain.loss import Batch
from tumorchain_jax.training.tumorchain.memory import check_memory
from tumorchain_jax.training.tumorchain.program import build_program, step_flops
from tumorchain_jax.weights.model_folder import export


def train(config: ConfigDict, workdir: AnyPath) -> None:
    """Train and export to `workdir/export`.

    Raises:
        InputError: the configuration is at odds with itself, the devices, the data or the
            checkpoint.
        FloatingPointError: a number is no longer finite.
        Stopped: it was asked to end, and has saved where it was.
    """
    check_settings(config)
    mesh = make_mesh(dict(config.mesh))
    program = build_program(config, mesh)
    check_memory(config, program, mesh)

    # ---------------------------------------------------------------- data
    model_config: TumorChainConfig = config.model
    data = data_folder(config, workdir)
    source, tokenizer = open_dataset(config, data)
    if is_primary():
        print(f"data: {source.packing()}")
    rows = local_rows(rows_of(mesh), config.batch_size)

    def batches_from(step: int) -> Iterator[Batch]:
        for local in batches(source, config.batch_size, config.seed, step, rows):
            yield Batch(**global_batch(local, rows, config.batch_size, rows_of(mesh)))

    # ----------------------------------------------------------- parameters
    def initial() -> TrainState:
        params: dict[str, jax.Array] = {}
        if config.init:
            params = loaded_params(config, tokenizer, program.params)
        elif config.pretrain.patch_stage.steps:
            learned = pretrain_encoder(config, data, workdir)
            params = {path: place(leaf, program.params[path]) for path, leaf in learned.items()}
        missing = {path: leaf for path, leaf in program.params.items() if path not in params}
        return program.start(params | random_params(model_config, config.seed, missing))

    # ------------------------------------------------------------------ loop
    job = Job(
        program.state,
        initial,
        program.step,
        batches_from,
        program.schedule,
        config.steps,
        Work(config.batch_size, step_flops(config, program)),
        config.checkpoint.best,
        partial(batch_names, source, config.batch_size, config.seed),
        {"seed": config.seed, "batch_size": config.batch_size, "rows": len(source)},
    )
    with on_mesh(mesh):
        state = fit(workdir, job, config)

    # ---------------------------------------------------------------- export
    arrays = {path: gather_to_host(leaf) for path, leaf in (state.frozen | state.trained).items()}
    if is_primary():
        export(
            workdir / "export",
            model_config,
            preprocess_of(config),
            config.history,
            arrays,
            tokenizer,
            config.initial_roi,
        )
    barrier("exported")
