"""Errors that end a command in one line: bad input, or a request to stop."""


class InputError(Exception):
    """Bad input, reported in one line: subject, field, found, expected, hint.

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
        super().__init__("".join(c if c.isprintable() else " " for c in line))


class Stopped(Exception):
    """The work was stopped by a signal; rerun the same command to resume."""
