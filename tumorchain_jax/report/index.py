"""The overview of a batch: `index.html` for people, `answers.csv` for spreadsheets."""

import csv
import io
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from tumorchain_jax.core.files import write_file
from tumorchain_jax.report.folder import PAGE
from tumorchain_jax.report.shell import page

INDEX, ANSWERS = "index.html", "answers.csv"
COLUMNS = ("file", "question", "answer", "confidence", "warnings", "report")
# A spreadsheet would run a text that begins with one of these as a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_index(folder: Path, records: Mapping[str, Mapping[str, Any]]) -> Path:
    """Write the overview of the reports in a folder, over an earlier one.

    Args:
        records: the fields of `report.json` by the folder of each report, relative to `folder`.

    Returns:
        The path of `index.html`.
    """
    rows = [_row(name, record) for name, record in records.items()]
    table = io.StringIO(newline="")
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([_cell(value) for value in row] for row in rows)
    # Model text and file names may hold lone surrogates, which UTF-8 cannot write.
    write_file(folder / ANSWERS, table.getvalue().encode("utf-8", "replace"))
    write_file(folder / INDEX, _page(rows).encode("utf-8", "replace"))
    return folder / INDEX


def _row(name: str, record: Mapping[str, Any]) -> tuple[str, ...]:
    """The values of `COLUMNS`."""
    value = (record.get("confidence") or {}).get("value")
    return (
        Path(record["scan"]).name,
        record["question"],
        record.get("headline", record["conclusion"]),
        "" if value is None else f"{value:.3f}",
        "; ".join([*record.get("forced", ()), *record["warnings"]]),
        str(PurePosixPath(name) / PAGE),
    )


def _cell(text: str) -> str:
    return f"'{text}" if text.startswith(FORMULA) else text


def _page(rows: Sequence[tuple[str, ...]]) -> str:
    heads = "".join(f'<th scope="col">{head.capitalize()}</th>' for head in COLUMNS[:-1])
    body = "".join(_html(row) for row in rows)
    content = f"""<header><h1>{len(rows)} scans</h1></header>
<table class="index"><tr>{heads}</tr>{body}</table>
<p class="legend">The same table for spreadsheets: <a href="{ANSWERS}">{ANSWERS}</a></p>"""
    return page("TumorChain reports", content)


def _html(row: tuple[str, ...]) -> str:
    file, *others, report = row
    name = escape(file)
    if str(PurePosixPath(report).parent) not in file:  # scans of one file name
        name += f" ({escape(str(PurePosixPath(report).parent))})"
    link = f'<a href="{escape(quote(report, errors="replace"))}">{name}</a>'
    cells = "".join(f'<td class="free-text">{escape(value)}</td>' for value in others)
    return f'<tr><th scope="row">{link}</th>{cells}</tr>'
