"""Options and checks that several subcommands share."""

import argparse
import os
import re
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tumorchain_jax.core.errors import InputError

if TYPE_CHECKING:
    from ml_collections import ConfigDict

    from tumorchain_jax.phantoms.settings import PatientSettings

SEEDS = (0, 2**32 - 1)
CONFIG_HELP = "a configuration file, or the name of a shipped one: nano, tumorchain_3b, ..."

Run = Callable[[argparse.Namespace], int]
"""Does a subcommand's work, and returns its exit code."""
Command = Callable[[str, Run, str], argparse.ArgumentParser]
"""(name, function that does the work, summary) -> the parser of a new subcommand."""


def takes_overrides(command: argparse.ArgumentParser) -> None:
    """Let a command take `--config.a.b=value`, which overrides a field of its configuration."""
    command.set_defaults(takes_overrides=True)
    command.epilog = "Override a field with --config.a.b=value."


def takes_processes(command: argparse.ArgumentParser) -> None:
    """Add the flags that say which of several processes this one is."""
    add = command.add_argument
    add(
        "--coordinator",
        metavar="HOST:PORT",
        help="address of the first of several processes, or auto on TPU pods, Slurm and Kubernetes",
    )
    add("--processes", type=int, metavar="N", help="number of processes")
    add("--process", type=int, metavar="I", help="number of this process, from 0")


def check_processes(options: argparse.Namespace) -> None:
    """Refuse the number of a process without the address of the others.

    Raises:
        InputError: it is given without an address.
    """
    if (
        options.coordinator in (None, "auto")
        and (options.processes, options.process) != (None,) * 2
    ):
        found, expected = str(options.coordinator), "HOST:PORT with --processes and --process"
        raise InputError("command line", "--coordinator", found, expected, "add it")


def patient_settings(options: argparse.Namespace) -> "PatientSettings":
    """Return the kind of digital patients that `--kind` and `--anatomies` ask for.

    Raises:
        InputError: they do not go together, or there is no such folder.
    """
    from tumorchain_jax.phantoms.settings import PatientSettings

    return PatientSettings(options.kind, str(options.anatomies or ""))


def add_patient_options(add: Callable[..., object]) -> None:
    """Add `--kind` and `--anatomies` with a parser's `add_argument`."""
    add(
        "--kind",
        choices=("simple", "realistic", "conspicuous", "mixed"),
        default="simple",
        help="of digital patients: smooth trunks with large tumours, varied anatomies and images "
        "with tumours from 8 mm on, the same with large tumours, or all three (default: simple)",
    )
    add(
        "--anatomies",
        type=Path,
        metavar="DIR",
        help="unless --kind is simple: label maps (TotalSegmentator v2 ids) to draw from as well",
    )


def check_numbers(options: argparse.Namespace, **limits: tuple[int, int]) -> None:
    """Refuse an option outside (least, greatest).

    Raises:
        InputError: for the first such option.
    """
    for name, (least, greatest) in limits.items():
        value = getattr(options, name)
        if not least <= value <= greatest:
            expected = f"{least} to {greatest}"
            raise InputError("command line", f"--{name}", str(value), expected, "change it")


def check_paths(options: argparse.Namespace) -> None:
    """Refuse a path that no file can have: a URL, too long, or with a NUL byte.

    Options that take `gs://` are no `Path` then, see `core/remote.py`.

    Raises:
        InputError: for the first such path.
    """
    for name, value in vars(options).items():
        for path in value if isinstance(value, list) else [value]:
            if not isinstance(path, Path):
                continue
            if url := re.match("[a-z][a-z0-9]+:/", str(path)):  # Path made one / of two
                found, expected = f"a {url[0]}/ URL", "a folder or file of this machine"
                hint = "copy it here; of what may be in a bucket see the command's --help"
                raise InputError("command line", f"--{name}", found, expected, hint)
            try:
                os.lstat(path)
            except (FileNotFoundError, NotADirectoryError, PermissionError):
                continue
            except (OSError, ValueError) as error:
                found = getattr(error, "strerror", None) or str(error)
                shown = str(path) if len(str(path)) < 80 else f"{str(path)[:80]}..."
                raise InputError(shown, f"--{name}", found, "a path", "name another") from error


def read_task(options: argparse.Namespace, task: str, hint: str) -> "ConfigDict":
    """Read the configuration that `--config` names, which must be of a training task.

    Raises:
        InputError: it is of another task, or cannot be read.
    """
    from tumorchain_jax.core.config import read_config

    config = read_config(options.config, options.overrides)
    found = str(config.get("task", "tumorchain"))
    if found != task:
        raise InputError(options.config, "task", found, task, hint)
    return config


def progress_apart(options: argparse.Namespace) -> AbstractContextManager[Any]:
    """With --json, what trainings print goes to stderr."""
    return redirect_stdout(sys.stderr) if options.json else nullcontext()


def use_compilation_cache() -> None:
    """Cache compiled programs for the next run, unless the user has set a folder for them."""
    import jax

    from tumorchain_jax.core.downloads import cache_folder

    if jax.config.values["jax_compilation_cache_dir"] is None:
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "compiled"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
