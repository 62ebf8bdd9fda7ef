"""TumorChain as a training task: its data, where its parameters start, its export.

Order on start: data set (made if need be), then the latest checkpoint; without one, parameters.
"""

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial

import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from tumorchain_jax.core.files import AnyPath
from tumorchain_jax.data.pipeline import batch_names, batches
from tumorchain_jax.models.tumorchain.model import TumorChainConfig
from tumorchain_jax.parallel.partition import rows_of
from tumorchain_jax.parallel.processes import global_batch, is_primary, local_rows
from tumorchain_jax.training.initial import place
from tumorchain_jax.training.memory import check_memory
from tumorchain_jax.training.pretraining.train import pretrain_encoder, stage_lines
from tumorchain_jax.training.program import Program
from tumorchain_jax.training.state import TrainState
from tumorchain_jax.training.task import HostArrays, TrainingTask
from tumorchain_jax.training.tumorchain.dataset import (
    data_folder,
    open_dataset,
    preprocess_of,
    training_seeds,
)
from tumorchain_jax.training.tumorchain.initial import loaded_params, random_params
from tumorchain_jax.training.tumorchain.loss import Batch
from tumorchain_jax.weights.model_folder import export


def build_task(config: ConfigDict, workdir: AnyPath, mesh: Mesh, program: Program) -> TrainingTask:
    """Open the data set, made of phantoms if the configuration asks for them.

    Raises:
        InputError: the configuration is at odds with the data.
    """
    check_memory(config, program, mesh)

    # ---------------------------------------------------------------- data
    model: TumorChainConfig = config.model
    data = data_folder(config, workdir)
    source, tokenizer = open_dataset(config, data)
    if is_primary():
        print(f"data: {source.packing()}")
    rows = local_rows(rows_of(mesh), config.batch_size)

    def batches_from(step: int) -> Iterator[Batch]:
        for local in batches(source, config.batch_size, config.seed, step, rows):
            yield Batch(**global_batch(local, rows, config.batch_size, rows_of(mesh)))

    # ---------------------------------------------------------- parameters
    pretrain = not config.init and config.pretrain.patch_stage.steps

    def initial() -> TrainState:
        params: dict[str, jax.Array] = {}
        if config.init:
            params = loaded_params(config, tokenizer, program.params)
        elif pretrain:
            learned = pretrain_encoder(config, data, workdir)
            params = {path: place(leaf, program.params[path]) for path, leaf in learned.items()}
        missing = {path: leaf for path, leaf in program.params.items() if path not in params}
        return program.start(params | random_params(model, config.seed, missing))

    # -------------------------------------------------------------- export
    def write(params: HostArrays, statistics: HostArrays) -> None:
        export(
            folder=workdir / "export",
            model=model,
            preprocess=preprocess_of(config),
            history=config.history,
            params=params,
            tokenizer=tokenizer,
            initial_roi=config.initial_roi,
            training_seeds=training_seeds(config, data),
        )

    return TrainingTask(
        name="tumorchain",
        program=program,
        steps=config.steps,
        initial=initial,
        stages=stage_lines(config) if pretrain else (),
        batches_from=batches_from,
        volumes=config.batch_size,
        best=config.checkpoint.best,
        describe_batch=partial(batch_names, source, config.batch_size, config.seed),
        data_fingerprint={
            "seed": config.seed,
            "batch_size": config.batch_size,
            "rows": len(source),
            **_roi_fields(config.model),
            **_unfreeze_fields(config),
        },
        export=write,
    )


def _unfreeze_fields(config: ConfigDict) -> dict[str, float]:
    """The fields of `unfreeze_encoder` and the steps they count in; none if it stays unset."""
    late = config.unfreeze_encoder
    if not late.lr_factor:
        return {}
    return {f"unfreeze_encoder.{name}": late[name] for name in late} | {"steps": config.steps}


def _roi_fields(model: TumorChainConfig) -> dict[str, float | str]:
    """Fields that decide which cells are ROI tokens, yet no array's shape; none by default."""
    fields: dict[str, float | str] = {}
    if model.crop or model.roi_rank != "coverage":
        fields["model.roi_rank"] = model.roi_rank
    if model.crop:
        values = asdict(model.crop) | {"regions": ", ".join(model.crop.regions)}
        fields |= {f"model.crop.{name}": value for name, value in values.items()}
    return fields
