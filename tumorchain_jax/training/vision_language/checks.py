"""Checks of a vision-language training before it starts, for `preflight`."""

from ml_collections import ConfigDict

from tumorchain_jax.core.files import AnyPath
from tumorchain_jax.training.vision_language.init import open_init, open_tokenizer
from tumorchain_jax.training.vision_language.source import open_source


def check_data(config: ConfigDict, workdir: AnyPath) -> str:
    """Read the rows, and the header of each picture.

    Raises:
        InputError: training would refuse them.
    """
    source = open_source(config, open_tokenizer(config))
    pictures = {path for row in source.rows for path in row.pictures}
    longest = max(len(tokens) for tokens, _ in source.encoded)
    return f"{len(source)} rows of at most {longest} positions, {len(pictures)} pictures"


def check_init(config: ConfigDict, workdir: AnyPath) -> str:
    """Compare what `config.init` names with the model.

    Raises:
        InputError: training would refuse it.
    """
    open_init(config)
    return config.init or "random weights"
