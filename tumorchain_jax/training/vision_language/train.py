"""Qwen2.5-VL as a training task: its data, where its parameters start, its export."""

import hashlib
from collections.abc import Iterator
from functools import partial

from jax.sharding import Mesh
from ml_collections import ConfigDict

from tumorchain_jax.core.files import AnyPath
from tumorchain_jax.data.pipeline import batch_names, batches
from tumorchain_jax.parallel.partition import rows_of
from tumorchain_jax.parallel.processes import global_batch, local_rows
from tumorchain_jax.training.memory import check_memory
from tumorchain_jax.training.program import Program
from tumorchain_jax.training.task import HostArrays, TrainingTask
from tumorchain_jax.training.vision_language.init import open_tokenizer, start
from tumorchain_jax.training.vision_language.loss import Batch
from tumorchain_jax.training.vision_language.source import ChatSource, open_source
from tumorchain_jax.weights.vision_language_folder import save_vision_language


def build_task(config: ConfigDict, workdir: AnyPath, mesh: Mesh, program: Program) -> TrainingTask:
    """Open the rows and the tokenizer.

    Raises:
        InputError: the configuration is at odds with the data.
    """
    check_memory(config, program, mesh)
    tokenizer = open_tokenizer(config)
    source = open_source(config, tokenizer)
    rows = local_rows(rows_of(mesh), config.batch_size)

    def batches_from(step: int) -> Iterator[Batch]:
        for local in batches(source, config.batch_size, config.seed, step, rows):
            yield Batch(**global_batch(local, rows, config.batch_size, rows_of(mesh)))

    def write(params: HostArrays, statistics: HostArrays) -> None:
        folder = workdir / "export"
        save_vision_language(folder, config.model, config.pictures, params, tokenizer)

    return TrainingTask(
        name="vision_language",
        program=program,
        steps=config.steps,
        initial=lambda: start(config, program),
        batches_from=batches_from,
        best=config.checkpoint.best,
        describe_batch=partial(batch_names, source, config.batch_size, config.seed),
        data_fingerprint={
            "seed": config.seed,
            "batch_size": config.batch_size,
            "rows": len(source),
            "tokens": _digest(source),
        },
        export=write,
    )


def _digest(source: ChatSource) -> str:
    """A hash of all tokens of all rows, and of which are learnt."""
    digest = hashlib.sha256()
    for tokens, answers in source.encoded:
        digest.update(tokens.tobytes() + str(answers).encode())
    return digest.hexdigest()
