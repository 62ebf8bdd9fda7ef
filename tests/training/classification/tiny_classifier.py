"""Trainings of a tiny classifier on virtual devices.

    python tests/training/classification/tiny_classifier.py DATA FOLDER DEVICES RUNS

trains on DATA (of `tumorchain bus prepare`) in FOLDER/0, FOLDER/1, ..., once for each of RUNS
(JSON: pairs of a model, `resnet` or `vit`, and the sizes of its mesh), with the same batches.
"""

import json
import sys
from pathlib import Path

import jax
from ml_collections import ConfigDict

from tumorchain_jax.core.config import read_config
from tumorchain_jax.models.image.resnet.model import ResNetConfig
from tumorchain_jax.models.image.vit.model import ViTConfig
from tumorchain_jax.training.registry import train

MODELS = {
    "resnet": ResNetConfig((2,), width=4, channels=1, classes=2),
    "vit": ViTConfig((32, 32), 16, 8, 16, 1, 2, channels=1, classes=2, pool="avg"),
}
LESS = (
    *("--config.data.folds=2", "--config.data.side=32", "--config.steps=3"),
    *("--config.batch_size=8", "--config.learning_rate=0.003", "--config.log_every=1"),
)


def tiny(data: Path, cache: Path, model: str = "resnet") -> ConfigDict:
    """The shipped configuration, made tiny."""
    config = read_config(Path(f"bus_nano_{model}"), LESS)
    config.model, config.data.folder, config.data.cache = MODELS[model], str(data), str(cache)
    return config


if __name__ == "__main__":
    data, folder = map(Path, sys.argv[1:3])
    jax.config.update("jax_num_cpu_devices", int(sys.argv[3]))
    for number, (model, mesh) in enumerate(json.loads(sys.argv[4])):
        config = tiny(data, folder / "cache", model)
        config.mesh.update(mesh)
        train(config, folder / str(number))
