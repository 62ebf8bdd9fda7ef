"""What several subcommands share."""

import argparse
from collections.abc import Callable

from tumorchain_jax.core.errors import InputError

SEEDS = (0, 2**32 - 1)
CONFIG_HELP = "a configuration file, or the name of a shipped one: nano, tumorchain_3b, ..."

Run = Callable[[argparse.Namespace], int]
"""Does a subcommand's work, and returns its exit code."""
Command = Callable[[str, Run, str], argparse.ArgumentParser]
"""(name, what does its work, summary) -> the parser of a new subcommand."""


def takes_overrides(command: argparse.ArgumentParser) -> None:
    """What the parser does not know is handed on as overrides of the configuration."""
    command.set_defaults(takes_overrides=True)
    command.epilog = "Override a field with --config.a.b=value."


def takes_processes(command: argparse.ArgumentParser) -> None:
    """Which of several processes this one is."""
    add = command.add_argument
    add("--coordinator", metavar="HOST:PORT", help="of the first of several processes, or auto")
    add("--processes", type=int, metavar="N", help="how many there are")
    add("--process", type=int, metavar="I", help="which this is, from 0")


def check_processes(options: argparse.Namespace) -> None:
    """Refuse the number of a process that nothing tells where the others are.

    Raises:
        InputError: it is given without an address.
    """
    if (
        options.coordinator in (None, "auto")
        and (options.processes, options.process) != (None,) * 2
    ):
        found, expected = str(options.coordinator), "HOST:PORT with --processes and --process"
        raise InputError("command line", "--coordinator", found, expected, "add it")


def check_numbers(options: argparse.Namespace, **limits: tuple[int, int]) -> None:
    """Options by name, each with its least and greatest value."""
    for name, (least, greatest) in limits.items():
        value = getattr(options, name)
        if not least <= value <= greatest:
            expected = f"{least} to {greatest}"
            raise InputError("command line", f"--{name}", str(value), expected, "change it")


def use_compilation_cache() -> None:
    """Compiled programs are kept for the next run, unless the user has set a place of their own."""
    import jax

    from tumorchain_jax.core.downloads import cache_folder

    if jax.config.values["jax_compilation_cache_dir"] is None:
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "compiled"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
