"""The report of one question about one scan: its record, and the files that people open."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path

from tumorchain_jax.report.folder import PAGE, RECORD, write_folder
from tumorchain_jax.report.page import render
from tumorchain_jax.report.record import ReportRecord


@dataclass(frozen=True, repr=False)
class Report(ReportRecord):
    """A record that can be saved, and shown in a notebook."""

    def _repr_html_(self) -> str:
        """Show the page in a notebook, in a frame of its own."""
        style = "width: 100%; height: 45rem; border: 1px solid #d9dfe6"
        return f'<iframe sandbox srcdoc="{escape(render(self))}" style="{style}"></iframe>'

    def save(
        self, folder: Path, overwrite: bool = False, more: Mapping[str, bytes] | None = None
    ) -> Path:
        """Write `report.json` and `report.html` into a folder: both, or nothing at all.

        With `overwrite` an earlier report there is replaced once the new one is complete.

        Args:
            more: further files by name, of those in `REPORT_FILES`.

        Raises:
            InputError: the folder exists and `overwrite` is off, it holds anything but a report, or
                it cannot be written.
        """
        record = json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)
        files: dict[str, str | bytes] = {RECORD: record + "\n", PAGE: render(self), **(more or {})}
        return write_folder(folder, files, overwrite)
