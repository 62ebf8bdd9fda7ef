"""A translation as a training task, on pictures of two looks."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Bool
from ml_collections import ConfigDict

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import AnyPath, is_remote
from tumorchain_jax.parallel.partition import rows_of
from tumorchain_jax.parallel.processes import barrier, global_batch, is_primary, local_rows
from tumorchain_jax.training.classification.source import (
    Pictures,
    batches,
    fold_of,
    load_pictures,
)
from tumorchain_jax.training.program import Program, sharding_of
from tumorchain_jax.training.state import TrainState
from tumorchain_jax.training.task import HostArrays, TrainingTask
from tumorchain_jax.training.translation.program import init_params, init_pool
from tumorchain_jax.weights.translation_folder import save_translation

LEAST = 8
"""Pictures of a look."""


def of_look(pictures: Pictures, name: str) -> Bool[np.ndarray, " N"]:
    """Which pictures have a look: by their device's name, or their data set's."""
    return np.array(
        [row.device.startswith(name) or row.source == name for row in pictures.rows], bool
    )


def looks(pictures: Pictures, config: ConfigDict) -> dict[str, Bool[np.ndarray, " N"]]:
    """Which pictures are trained on, of `a` and of `b`.

    Raises:
        InputError: a look has too few, or both are one.
    """
    folds = fold_of(pictures, config)
    found = {}
    for name in ("a", "b"):
        wanted = config.data[name]
        found[name] = of_look(pictures, wanted) & (folds >= 0) & (folds != config.data.fold)
        if not wanted or found[name].sum() < LEAST:
            known = sorted({row.device for row in pictures.rows if row.device})
            expected = f"{LEAST} pictures or more of a device or set, such as {', '.join(known)}"
            shown = f"{wanted!r}, of which there are {int(found[name].sum())}"
            raise InputError("config", f"data.{name}", shown, expected[:300], "name another")
    if (found["a"] & found["b"]).any():
        raise InputError("config", "data.b", config.data.b, "another look than a's", "change it")
    return found


def open_pictures(config: ConfigDict, workdir: AnyPath) -> Pictures:
    """The pictures that a configuration names.

    Raises:
        InputError: they cannot be read, or the working folder is an object store.
    """
    if is_remote(workdir):
        hint = "name a local folder, and copy its export to the bucket"
        raise InputError("--workdir", "translation", str(workdir), "a local folder", hint)
    cache = Path(config.data.cache or workdir / "cache")
    if is_primary():
        load_pictures(config, cache)
    barrier("pictures")
    return load_pictures(config, cache)


def build_task(config: ConfigDict, workdir: AnyPath, mesh: Mesh, program: Program) -> TrainingTask:
    """Render the pictures, as far as they are missing, and open them.

    Raises:
        InputError: the data cannot be used.
    """
    pictures = open_pictures(config, workdir)
    chosen = {name: np.flatnonzero(which) for name, which in looks(pictures, config).items()}
    rows = rows_of(mesh)
    # The two looks have orders of their own.
    seeds = {"a": config.seed, "b": config.seed + 2**32}

    def drawn(name: str, step: int, wanted: Sequence[int]) -> Iterator[np.ndarray]:
        own = chosen[name]
        for numbers in batches(len(own), config.batch_size, wanted, seeds[name], step):
            yield own[numbers]

    def batches_from(step: int) -> Iterator[dict[str, jax.Array]]:
        own = local_rows(rows, config.batch_size)
        for a, b in zip(drawn("a", step, own), drawn("b", step, own), strict=True):
            flips = np.random.default_rng([config.seed, step, 2]).random((2, len(own))) < 0.5
            batch = {
                name: _mirrored(pictures.images[numbers], flip)
                for name, numbers, flip in zip(("a", "b"), (a, b), flips, strict=True)
            }
            yield global_batch(batch, own, config.batch_size, rows)
            step += 1

    def describe_batch(step: int) -> Sequence[str]:
        every = range(config.batch_size)
        return [
            pictures.rows[number].id
            for name in ("a", "b")
            for number in next(drawn(name, step - 1, every))
        ]

    def initial() -> TrainState:
        params = jax.jit(
            lambda key: init_params(config, key),
            out_shardings=jax.tree.map(sharding_of, program.params),
        )(jax.random.key(config.seed))
        places = jax.tree.map(sharding_of, program.state.statistics)
        return program.start(dict(params), jax.device_put(init_pool(config), places))

    def write(params: HostArrays, statistics: HostArrays) -> None:
        facts = {"method": config.method, "side": config.data.side, "view": config.data.view,
                 "a": config.data.a, "b": config.data.b}  # fmt: skip
        save_translation(Path(workdir) / "export", config.model, facts, params)

    return TrainingTask(
        name="translation",
        program=program,
        steps=config.steps,
        initial=initial,
        batches_from=batches_from,
        volumes=2 * config.batch_size,
        best=config.checkpoint.best,
        describe_batch=describe_batch,
        data_fingerprint={
            "seed": config.seed,
            "batch_size": config.batch_size,
            "pictures": sum(map(len, chosen.values())),
            "settings": json.dumps(
                {name: value for name, value in config.data.items() if name != "cache"},
                sort_keys=True,
            ),
        },
        export=write,
    )


def _mirrored(images: np.ndarray, flip: Bool[np.ndarray, " B"]) -> np.ndarray:
    return np.where(flip[:, None, None], images[:, :, ::-1], images).astype(np.float32)
