"""Read a configuration file, with fields overridden from the command line."""

from collections.abc import Sequence
from difflib import get_close_matches
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from ml_collections import ConfigDict

import tumorchain_jax
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.overrides import apply_overrides

SHIPPED = Path(tumorchain_jax.__file__).parent / "configs"
"""The configurations that come with the package: `configs/` of a checkout."""


def read_config(path: Path, overrides: Sequence[str]) -> ConfigDict:
    """The `get_config()` of a Python file, with `--config.a.b=value` applied.

    Args:
        path: of the file; or the name of a shipped configuration, such as `nano`.

    Raises:
        InputError: no such file, it cannot be run, no such field, or a value of another type.
    """
    path = find_config(path)
    config = _get_config(path)
    with config.unlocked():
        apply_overrides(config, overrides, path)
    return config


def find_config(path: Path) -> Path:
    """The path itself if it is a file, else that of the shipped configuration of this name.

    Raises:
        InputError: neither is there.
    """
    shipped = SHIPPED / f"{path}.py"
    for candidate in (path, shipped):
        if candidate.is_file():
            return candidate
    names = sorted(file.stem for file in SHIPPED.glob("*.py"))
    close = get_close_matches(path.stem, names, n=1)
    hint = f"did you mean {close[0]}?" if close else "check the path"
    raise InputError(
        path, "--config", "no such file", f"a Python file or one of {', '.join(names)}", hint
    )


def _get_config(path: Path) -> ConfigDict:
    def refuse(found: str) -> InputError:
        expected = "a Python file whose get_config() returns a ConfigDict"
        return InputError(path, "--config", found, expected, "see configs/")

    spec = spec_from_file_location("tumorchain_config", path)
    if spec is None or spec.loader is None:
        raise refuse(f"a {path.suffix or 'nameless'} file")
    module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        config = module.get_config()
    except InputError:
        raise
    except SyntaxError as error:
        raise refuse(f"{error.msg} in line {error.lineno}") from error
    except Exception as error:
        line = " ".join(str(error).split())[:200]
        raise refuse(f"{type(error).__name__}: {line}") from error
    if not isinstance(config, ConfigDict):
        raise refuse(f"a {type(config).__name__}")
    return config
