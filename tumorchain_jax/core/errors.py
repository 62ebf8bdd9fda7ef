"""What ends a command other than being done: bad input, or the wish that it stop."""


class InputError(Exception):
    """Bad input, told in one line: what, which field, found, expected, fix.

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
    """The work was asked to end before it was done; the same command goes on with it."""
