"""Training that starts from an exported checkpoint instead of from random weights."""

import re
from pathlib import Path
from typing import Any

import jax
from ml_collections import ConfigDict

from tumorchain_jax.data.tokenizer import Tokenizer
from tumorchain_jax.errors import InputError
from tumorchain_jax.training.checkpoint import load_exported

ADAPTER = re.compile(r".*/lora_[ab]")


def initial_params(
    config: ConfigDict, tokenizer: Tokenizer, fresh: dict[str, Any]
) -> dict[str, Any]:
    """The parameters of the exported checkpoint in the folder `config.init`, by path.

    Args:
        config: also reads `window`.
        tokenizer: the data set's.
        fresh: random parameters by path; LoRA's stay if the checkpoint has none.

    Raises:
        InputError: it is no checkpoint; or one of another model, tokenizer or CT window.
    """
    exported = load_exported(Path(config.init))

    def refuse(field: str, found: object, expected: object, mend: str) -> None:
        if found != expected:
            raise InputError(config.init, field, str(found), str(expected), mend)

    if exported.tokenizer.token_bytes != tokenizer.token_bytes:
        mend = "copy the checkpoint's tokenizer.json into the data set's folder"
        refuse("tokenizer.json", "other tokens", "those of the data set", mend)
    window = {"level": exported.preprocess.level, "width": exported.preprocess.width}
    refuse("window", window, config.window.to_dict(), "set config.window to the checkpoint's")
    shapes = {path: leaf.shape for path, leaf in fresh.items()}
    for path in sorted(shapes.keys() | exported.params.keys()):
        if path in exported.params or not ADAPTER.fullmatch(path):
            found = exported.params[path].shape if path in exported.params else "no such array"
            expected = shapes.get(path, "no such array")
            refuse(path, found, expected, "set config.model to the checkpoint's")
    return fresh | jax.device_put(exported.params)
