"""TumorChain as a training task: its data, where its parameters start, its export.

Order on start: data set (made if need be), then the latest checkpoint; without one, parameters.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.dataset import preprocess_values, read_manifest
from tumorchain_jax.data.leaks import check_split
from tumorchain_jax.data.pipeline import ExampleSource, Layout, batch_names, batches
from tumorchain_jax.models.language.tokenizer import Tokenizer
from tumorchain_jax.models.tumorchain.model import TumorChainConfig
from tumorchain_jax.parallel.partition import rows_of
from tumorchain_jax.parallel.processes import barrier, global_batch, is_primary, local_rows
from tumorchain_jax.phantoms.dataset import write_phantoms
from tumorchain_jax.scan.preprocess import PreprocessConfig
from tumorchain_jax.training.pretraining.train import pretrain_encoder, stage_lines
from tumorchain_jax.training.program import Program
from tumorchain_jax.training.state import TrainState
from tumorchain_jax.training.task import HostArrays, TrainingTask
from tumorchain_jax.training.tumorchain.initial import loaded_params, place, random_params
from tumorchain_jax.training.tumorchain.loss import Batch
from tumorchain_jax.weights.model_folder import check_vocabulary, export


def build_task(config: ConfigDict, workdir: Path, mesh: Mesh, program: Program) -> TrainingTask:
    """Open the data set, made of phantoms if the configuration asks for them.

    Raises:
        InputError: the configuration is at odds with the data.
    """
    # ---------------------------------------------------------------- data
    model: TumorChainConfig = config.model
    preprocess = PreprocessConfig(model.encoder.image, config.window.level, config.window.width)
    data = Path(config.data.folder or workdir / "data")
    if config.data.phantoms and is_primary():
        vocab_size = model.decoder.vocab_size
        write_phantoms(data, config.data.first_seed, config.data.phantoms, preprocess, vocab_size)
    barrier("data")
    _check_preprocess(data, preprocess)
    check_split(data)
    tokenizer = Tokenizer.load(data, model.template.special_tokens)
    check_vocabulary(data, tokenizer, model)
    source = ExampleSource(data, layout_of(config))
    _check_size(data, len(source), config.batch_size)
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
            preprocess=preprocess,
            history=config.history,
            params=params,
            tokenizer=tokenizer,
            initial_roi=config.initial_roi,
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
        },
        export=write,
    )


def layout_of(config: ConfigDict) -> Layout:
    """The shapes of an example, from a training configuration."""
    model: TumorChainConfig = config.model
    return Layout(
        roi_grid=model.roi_grid,
        roi_offset=model.roi_offset,
        roi_slots=model.roi_slots,
        global_tokens=model.global_tokens,
        length=config.data.length,
        history=config.history,
        initial_roi=config.initial_roi,
        cot=config.cot,
        iir=config.iir,
        template=model.template,
    )


def _check_size(data: Path, rows: int, batch_size: int) -> None:
    if rows < batch_size:
        expected = f"at least the {batch_size} of a batch"
        raise InputError(data, "rows", str(rows), expected, "lower config.batch_size, or add data")


def _check_preprocess(data: Path, preprocess: PreprocessConfig) -> None:
    found, expected = read_manifest(data).get("preprocess"), preprocess_values(preprocess)
    if found != expected:
        raise InputError(
            data / "dataset.json", "preprocess", str(found), str(expected), "name another folder"
        )
