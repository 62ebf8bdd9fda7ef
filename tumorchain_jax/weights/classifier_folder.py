"""A trained image classifier as a folder that needs nothing else.

config.json        model, classes, view and side of the pictures, mean and deviation
model.safetensors  float32 parameters and running statistics by path
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import atomic_directory
from tumorchain_jax.core.json_fields import read_json
from tumorchain_jax.models.families import ImageConfig, image_from_dict
from tumorchain_jax.weights.array_check import check_shapes
from tumorchain_jax.weights.matching import classifier_shapes
from tumorchain_jax.weights.tensor_files import check_finite, write_arrays

PART = "classifier/"
HINT = "use a folder that training of an image classifier, or `bus crossval --ship`, wrote"


@dataclass(frozen=True)
class ClassifierFolder:
    """A classifier, read.

    Attributes:
        view, side: of the pictures that it sees.
        arrays: parameters and running statistics by path, without the first name.
        sha256: of `model.safetensors`.
    """

    model: ImageConfig
    classes: tuple[str, ...]
    view: str
    side: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    arrays: dict[str, np.ndarray]
    sha256: str


def save_classifier(
    folder: Path, config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> None:
    """Write a folder; it appears whole, in place of an older one.

    Args:
        config: what `config.json` holds.
        arrays: by path, `classifier/...`.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with atomic_directory(folder, overwrite=True) as part:
        (part / "config.json").write_text(json.dumps(config, indent=1) + "\n")
        write_arrays(part / "model.safetensors", arrays)


def load_classifier(folder: Path) -> ClassifierFolder:
    """Read a folder.

    Raises:
        InputError: it is none, or is damaged.
    """
    path, weights = folder / "config.json", folder / "model.safetensors"
    if not path.is_file():
        raise InputError(folder, "config.json", "none", "an image classifier's folder", HINT)
    values = read_json(path)
    if not {"model", "classes", "view", "side", "mean", "std"} <= values.keys():
        raise InputError(path, "config", "another model's", "an image classifier's", HINT)
    try:
        model = image_from_dict(values["model"])
        classes = tuple(map(str, values["classes"]))
        numbers = [tuple(map(float, values[name])) for name in ("mean", "std")]
        view, side = str(values["view"]), int(values["side"])
        if model.classes != len(classes):
            raise ValueError(f"{len(classes)} classes for a head of {model.classes}")
        if side < 1 or any(len(each) < model.channels for each in numbers) or 0.0 in numbers[1]:
            raise ValueError("side, mean or std")
    except (KeyError, TypeError, ValueError) as error:
        found = f"{type(error).__name__}: {error}"[:120]
        raise InputError(path, "config", found, "what training exported", HINT) from error
    try:
        arrays = load_file(weights)
    except (OSError, SafetensorError) as error:
        found = f"{type(error).__name__}: {error}"[:120]
        raise InputError(weights, "weights", found, "safetensors", HINT) from error
    shapes = {f"{PART}{name}": shape for name, shape in classifier_shapes(model).items()}
    check_shapes(weights, {name: leaf.shape for name, leaf in arrays.items()}, shapes, HINT)
    for name, leaf in arrays.items():
        check_finite(weights, name, leaf)
    bare = {name.removeprefix(PART): leaf for name, leaf in arrays.items()}
    sha256 = hashlib.sha256(weights.read_bytes()).hexdigest()
    return ClassifierFolder(model, classes, view, side, numbers[0], numbers[1], bare, sha256)
