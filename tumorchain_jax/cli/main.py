"""The `tumorchain` command line.

Exit codes: 0 done, 1 failed while running, 2 bad input or usage. Progress goes to stderr, and only
at a terminal; `--json` leaves nothing but JSON on stdout.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from absl import logging

from tumorchain_jax import NOTICE, __version__
from tumorchain_jax.cli import (
    analyze,
    bench,
    chat,
    compile,
    convert,
    demo,
    evaluate,
    experiments,
    info,
    phantoms,
    preflight,
    prepare,
    segment,
    train,
)
from tumorchain_jax.cli.options import Run
from tumorchain_jax.core.errors import InputError, Stopped

COMMANDS = (
    demo,
    analyze,
    segment,
    phantoms,
    prepare,
    train,
    evaluate,
    experiments,
    convert,
    chat,
    preflight,
    compile,
    bench,
    info,
)


class _Parser(argparse.ArgumentParser):
    """Usage errors in one line, exit code 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"tumorchain: error: {message}; see `{self.prog} --help`\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns its exit code."""
    parser = _build_parser()
    options, rest = parser.parse_known_args(arguments)
    if rest and not options.takes_overrides:
        parser.error(f"unknown arguments: {' '.join(rest)}")
    options.overrides = rest
    # Only its tokenizers are used here: no advice to install PyTorch on stderr.
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    if not options.verbose:
        # Orbax's threads log pages of what they raise; it is told in our own line.
        logging.set_verbosity(logging.FATAL)
    try:
        code = options.run(options)
        sys.stdout.flush()  # here, and not at the very end, a reader that has gone is no failure
        return code
    except InputError as error:
        print(f"tumorchain: error: {error}", file=sys.stderr)
        return 2
    except Stopped as stopped:
        print(f"tumorchain: stopped {stopped}; rerun the same command to resume", file=sys.stderr)
        return getattr(options, "preempted_exit_code", 0)
    except KeyboardInterrupt:
        print("tumorchain: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Who read it has seen enough; what is left to flush at the end goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if options.verbose:
            raise
        line = " ".join(str(error).split())[:500]
        print(
            f"tumorchain: failed: {type(error).__name__}: {line} (-v tells more)", file=sys.stderr
        )
        return 1


def _build_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="tumorchain", description=f"Reasoning over 3D CT. {NOTICE}")
    parser.add_argument("--version", action="version", version=f"tumorchain {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Run, summary: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=summary, description=f"{summary}. {NOTICE}")
        sub.set_defaults(run=run, takes_overrides=False)
        sub.add_argument("-v", "--verbose", action="store_true", help="tracebacks on failure")
        return sub

    for module in COMMANDS:
        module.add_command(command)
    return parser


if __name__ == "__main__":
    sys.exit(main())
