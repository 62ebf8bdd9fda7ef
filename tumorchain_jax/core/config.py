"""Reading a configuration file, and overriding its fields from the command line."""

from collections.abc import Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from absl import flags
from ml_collections import ConfigDict, config_flags

from tumorchain_jax.core.errors import InputError


def read_config(path: Path, overrides: Sequence[str]) -> ConfigDict:
    """The `get_config()` of a Python file, with `--config.a.b=value` applied.

    Raises:
        InputError: no such file, no such field, or a value of another type.
    """
    if not path.is_file():
        raise InputError(path, "--config", "no such file", "a configs/*.py file", "check the path")
    unknown = [word for word in overrides if not word.startswith("--config.")]
    if unknown:
        raise InputError(
            "command line", unknown[0], "an unknown argument", "--config.a.b=value", "remove it"
        )
    values = flags.FlagValues()
    arguments = ["tumorchain", *overrides]
    try:
        # It looks for overrides in the process's own arguments unless told otherwise.
        config_flags.DEFINE_config_dict(
            "config", _get_config(path), flag_values=values, sys_argv=arguments
        )
        values(arguments)
    except (flags.Error, AttributeError, KeyError, TypeError, ValueError) as error:
        found = str(error.args[0]).splitlines()[0] if error.args else type(error).__name__
        raise InputError(path, "--config", found, "fields of it", "see the file") from error
    return values.config


def _get_config(path: Path) -> ConfigDict:
    spec = spec_from_file_location("tumorchain_config", path)
    if spec is None or spec.loader is None:
        raise InputError(path, "--config", path.suffix, "a Python file", "see configs/")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.get_config()
