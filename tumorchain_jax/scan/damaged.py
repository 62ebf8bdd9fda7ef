"""Files of a DICOM folder that have lost their header: a slice must not go missing in silence."""

import re
from pathlib import Path

from tumorchain_jax.core.errors import InputError

PREAMBLE, PREFIX = 128, b"DICM"
# A file without preamble begins with its first element, of group 0002 or 0008.
FIRST_GROUPS = (b"\x02\x00", b"\x08\x00")


def check_damaged(folder: Path, slices: list[Path]) -> None:
    """Refuse a file that was a slice of the series by its name, or is one without preamble.

    Whether such a slice lies in the middle of the series shows in the steps; at either end the
    series would be short without a word.

    Args:
        slices: files of the series that were read.

    Raises:
        InputError: for the first such file.
    """
    patterns = {_pattern(path) for path in slices}
    for path in sorted(folder.iterdir()):
        if not path.is_file() or path in slices:
            continue
        with path.open("rb") as file:
            head = file.read(PREAMBLE + len(PREFIX))
        if head[PREAMBLE:] == PREFIX:
            continue  # a segmentation, a report, an index: read and left out by its header
        if head[: len(FIRST_GROUPS[0])] in FIRST_GROUPS or _pattern(path) in patterns:
            hint = "copy the series again, or remove the file"
            raise InputError(path, "file", "no DICOM header", "a whole slice", hint)


def _pattern(path: Path) -> str:
    """Return the name with every number as one `0`: slices of a series differ in them alone."""
    return re.sub(r"[0-9]+", "0", path.name)
