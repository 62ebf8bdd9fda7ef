"""The overview of a batch: `index.html` for people, `summary.csv` for spreadsheets."""

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

INDEX, SUMMARY = "index.html", "summary.csv"
COLUMNS = ("scan", "question", "answer", "confidence", "warnings", "report")
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
    volumes = [_volumes(record) for record in records.values()]
    organs = [*dict.fromkeys(organ for each in volumes for organ in each)]
    table = io.StringIO(newline="")
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow([*COLUMNS, *(f"{organ}_ml" for organ in organs)])
    for row, found in zip(rows, volumes, strict=True):
        cells = [f"{found[organ]:.3f}" if organ in found else "" for organ in organs]
        writer.writerow([*map(_cell, row), *cells])
    # Model text and file names may hold lone surrogates, which UTF-8 cannot write.
    write_file(folder / SUMMARY, table.getvalue().encode("utf-8", "replace"))
    write_file(folder / INDEX, _page(rows, volumes).encode("utf-8", "replace"))
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


def _volumes(record: Mapping[str, Any]) -> dict[str, float]:
    """Volume in ml by organ."""
    organs = record.get("organs") or {}
    return {name: organ["volume_ml"] for name, organ in organs.items()}


def _page(rows: Sequence[tuple[str, ...]], volumes: Sequence[Mapping[str, float]]) -> str:
    heads = "".join(f'<th scope="col">{head.capitalize()}</th>' for head in COLUMNS[:-1])
    heads += '<th scope="col">Volumes</th>'
    body = "".join(map(_html, rows, volumes))
    count = f"{len(rows)} report{'s' * (len(rows) != 1)}"
    content = f"""<header><h1>{count}</h1></header>
<table class="index"><tr>{heads}</tr>{body}</table>
<p class="legend">The same table for spreadsheets: <a href="{SUMMARY}">{SUMMARY}</a></p>"""
    return page("TumorChain reports", content)


def _html(row: tuple[str, ...], volumes: Mapping[str, float]) -> str:
    file, *others, report = row
    name = escape(file)
    if str(PurePosixPath(report).parent) not in file:  # scans of one file name
        name += f" ({escape(str(PurePosixPath(report).parent))})"
    link = f'<a href="{escape(quote(report, errors="replace"))}">{name}</a>'
    cells = "".join(f'<td class="free-text">{escape(value)}</td>' for value in others)
    organs = "<br>".join(f"{escape(name)}: {ml:.1f} ml" for name, ml in volumes.items())
    if organs:
        organs = f"<details><summary>{len(volumes)} organs</summary>{organs}</details>"
    return f'<tr><th scope="row">{link}</th>{cells}<td>{organs}</td></tr>'
