"""An image classifier as a training task, on pictures of a manifest."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import AnyPath, is_remote
from tumorchain_jax.models.families import image_to_dict
from tumorchain_jax.parallel.partition import rows_of
from tumorchain_jax.parallel.processes import barrier, global_batch, is_primary, local_rows
from tumorchain_jax.training.classification.init import start
from tumorchain_jax.training.classification.source import (
    CLASSES,
    Pictures,
    batches,
    load_masks,
    load_pictures,
    style_references,
    trained_on,
)
from tumorchain_jax.training.program import Program
from tumorchain_jax.training.task import HostArrays, TrainingTask
from tumorchain_jax.ultrasound.style import find_style, restyled
from tumorchain_jax.weights.classifier_folder import save_classifier


def build_task(config: ConfigDict, workdir: AnyPath, mesh: Mesh, program: Program) -> TrainingTask:
    """Render the pictures, as far as they are missing, and open them.

    Raises:
        InputError: the data cannot be used, or the working folder is an object store.
    """
    if is_remote(workdir):
        hint = "name a local folder, and copy its export to the bucket"
        raise InputError("--workdir", "classifier", str(workdir), "a local folder", hint)
    if len(CLASSES) != config.model.classes:
        found, expected = str(config.model.classes), f"{len(CLASSES)}: {', '.join(CLASSES)}"
        raise InputError("config", "model.classes", found, expected, "set it")
    cache = Path(config.data.cache or workdir / "cache")
    if is_primary():
        _load(config, cache)
    barrier("pictures")
    pictures, masks = _load(config, cache)
    chosen = np.flatnonzero(trained_on(pictures, config))
    images, labels = pictures.images[chosen], pictures.labels[chosen]
    masks = None if masks is None else masks[chosen]
    style = find_style(config.data.style) if config.data.style else None
    references = pictures.images[style_references(pictures, config)] if style else images
    weights = class_weights(labels) if config.class_weights else np.ones(len(CLASSES))
    rows = rows_of(mesh)

    def batches_from(step: int) -> Iterator[dict[str, jax.Array]]:
        own = local_rows(rows, config.batch_size)
        for drawn in batches(len(chosen), config.batch_size, own, config.seed, step):
            seen = images[drawn]
            if style:
                keys = [(config.seed, step, row) for row in own]
                seen = restyled(style, seen, references, keys)
            step += 1
            batch = {
                "image": seen.astype(np.float32),
                "label": labels[drawn].astype(np.int32),
                "weight": weights[labels[drawn]].astype(np.float32),
            }
            if masks is not None:
                batch["mask"] = masks[drawn].astype(np.float32)
            yield global_batch(batch, own, config.batch_size, rows)

    def describe_batch(step: int) -> Sequence[str]:
        every = range(config.batch_size)
        drawn = next(batches(len(chosen), config.batch_size, every, config.seed, step - 1))
        return [pictures.rows[chosen[number]].id for number in drawn]

    def write(params: HostArrays, statistics: HostArrays) -> None:
        save_classifier(
            Path(workdir) / "export",
            {
                "model": image_to_dict(config.model),
                "classes": list(CLASSES),
                "view": config.data.view,
                "side": config.data.side,
                "mean": list(config.mean),
                "std": list(config.std),
            },
            params | statistics,
        )

    return TrainingTask(
        name="classification",
        program=program,
        steps=config.steps,
        initial=lambda: start(config, program),
        batches_from=batches_from,
        volumes=config.batch_size,
        best=config.checkpoint.best,
        describe_batch=describe_batch,
        data_fingerprint={
            "seed": config.seed,
            "batch_size": config.batch_size,
            "pictures": len(chosen),
            "settings": json.dumps(
                {name: value for name, value in config.data.items() if name != "cache"},
                sort_keys=True,
            ),
        },
        export=write,
    )


def _load(config: ConfigDict, cache: Path) -> tuple[Pictures, np.ndarray | None]:
    """Pictures, and masks where the loss has them."""
    pictures = load_pictures(config, cache)
    return pictures, load_masks(config, pictures, cache) if config.mask_weight else None


def class_weights(labels: np.ndarray) -> np.ndarray:
    """Weights of the classes, inverse to their shares; their mean over the pictures is 1."""
    counts = np.bincount(labels, minlength=len(CLASSES))
    return len(labels) / (len(CLASSES) * counts)
