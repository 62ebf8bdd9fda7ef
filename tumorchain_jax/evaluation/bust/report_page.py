"""The report of a run as one offline page: scores, curves, tiers, examples, flow, checklists."""

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from tumorchain_jax.evaluation.bust.figures import reliability_svg, roc_svg, shares_svg
from tumorchain_jax.evaluation.bust.pixels import data_uri
from tumorchain_jax.evaluation.bust.score import SUSPICIOUS, Case, by_probability
from tumorchain_jax.report.shell import page

EXAMPLES = 3
"""Pictures of each kind."""
STYLE = (
    "main{max-width:72rem}svg{max-width:100%}section p{overflow-wrap:anywhere}"
    "table{width:auto;border-collapse:collapse;margin:.3rem 0 .8rem;font-size:.9rem}"
    "th{text-align:left;font-weight:400}th,td{padding:.1rem 1rem .1rem 0;vertical-align:top}"
    ".charts,.examples{display:flex;flex-wrap:wrap;gap:1rem}"
    ".examples figure{flex:0 1 13rem;min-width:0}"
    ".examples img{width:100%;height:10rem;object-fit:contain;background:#000}"
    ".examples{margin:.3rem 0 1rem}figcaption{font-size:.8rem;overflow-wrap:anywhere}"
)


def report_page(
    values: Mapping[str, Any], said: str, checklist: Mapping[str, Any], cases: Sequence[Case],
    folder: Path,
) -> str:  # fmt: skip
    """One offline page.

    Args:
        values, said: the scores as values and as text.
        cases: with what the model said of each.
        folder: of the cases; pictures of a few get into the page.
    """
    lesions = [case for case in cases if case.row.label != "normal" and case.reading is not None]
    labels = np.array([case.row.label == "malignant" for case in lesions], bool)
    scores = np.array([by_probability(case.reading) for case in lesions if case.reading], float)
    charts = ""
    if labels.any() and not labels.all():
        charts = roc_svg(labels, scores) + reliability_svg(labels, scores)
    tiers = ""
    if values["tiers"]:
        rows = {f"{name}, n {row['n']}": row["birads_accuracy"] for name, row in
                values["tiers"].items()}  # fmt: skip
        chart = shares_svg("BI-RADS accuracy by difficulty tier", rows)
        tiers = f"<section><h2>Difficulty tiers</h2>{chart}</section>"
    flow = (folder / "flow.svg").read_text("utf-8")
    content = f"""<header><h1>BUST-AI Bench: {escape(str(values["model"]))}</h1></header>
<section><h2>Scores</h2>{_scores(said)}</section>
<section><h2>Answered lesions</h2><div class="charts">{charts}</div></section>
{tiers}
<section><h2>Examples</h2>{"".join(_examples(cases, folder))}</section>
<section><h2>Flow of the cases</h2>{flow}</section>
{_checklists(checklist)}"""
    return page(f"BUST-AI Bench: {values['model']}", content, more_style=STYLE)


def _scores(said: str) -> str:
    """The scores' text: rows of which the parts stand apart as tables, so that small screens do."""
    parts: list[str] = []
    rows: list[str] = []
    for line in [*said.splitlines(), ""]:
        name, *values = re.split(" {2,}", line)
        if values:
            cells = "".join(f"<td>{escape(each)}</td>" for each in values)
            rows.append(f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>')
            continue
        if rows:
            parts.append(f"<table>{''.join(rows)}</table>")
            rows = []
        if line:
            parts.append(f"<p>{escape(line)}</p>")
    return "".join(parts)


def _kind(case: Case) -> str:
    """What an example of the case shows."""
    if case.reading is None:
        return "Not answered"
    suspects = case.reading["category"] in SUSPICIOUS
    if case.row.label == "malignant":
        return "Malignant, called suspicious" if suspects else "Malignant, missed"
    return "Not malignant, called suspicious" if suspects else "Not malignant, called so"


def _examples(cases: Sequence[Case], folder: Path) -> Iterator[str]:
    """The first cases of each kind; their names have no meaning, so this is no choice."""
    kinds: dict[str, list[Case]] = {}
    for case in sorted(cases, key=lambda case: case.row.id):
        kinds.setdefault(_kind(case), []).append(case)
    for kind, found in sorted(kinds.items()):
        figures = "".join(_figure(case, folder) for case in found[:EXAMPLES])
        title = f"{kind}: {len(found)} of {len(cases)}"
        yield f'<h3>{escape(title)}</h3><div class="examples">{figures}</div>'


def _figure(case: Case, folder: Path) -> str:
    said = "no answer"
    if case.reading is not None:
        said = f"category {case.reading['category']}, {by_probability(case.reading):.0%} malignant"
    words = f"{case.row.id}: {case.row.label}, reference {case.category or 'unknown'}; said: {said}"
    return (
        f'<figure><img src="{data_uri(folder / case.row.image)}" alt="ultrasound picture of case '
        f'{escape(case.row.id)}"><figcaption>{escape(words)}</figcaption></figure>'
    )


def _checklists(checklist: Mapping[str, Any]) -> str:
    parts = []
    for name, each in checklist.items():
        rows = "".join(
            f'<tr><th scope="row">{escape(item)}</th><td>{row["state"]}</td></tr>'
            for item, row in each["items"].items()
        )
        title = f"{name}: {each['filled']} filled, {each['missing']} missing"
        parts.append(f"<details><summary>{escape(title)}</summary><table>{rows}</table></details>")
    return f"<section><h2>Reporting</h2>{''.join(parts)}</section>"
