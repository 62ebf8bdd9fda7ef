"""The `tumorchain` command line.

Exit codes: 0 done, 1 failed while running, 2 bad input or usage. Progress goes to stderr, and only
at a terminal; `--json` leaves nothing but JSON on stdout.
"""

import io
import os
import sys
import warnings
from collections.abc import Sequence

from absl import logging

from tumorchain_jax.cli.options import check_paths
from tumorchain_jax.cli.parser import parse
from tumorchain_jax.core.errors import InputError, Stopped
from tumorchain_jax.core.text import printable


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns its exit code.

    Args:
        arguments: without the program's name; None: those of this process.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal without UTF-8 shows an escape for a letter it lacks.
            stream.reconfigure(errors="backslashreplace")
    options = parse(arguments)
    # Only its tokenizers are used here: no advice to install PyTorch on stderr.
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    if not options.verbose:
        # Orbax's threads log pages of what they raise; the error is printed below.
        logging.set_verbosity(logging.FATAL)
        if arguments is None and not sys.warnoptions:
            # Libraries warn of what is refused here in one line, or of a cache that is full.
            warnings.simplefilter("ignore")
    try:
        check_paths(options)
        code = options.run(options)
        sys.stdout.flush()  # here, and not at the very end, a reader that has gone is no failure
        return code
    except InputError as error:
        _complain(f"error: {error}")
        return 2
    except Stopped as stopped:
        _complain(f"stopped {stopped}; rerun the same command to resume")
        return getattr(options, "preempted_exit_code", 0)
    except KeyboardInterrupt:
        _complain("stopped")
        return 130
    except BrokenPipeError:
        # The reader has gone; what is left to flush at the end goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if options.verbose:
            raise
        line = " ".join(str(error).split())[:500]
        _complain(f"failed: {type(error).__name__}: {line} (-v tells more)")
        return 1


def _complain(line: str) -> None:
    print(printable(f"tumorchain: {line}", allowed=""), file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
