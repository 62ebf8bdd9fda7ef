"""The parser of the `tumorchain` command: its subcommands in groups, and how it refuses."""

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from types import ModuleType
from typing import Any, NoReturn

from tumorchain_jax import NOTICE, __version__
from tumorchain_jax.cli import (
    analyze,
    bench,
    bus,
    bust,
    calibrate,
    chat,
    compare,
    compile,
    convert,
    deeptumorvqa,
    demo,
    engine,
    evaluate,
    experiments,
    info,
    judge,
    phantoms,
    preflight,
    prepare,
    segment,
    serve,
    train,
    weights,
)
from tumorchain_jax.cli.options import Run
from tumorchain_jax.core.text import printable

PROGRAM = "tumorchain"
GROUPS: Mapping[str, tuple[ModuleType, ...]] = {
    "Start here": (demo, analyze, segment, train, evaluate, calibrate, judge, compare),
    "Data": (phantoms, engine, prepare),
    "Weights": (weights, convert, chat, serve),
    "Breast ultrasound": (bus, bust),
    "Large machines": (preflight, compile),
    "Research": (deeptumorvqa, experiments, bench, info),
}
"""Subcommands by what they are for, in the order of `--help`."""
JOINED = re.compile(r"-[A-Za-z][^ =]+")


class Parser(argparse.ArgumentParser):
    """An argument parser that refuses in one line, with exit code 2, and completes no flag.

    Attributes:
        summary: what the command does, in a few words.
        verbs: its own subcommands by name, as `run` of `engine run`; most have none.
    """

    summary = ""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.verbs: dict[str, Parser] = {}

    def error(self, message: str) -> NoReturn:
        """Print one line and exit with 2."""
        line = printable(f"{PROGRAM}: error: {message}; see `{self.prog} --help`", allowed="")
        self.exit(2, f"{line}\n")

    @property
    def flags(self) -> list[str]:
        """All flags, short and long."""
        return [flag for action in self._actions for flag in action.option_strings]


def build_parser() -> tuple[Parser, dict[str, list[Parser]]]:
    """Make the parser, and list the parsers of its subcommands by group."""
    parser = Parser(
        prog=PROGRAM,
        usage=f"{PROGRAM} COMMAND ...",
        description=f"Chain-of-thought reasoning over 3D CT. {NOTICE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    subparsers = parser.add_subparsers(
        prog=PROGRAM, required=True, metavar="COMMAND", help=argparse.SUPPRESS
    )
    groups: dict[str, list[Parser]] = {title: [] for title in GROUPS}

    def add_to(title: str, module: ModuleType) -> None:
        family: list[tuple[Parser, Any]] = []

        def command(name: str, run: Run, summary: str) -> Parser:
            *above, last = name.split()
            own = next((each for each in groups[title] if above == each.prog.split()[-1:]), None)
            if above and not family and own:  # runs by itself as well
                family.append((own, own.add_subparsers(prog=own.prog, metavar="COMMAND")))
            if above and not family:
                about = str(module.__doc__).splitlines()[0].split(": ", 1)[1].rstrip(".")
                whole = _add(subparsers, above[0], f"{about[0].upper()}{about[1:]}")
                groups[title].append(whole)
                verbs = whole.add_subparsers(prog=whole.prog, required=True, metavar="COMMAND")
                family.append((whole, verbs))
            sub = _add(family[0][1] if above else subparsers, last, summary)
            sub.set_defaults(run=run, takes_overrides=False)
            sub.add_argument("-v", "--verbose", action="store_true", help="tracebacks on failure")
            if above:
                family[0][0].verbs[last] = sub
            else:
                groups[title].append(sub)
            return sub

        module.add_command(command)

    for title, modules in GROUPS.items():
        for module in modules:
            add_to(title, module)
    parser.epilog = _overview(groups)
    return parser, groups


def _add(subparsers: Any, name: str, summary: str) -> Parser:
    sub = subparsers.add_parser(
        name, help=summary, description=f"{summary}. {NOTICE}", allow_abbrev=False
    )
    sub.summary = summary
    return sub


def _overview(groups: Mapping[str, Sequence[Parser]]) -> str:
    sections = []
    for title, commands in groups.items():
        lines = (f"  {each.prog.split()[-1]:<13}{each.summary}" for each in commands)
        sections.append("\n".join([f"{title}:", *lines]))
    return "\n\n".join([*sections, f"`{PROGRAM} COMMAND --help` lists the flags of a command."])


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse a command line; bad usage ends the program with exit code 2 and one line.

    Args:
        arguments: without the program's name; None: those of this process.

    Returns:
        The options, with `run` and `overrides` (`--config.a.b=value` words).
    """
    words = [*(sys.argv[1:] if arguments is None else arguments)]
    parser, groups = build_parser()
    commands = {each.prog.split()[-1]: each for group in groups.values() for each in group}
    first, second, *_ = *(word for word in words if not word.startswith("-")), "", ""
    used = commands.get(first, parser)
    used = used.verbs.get(second, used)
    for word in words:
        flag = word.split("=")[0]
        # argparse would read `-ot x` as `-o t x`.
        if JOINED.fullmatch(flag) and flag not in used.flags:
            _refuse_flag(used, flag, f"put a space between {flag[:2]} and its value")
    options, rest = parser.parse_known_args(words)
    if rest and not options.takes_overrides:
        if rest[0].startswith("-"):
            _refuse_flag(used, rest[0].split("=")[0])
        used.error(f"unexpected arguments: {' '.join(rest)}")
    options.overrides = rest
    return options


def _refuse_flag(parser: Parser, flag: str, hint: str = "") -> NoReturn:
    likely = [known for known in parser.flags if known.startswith(f"-{flag}")]
    likely = likely or get_close_matches(flag, parser.flags, n=1)
    if likely and not (hint and flag[:2] in parser.flags):
        hint = f"did you mean {likely[0]}?"
    parser.error(f"unknown flag {flag}" + (f" ({hint})" if hint else ""))
