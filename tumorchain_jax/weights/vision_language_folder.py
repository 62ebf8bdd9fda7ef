"""A trained Qwen2.5-VL as a folder that needs nothing else.

config.json        model (tower, decoder, LoRA), limits and colours of pictures
model.safetensors  float32 parameters by path, layers stacked
tokenizer.json
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import AnyPath, atomic_directory, is_remote
from tumorchain_jax.core.json_fields import read_json
from tumorchain_jax.core.remote import local_copy, upload
from tumorchain_jax.models.language.tokenizer import Tokenizer
from tumorchain_jax.models.qwen_vl.model import QwenVLConfig, abstract_params
from tumorchain_jax.models.qwen_vl.pictures import PictureConfig
from tumorchain_jax.weights.array_check import check_shapes
from tumorchain_jax.weights.tensor_files import check_finite, write_arrays

CONFIG, WEIGHTS = "config.json", "model.safetensors"
HINT = "name the folder that training of the task vision_language wrote as WORKDIR/export"


@dataclass(frozen=True)
class VisionLanguageFolder:
    """A Qwen2.5-VL, read.

    Attributes:
        pictures: how pictures are prepared.
        params: numpy arrays by path.
    """

    model: QwenVLConfig
    pictures: PictureConfig
    params: dict[str, np.ndarray]
    tokenizer: Tokenizer


def save_vision_language(
    folder: AnyPath,
    model: QwenVLConfig,
    pictures: PictureConfig,
    params: Mapping[str, np.ndarray],
    tokenizer: Tokenizer,
) -> None:
    """Write a folder; it appears whole, in place of an older one.

    In an object store, which has no rename, `config.json` is written last.
    """
    if is_remote(folder):
        with TemporaryDirectory() as made:
            local = Path(made) / folder.name
            save_vision_language(local, model, pictures, params, tokenizer)
            upload(local, folder, last=[CONFIG])
        return
    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    values = {"model": model.to_dict(), "pictures": asdict(pictures)}
    with atomic_directory(folder, overwrite=True) as part:
        (part / CONFIG).write_text(json.dumps(values, indent=1) + "\n")
        write_arrays(part / WEIGHTS, params)
        tokenizer.save(part)


def is_vision_language(folder: Path) -> bool:
    """Whether a folder is one that `save_vision_language` wrote."""
    try:
        values = json.loads((folder / CONFIG).read_bytes())
        return {"model", "pictures"} <= values.keys() and "tower" in values["model"]
    except (OSError, ValueError, RecursionError, AttributeError, TypeError):
        return False


def read_vision_language_config(folder: Path) -> tuple[QwenVLConfig, PictureConfig]:
    """Read `config.json`.

    Raises:
        InputError: it is not there, or another model's.
    """
    path = folder / CONFIG
    if not path.is_file():
        raise InputError(folder, CONFIG, "none", "a Qwen2.5-VL's checkpoint", HINT)
    values = read_json(path)
    try:
        pictures: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in values["pictures"].items()
        }
        return QwenVLConfig.from_dict(values["model"]), PictureConfig(**pictures)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        found = f"{type(error).__name__}: {error}"[:120]
        raise InputError(path, "config", found, "a Qwen2.5-VL's checkpoint", HINT) from error


def load_vision_language(folder: AnyPath) -> VisionLanguageFolder:
    """Read a folder and check it against its own configuration.

    Raises:
        InputError: a file is missing, damaged, or the weights are of another configuration.
    """
    folder = local_copy(folder)
    model, pictures = read_vision_language_config(folder)
    path = folder / WEIGHTS
    try:
        params = load_file(path)
    except (OSError, SafetensorError) as error:
        found = f"{type(error).__name__}: {error}"[:120]
        raise InputError(path, "weights", found, "safetensors", HINT) from error
    shapes = {name: leaf.shape for name, leaf in abstract_params(model).items()}
    hint = "put the weights and the config.json of one and the same model together"
    check_shapes(path, {name: leaf.shape for name, leaf in params.items()}, shapes, hint)
    for name, leaf in params.items():
        check_finite(path, name, leaf)
    return VisionLanguageFolder(model, pictures, params, Tokenizer.load(folder))
