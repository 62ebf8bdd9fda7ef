"""The report of one question to one scan: the record, and the files a person opens."""

import json
from dataclasses import dataclass
from pathlib import Path

from tumorchain_jax.report.folder import PAGE, RECORD, write_folder
from tumorchain_jax.report.page import render
from tumorchain_jax.report.record import ReportRecord


@dataclass(frozen=True)
class Report(ReportRecord):
    """A record that can be saved for people to open."""

    def save(self, folder: Path, overwrite: bool = False) -> Path:
        """Write `report.json` and `report.html` into `folder`: both, or nothing at all.

        With `overwrite` an earlier report there is replaced once the new one is complete.

        Raises:
            InputError: the folder exists and `overwrite` is off, it holds something other than a
                report, or it cannot be written.
        """
        record = json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)
        return write_folder(folder, {RECORD: record + "\n", PAGE: render(self)}, overwrite)
