"""Checkpoints: Orbax while training, a folder of safetensors to keep.

An exported checkpoint is a folder that needs nothing else:

    config.json        model, preprocessing, history, initial_roi
    model.safetensors  float32 parameters by path, decoder layers stacked
    tokenizer.json
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import orbax.checkpoint as ocp
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from tumorchain_jax.data.chat import History
from tumorchain_jax.data.tokenizer import Tokenizer
from tumorchain_jax.errors import InputError
from tumorchain_jax.models.tumorchain import TumorChainConfig, abstract_params
from tumorchain_jax.scan.preprocess import PreprocessConfig
from tumorchain_jax.training.step import TrainState


class Checkpoints:
    """The numbered checkpoints of a run; an unfinished one is never listed."""

    def __init__(self, workdir: Path, every: int, keep: int):
        options = ocp.CheckpointManagerOptions(save_interval_steps=every, max_to_keep=keep)
        self._manager = ocp.CheckpointManager(
            (workdir / "checkpoints").absolute(),
            options=options,
            item_handlers=ocp.StandardCheckpointHandler(),
        )

    def restore(self, abstract: TrainState) -> TrainState | None:
        """The latest checkpoint, shaped and placed like `abstract`; None if there is none.

        Raises:
            InputError: the checkpoint is of another configuration, or damaged.
        """
        step = self._manager.latest_step()
        if step is None:
            return None
        folder = self._manager.directory / str(step)
        with _refusing_damage(folder):
            found = _shapes(self._manager.item_metadata(step).tree)
        # Orbax would refuse another shape too, but with pages of its threads' errors.
        _check_shapes(
            self._manager.directory,
            found,
            _shapes(abstract),
            "resume with the configuration it was trained with, or name another workdir",
        )
        with _refusing_damage(folder):
            return self._manager.restore(step, args=ocp.args.StandardRestore(abstract))

    def save(self, step: int, state: TrainState, force: bool = False) -> None:
        """Save if the step is due (or `force`), in the background."""
        if step not in self._manager.all_steps():
            self._manager.save(step, args=ocp.args.StandardSave(state), force=force)

    def close(self) -> None:
        """Wait for what is being written."""
        self._manager.wait_until_finished()
        self._manager.close()


@dataclass(frozen=True)
class Exported:
    """A checkpoint folder, read.

    Attributes:
        params: numpy arrays by path.
        sha256: of `model.safetensors`.
    """

    model: TumorChainConfig
    preprocess: PreprocessConfig
    history: History
    params: dict[str, np.ndarray]
    tokenizer: Tokenizer
    sha256: str
    initial_roi: bool = False


def export(
    folder: Path,
    model: TumorChainConfig,
    preprocess: PreprocessConfig,
    history: History,
    params: Mapping[str, Any],
    tokenizer: Tokenizer,
    initial_roi: bool = False,
) -> None:
    """Write a checkpoint folder; it appears whole, by rename, in place of an older one."""
    part = folder.with_name(f".{folder.name}.{os.getpid()}")
    old = folder.with_name(f"{part.name}.old")
    part.mkdir(parents=True)
    config = {
        "model": model.to_dict(),
        "preprocess": asdict(preprocess),
        "history": history,
        "initial_roi": initial_roi,
    }
    try:
        (part / "config.json").write_text(json.dumps(config, indent=1) + "\n")
        arrays = {path: np.ascontiguousarray(leaf, np.float32) for path, leaf in params.items()}
        weights = part / "model.safetensors"
        save_file(arrays, weights, metadata={"format": "np"})
        weights.chmod((part / "config.json").stat().st_mode)  # else for its owner's eyes alone
        tokenizer.save(part)
    except BaseException:
        shutil.rmtree(part)
        raise
    if folder.exists():
        folder.rename(old)
    part.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def load_exported(folder: Path) -> Exported:
    """Read a checkpoint folder and hold it against its own configuration.

    Raises:
        InputError: a file is missing, damaged, or the weights are of another configuration.
    """
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
        config = json.loads((folder / "config.json").read_text())
        model = TumorChainConfig.from_dict(config["model"])
        preprocess = PreprocessConfig(
            **{**config["preprocess"], "grid": tuple(config["preprocess"]["grid"])}
        )
        history: History = config["history"]
        initial_roi: bool = config["initial_roi"]
        if history not in get_args(History):
            raise ValueError(f"history {history!r}")
        params = load_file(path)
    except (ValueError, KeyError, TypeError, AttributeError, SafetensorError, InputError) as error:
        raise InputError(
            folder, "checkpoint", repr(str(error)), "a TumorChain checkpoint", "export it again"
        ) from error
    tokenizer = Tokenizer.load(folder)
    check_vocabulary(folder, tokenizer, model)
    _check_shapes(
        path,
        _shapes(params),
        _shapes(abstract_params(model)),
        "put the weights and the config.json of one and the same model together",
    )
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Exported(model, preprocess, history, params, tokenizer, digest, initial_roi)


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


@contextmanager
def _refusing_damage(folder: object) -> Iterator[None]:
    """What Orbax and TensorStore raise has no type of its own, and pages of text."""
    try:
        yield
    except Exception as error:
        raise InputError(
            folder,
            "checkpoint",
            f"a damaged one ({type(error).__name__})",
            "a whole one",
            "remove it: training goes on from the one before, or from the start",
        ) from error


def _shapes(tree: Any) -> dict[str, tuple[int, ...]]:
    """Shapes of a tree's arrays by path."""
    return {"/".join(path): tuple(leaf.shape) for path, leaf in ocp.tree.to_flat_dict(tree).items()}


def _check_shapes(
    source: object,
    found: dict[str, tuple[int, ...]],
    expected: dict[str, tuple[int, ...]],
    mend: str,
) -> None:
    if found == expected:
        return
    path = next(p for p in sorted(expected | found) if expected.get(p) != found.get(p))
    missing = "no such array"
    raise InputError(
        source, path, str(found.get(path, missing)), str(expected.get(path, missing)), mend
    )
