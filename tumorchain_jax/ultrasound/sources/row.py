"""What a reader of a data set yields of each picture."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.ultrasound.lesion import Label


@dataclass(frozen=True)
class SourceRow:
    """A picture of a data set, before it is read.

    Attributes:
        id: unique in its set.
        image: its file.
        masks: files of its lesion's mask, which are joined.
        patient: None where the set does not name patients.
        pixel_mm: side of a pixel of the file.
    """

    id: str
    image: Path
    masks: tuple[Path, ...]
    patient: str | None
    label: Label
    view: str = ""
    device: str = ""
    birads: str = ""
    descriptors: Mapping[str, str] = field(default_factory=dict)
    histopathology: str = ""
    pixel_mm: float | None = None


def read_table(path: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """Read a CSV file that must have some columns.

    Raises:
        InputError: it cannot be read, or lacks a column.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            missing = sorted(set(columns) - set(reader.fieldnames or ()))
            if missing:
                found, expected = f"no column {missing[0]}", ", ".join(columns)
                raise InputError(path, "columns", found, expected, "use the set's own table")
            return [dict(row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        found = f"{type(error).__name__}: {error}"[:100]
        raise InputError(path, "table", found, "a CSV file", "replace it") from error


def check_label(path: Path, name: str, value: str) -> Any:
    """A label in small letters.

    Raises:
        InputError: it is none of the three.
    """
    label = value.strip().lower()
    if label not in ("benign", "malignant", "normal"):
        raise InputError(
            path, f"label of {name}", repr(value)[:60], "benign, malignant or normal", "fix it"
        )
    return label
