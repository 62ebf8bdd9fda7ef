"""Training that starts from an exported checkpoint or imported parts, not from random weights."""

import re
from collections.abc import Set
from pathlib import Path
from typing import Any

import jax
from ml_collections import ConfigDict

from tumorchain_jax.convert.imported import MANIFEST, SOURCE, Imported
from tumorchain_jax.data.tokenizer import Tokenizer
from tumorchain_jax.errors import InputError
from tumorchain_jax.path_rules import flatten
from tumorchain_jax.training.checkpoint import load_exported

TOKENIZER = "tokenizer.json"
ADAPTER = re.compile(r".*/lora_[ab]")


def initial_params(
    config: ConfigDict, tokenizer: Tokenizer, fresh: dict[str, Any]
) -> dict[str, Any]:
    """The parameters of what `config.init` names, by path.

    Args:
        config: also reads `window`. `init` is the folder of an exported checkpoint, or one or more
            that `tumorchain convert import` wrote, separated by commas: each fills its own part.
        tokenizer: the data set's.
        fresh: random parameters by path; what no checkpoint has stays: LoRA's, an imported model's
            projector.

    Raises:
        InputError: it is no checkpoint; or one of another model, tokenizer or CT window.
    """
    folders = [Path(folder) for folder in config.init.split(",")]
    if not any((folder / MANIFEST).is_file() for folder in folders):
        return _exported_params(config, tokenizer, fresh)
    filled: dict[str, Any] = {}
    for folder in folders:
        filled |= _imported_params(folder, tokenizer, fresh, filled.keys())
    return fresh | filled


def _imported_params(
    folder: Path, tokenizer: Tokenizer, fresh: dict[str, Any], taken: Set[str]
) -> dict[str, Any]:
    """The parameters of an imported folder, in the dtype of the fresh ones."""
    imported = Imported(folder)
    if (folder / SOURCE / TOKENIZER).is_file():
        _check_tokenizer(folder / SOURCE, Tokenizer.load(folder / SOURCE), tokenizer)
    for path, spec in imported.arrays.specs.items():
        if path in taken:
            mend = "name one of the two"
            raise InputError(folder, path, "what another folder fills too", "one of each", mend)
        expected = fresh[path].shape if path in fresh else "no such array"
        _refuse(folder, path, spec.shape, expected, "set config.model to the checkpoint's")
    flat = flatten(imported.restore())
    return {path: leaf.astype(fresh[path].dtype) for path, leaf in flat.items()}


def _exported_params(
    config: ConfigDict, tokenizer: Tokenizer, fresh: dict[str, Any]
) -> dict[str, Any]:
    exported = load_exported(Path(config.init))
    _check_tokenizer(config.init, exported.tokenizer, tokenizer)
    window = {"level": exported.preprocess.level, "width": exported.preprocess.width}
    mend = "set config.window to the checkpoint's"
    _refuse(config.init, "window", window, config.window.to_dict(), mend)
    shapes = {path: leaf.shape for path, leaf in fresh.items()}
    for path in sorted(shapes.keys() | exported.params.keys()):
        if path in exported.params or not ADAPTER.fullmatch(path):
            found = exported.params[path].shape if path in exported.params else "no such array"
            expected = shapes.get(path, "no such array")
            _refuse(config.init, path, found, expected, "set config.model to the checkpoint's")
    return fresh | jax.device_put(exported.params)


def _check_tokenizer(folder: object, found: Tokenizer, expected: Tokenizer) -> None:
    if found.token_bytes != expected.token_bytes:
        mend = "copy the checkpoint's tokenizer.json into the data set's folder"
        raise InputError(folder, TOKENIZER, "other tokens", "those of the data set", mend)


def _refuse(folder: object, field: str, found: object, expected: object, mend: str) -> None:
    if found != expected:
        raise InputError(folder, field, str(found), str(expected), mend)
