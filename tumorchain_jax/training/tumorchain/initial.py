"""Initial parameters: a checkpoint, imported parts, or random weights.

Every array is made or read on its own devices; no random array is made that is then replaced.
"""

import re
from collections.abc import Set
from functools import partial
from pathlib import Path

import jax
from ml_collections import ConfigDict

from tumorchain_jax.convert.imported import MANIFEST, SOURCE, Imported
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.path_rules import flatten
from tumorchain_jax.core.remote import as_path, local_copy
from tumorchain_jax.models.language.tokenizer import Tokenizer
from tumorchain_jax.models.tumorchain.model import TumorChainConfig, init_params
from tumorchain_jax.training.initial import Places, place, random_arrays
from tumorchain_jax.weights.array_check import check_shapes
from tumorchain_jax.weights.model_folder import ModelFolder, load_model

TOKENIZER = "tokenizer.json"
ANOTHER_MODEL = "set config.model to the checkpoint's"
ADAPTER = re.compile(r".*/lora_[ab]")


def loaded_params(config: ConfigDict, tokenizer: Tokenizer, places: Places) -> dict[str, jax.Array]:
    """The parameters that `config.init` names, by path, where `places` has them.

    Args:
        config: also reads `window`. `init` is the folder of an exported checkpoint, or one or more
            that `tumorchain convert import` wrote, separated by commas: each fills its own part.
        tokenizer: the data set's.

    Raises:
        InputError: it is no checkpoint; or one of another model, tokenizer or CT window.
    """
    opened = open_init(config, tokenizer, places)
    if isinstance(opened, ModelFolder):
        return {path: place(leaf, places[path]) for path, leaf in opened.params.items()}
    filled: dict[str, jax.Array] = {}
    for imported in opened:
        filled |= flatten(imported.restore(places))
    return filled


def open_init(
    config: ConfigDict, tokenizer: Tokenizer | None, places: Places
) -> ModelFolder | list[Imported]:
    """Open what `config.init` names, and compare it with the model; no array is placed.

    Args:
        tokenizer: the data set's; None: not made yet, so that it is not compared.
        places: only their shapes are read.

    Raises:
        InputError: as `loaded_params`.
    """
    folders = [local_copy(as_path(folder)) for folder in config.init.split(",")]
    if not any((folder / MANIFEST).is_file() for folder in folders):
        return _open_exported(config, folders[0], tokenizer, places)
    opened: list[Imported] = []
    filled: set[str] = set()
    for folder in folders:
        opened.append(_open_imported(folder, tokenizer, places, filled))
        filled |= opened[-1].arrays.specs.keys()
    return opened


def random_params(model: TumorChainConfig, seed: int, places: Places) -> dict[str, jax.Array]:
    """Random parameters for `places`; the same on every mesh."""
    return random_arrays(partial(init_params, model), seed, places)


def _open_imported(
    folder: Path, tokenizer: Tokenizer | None, places: Places, taken: Set[str]
) -> Imported:
    imported = Imported(folder)
    if tokenizer and (folder / SOURCE / TOKENIZER).is_file():
        found = Tokenizer.load(folder / SOURCE, tokenizer.special_tokens)
        _check_tokenizer(folder / SOURCE, found, tokenizer)
    shapes = {path: spec.shape for path, spec in imported.arrays.specs.items()}
    for path in shapes.keys() & taken:
        hint = "name one of the two"
        raise InputError(folder, path, "what another folder fills too", "one of each", hint)
    expected = {path: places[path].shape for path in shapes.keys() & places.keys()}
    check_shapes(folder, shapes, expected, ANOTHER_MODEL)
    return imported


def _open_exported(
    config: ConfigDict, folder: Path, tokenizer: Tokenizer | None, places: Places
) -> ModelFolder:
    exported = load_model(folder)
    if tokenizer:
        _check_tokenizer(config.init, exported.tokenizer, tokenizer)
    window = {"level": exported.preprocess.level, "width": exported.preprocess.width}
    if window != (wanted := config.window.to_dict()):
        hint = "set config.window to the checkpoint's"
        raise InputError(config.init, "window", str(window), str(wanted), hint)
    found = {path: leaf.shape for path, leaf in exported.params.items()}
    expected = {
        path: leaf.shape
        for path, leaf in places.items()
        if path in found or not ADAPTER.fullmatch(path)  # new adapters are drawn at random
    }
    check_shapes(config.init, found, expected, ANOTHER_MODEL)
    return exported


def _check_tokenizer(folder: object, found: Tokenizer, expected: Tokenizer) -> None:
    if found.token_bytes != expected.token_bytes:
        hint = "copy the checkpoint's tokenizer.json into the data set's folder"
        raise InputError(folder, TOKENIZER, "other tokens", "those of the data set", hint)
