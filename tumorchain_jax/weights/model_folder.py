"""A trained model as a folder that needs nothing else.

config.json        model, preprocessing, history, initial_roi
model.safetensors  float32 parameters by path, decoder layers stacked
tokenizer.json
evaluation.json, calibration.json, training.json    optional: see `measured.py`
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import AnyPath, atomic_directory, is_remote
from tumorchain_jax.core.remote import local_copy, upload
from tumorchain_jax.models.config_check import check_fields, require
from tumorchain_jax.models.language.tokenizer import Tokenizer
from tumorchain_jax.models.tumorchain.model import TumorChainConfig, abstract_params
from tumorchain_jax.reasoning.prompt import History
from tumorchain_jax.scan.preprocess import PreprocessConfig
from tumorchain_jax.weights.array_check import check_shapes
from tumorchain_jax.weights.measured import (
    MEASURED_FILES,
    Measured,
    copy_measured,
    read_measured,
    write_training,
)
from tumorchain_jax.weights.seeds import Seeds
from tumorchain_jax.weights.tensor_files import check_finite, write_arrays


@dataclass(frozen=True)
class _Config:
    """What `config.json` holds."""

    model: dict[str, Any]
    preprocess: PreprocessConfig
    history: History
    initial_roi: bool


@dataclass(frozen=True)
class ModelFolder:
    """A checkpoint folder, read.

    Attributes:
        params: numpy arrays by path.
        sha256: of `model.safetensors`.
        name: for people.
        measured: its scores, calibration and training seeds, where the folder has them.
    """

    model: TumorChainConfig
    preprocess: PreprocessConfig
    history: History
    params: dict[str, np.ndarray]
    tokenizer: Tokenizer
    sha256: str
    initial_roi: bool = False
    name: str = ""
    measured: Measured = field(default_factory=Measured)


def export(
    folder: AnyPath,
    model: TumorChainConfig,
    preprocess: PreprocessConfig,
    history: History,
    params: Mapping[str, Any],
    tokenizer: Tokenizer,
    initial_roi: bool = False,
    training_seeds: Sequence[Seeds] = (),
) -> None:
    """Write a checkpoint folder; it appears whole, by rename, in place of an older one.

    What was measured of the same weights in the older folder is copied. In an object store, which
    has no rename, `config.json` is removed first and written last.

    Args:
        training_seeds: of the digital patients it was trained on, if it was.
    """
    if is_remote(folder):
        with TemporaryDirectory() as made:
            local = Path(made) / folder.name
            values = model, preprocess, history, params, tokenizer, initial_roi, training_seeds
            export(local, *values)
            upload(local, folder, last=["config.json"])
        return
    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    config = {
        "model": model.to_dict(),
        "preprocess": asdict(preprocess),
        "history": history,
        "initial_roi": initial_roi,
    }
    with atomic_directory(folder, overwrite=True) as part:
        (part / "config.json").write_text(json.dumps(config, indent=1) + "\n")
        write_arrays(part / "model.safetensors", params)
        tokenizer.save(part)
        measured = any((folder / name).is_file() for name in MEASURED_FILES)
        sha256 = weights_sha256(part) if measured or training_seeds else ""
        if measured and weights_sha256(folder) == sha256:
            copy_measured(folder, part)
        if training_seeds:
            write_training(part, sha256, training_seeds)


def load_model(folder: AnyPath) -> ModelFolder:
    """Read a checkpoint folder and check it against its own configuration.

    Raises:
        InputError: a file is missing, damaged, or the weights are of another configuration.
    """
    name, folder = _name(folder), local_copy(folder)
    path = folder / "model.safetensors"
    for needed in (folder / "config.json", path):
        if not needed.is_file():
            raise InputError(
                folder,
                needed.name,
                "none",
                "a checkpoint folder with config.json, model.safetensors and tokenizer.json",
                "name the folder that `tumorchain train` wrote as WORKDIR/export",
            )
    try:
        config = json.loads((folder / "config.json").read_bytes())
        check_fields(_Config, config)
        model = TumorChainConfig.from_dict(config["model"])
        grid = tuple(config["preprocess"]["grid"])
        require("preprocess.grid", grid, grid == model.encoder.image, "the encoder's image")
        preprocess = PreprocessConfig(**{**config["preprocess"], "grid": grid})
        params = load_file(path)
    except (ValueError, RecursionError, SafetensorError, InputError) as error:
        found = repr(str(error)[:200])
        raise InputError(
            folder, "checkpoint", found, "a TumorChain checkpoint", "export it again"
        ) from error
    tokenizer = Tokenizer.load(folder, model.template.special_tokens)
    check_vocabulary(folder, tokenizer, model)
    check_shapes(
        path,
        {name: leaf.shape for name, leaf in params.items()},
        {name: leaf.shape for name, leaf in abstract_params(model).items()},
        "put the weights and the config.json of one and the same model together",
    )
    for tensor, leaf in params.items():
        if leaf.dtype != np.float32:
            expected, hint = "float32", "export it again"
            raise InputError(path, tensor, str(leaf.dtype), expected, hint)
        check_finite(path, tensor, leaf)
    sha256 = weights_sha256(folder)
    return ModelFolder(
        model=model,
        preprocess=preprocess,
        history=config["history"],
        params=params,
        tokenizer=tokenizer,
        sha256=sha256,
        initial_roi=config["initial_roi"],
        name=name,
        measured=read_measured(folder, sha256),
    )


def weights_sha256(folder: Path) -> str:
    """SHA-256 of the weights of a checkpoint folder, which identifies them."""
    with (folder / "model.safetensors").open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _name(folder: AnyPath) -> str:
    """The folder's; of what training wrote, which is always `export`, with that of the run."""
    parts = (folder if is_remote(folder) else folder.resolve()).parts
    run, name = parts[-2:] if len(parts) > 1 else ("", *parts)
    return f"{run}/{name}" if name == "export" else name


def check_vocabulary(folder: Path, tokenizer: Tokenizer, model: TumorChainConfig) -> None:
    """Refuse a tokenizer whose ids the model has no embeddings for.

    Raises:
        InputError: it has more ids than the model's vocabulary.
    """
    if len(tokenizer.token_bytes) > model.decoder.vocab_size:
        raise InputError(
            folder / "tokenizer.json",
            "vocabulary",
            f"{len(tokenizer.token_bytes)} ids",
            f"at most the model's {model.decoder.vocab_size}",
            "put the tokenizer and the configuration of one and the same model together",
        )
