"""Exceptions that end a command with one line: bad input, or a request to stop."""

from tumorchain_jax.core.text import printable


class InputError(Exception):
    """Bad input, described in one line: subject, field, found, expected, hint.

    The command line prints it without a traceback and exits with 2.

    Args:
        subject: the file, folder or argument at fault.
        field: the part of it that is wrong, e.g. `dim`, `PixelSpacing`, `--question`.
        found: what was there.
        expected: what should have been there.
        hint: what the user can do about it.
    """

    def __init__(self, subject: object, field: str, found: str, expected: str, hint: str):
        self.subject, self.field = str(subject), field
        self.found, self.expected, self.hint = found, expected, hint
        # Values may come from a file: keep the message one line and free of control characters.
        line = f"{subject}: {field}: found {found}, expected {expected}; {hint}"
        super().__init__(printable(line, allowed=""))

    def __reduce__(self) -> tuple[type, tuple[str, ...]]:
        """Let it travel from a worker to the process that waits for it."""
        return type(self), (self.subject, self.field, self.found, self.expected, self.hint)


class Stopped(Exception):
    """The work was asked to end before it was done; rerun the same command to resume."""
