"""The results as one HTML page that needs nothing but itself, in the style of the reports."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from statistics import fmean
from typing import Any

from tumorchain_jax.data.schema import SUBTASKS
from tumorchain_jax.evaluation.bootstrap import ends_text
from tumorchain_jax.evaluation.chain.judged import Judged
from tumorchain_jax.evaluation.chain.text import calibration_line, headline
from tumorchain_jax.evaluation.items import Item
from tumorchain_jax.evaluation.paper import TABLE_1, TABLE_2
from tumorchain_jax.evaluation.score import score as score_items
from tumorchain_jax.report.shell import page

SHOWN = 20
_PAPER_NOTE = (
    'Rows marked "paper" are numbers that the paper prints, on its own real CTs, questions and '
    "judges. They were not reproduced here, and stand beside ours for orientation alone. Averages "
    "are of their rows."
)
_SYNTHETIC_NOTE = (
    "A judge by rules is exact in its own vocabulary; digital patients prove its arithmetic, not "
    "its medicine. Intervals are of 95 %, by bootstrap over patients; fewer than 20 have a wide "
    "one, or none."
)
_PAPER_MODELS = ("TumorChain-7B", "TumorChain-3B", "GPT-5-Mini", "Lingshu-7B", "M3D-Phi-3-4B")


def results_page(score: Mapping[str, Any], rows: Sequence[Judged], items: Sequence[Item]) -> str:
    """Make the page of a judged run.

    Args:
        score: of `chain/score.py`.
        rows, items: of every chain, in the same order.
    """
    subject = score["run"].get("subject") or "chains"
    judge = score["run"]["judge"]
    line = calibration_line(score["run"].get("calibration"))
    content = f"""<header>
<p class="source">TumorChain-Eval</p>
<h1 class="free-text">{escape(subject)}</h1>
<p class="free-text">Judge: {escape(judge)}, {escape(line)}.</p>
<p class="free-text">{escape(headline(score))}.</p>
</header>
{_section("Chains (Table 2)", _SYNTHETIC_NOTE + " " + _PAPER_NOTE, _chains(score))}
{
        _section(
            "Beside it",
            "Tied to the truth: triples weighed by harm, and conclusions.",
            _beside(score),
        )
    }
{_section("By subtask", "", _subtasks(score))}
{_section("Conclusions (Table 1)", _PAPER_NOTE, _conclusions(items))}
{_calibration(score["run"].get("calibration"))}
{
        _section(
            "No number",
            "Chains that say nothing, and failures of the judge: never a mark.",
            _silent(rows),
        )
    }
{_section("Lowest marks", "", _lowest(rows, items))}"""
    return page("TumorChain-Eval", content)


def _section(title: str, legend: str, content: str) -> str:
    if not content:
        return ""
    note = f'<p class="legend">{escape(legend)}</p>' if legend else ""
    return f"<section><h2>{escape(title)}</h2>{note}{content}</section>"


def _table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], own: int = -1, words: Sequence[int] = ()
) -> str:
    """Make a table.

    Args:
        rows: the first cell of each is its head.
        own: number of the row that is set off from the others.
        words: numbers of the cells that hold text, the head being 0.
    """

    def kind(number: int) -> str:
        return ' class="words"' if number in words else ""

    head = "".join(
        f'<th scope="col"{kind(number)}>{escape(each)}</th>' for number, each in enumerate(heads)
    )
    body = "".join(
        f'<tr{" class=own" if row == own else ""}><th scope="row"{kind(0)}>{escape(first)}</th>'
        + "".join(f"<td{kind(n)}>{escape(cell)}</td>" for n, cell in enumerate(cells, 1))
        + "</tr>"
        for row, (first, *cells) in enumerate(rows)
    )
    return f'<div class="wide"><table class="scores"><tr>{head}</tr>{body}</table></div>'


def _number(row: Mapping[str, Any] | None) -> str:
    if not row:
        return "-"
    return f"{row['mean']:.1f}{ends_text(row['ci95'])}"


def _chains(score: Mapping[str, Any]) -> str:
    names = ("S_FC", "S_IC", "S_LRC", "cot_e")
    own = [score["run"].get("subject") or "this run", *(_number(score[name]) for name in names)]
    cot_e = score["cot_e"]
    own.append("-" if not cot_e else f"{cot_e['bounds'][0]:.1f} to {cot_e['bounds'][1]:.1f}")
    paper = [
        [f"{model}, paper", *(f"{value:.2f}" for value in row), "not said"]
        for model, row in TABLE_2.items()
    ]
    heads = ("", "S_FC", "S_IC", "S_LRC", "CoT_e", "if failures were 0, or 100")
    return _table(heads, [own, *paper], own=0)


def _beside(score: Mapping[str, Any]) -> str:
    titles = {
        "precision": "triples, precision",
        "recall": "triples, recall",
        "f1": "triples, F1 by harm",
        "right": "conclusions right, by rules",
        "agrees": "conclusions right, by the judge",
        "agrees_corrected": "the same, corrected for the judge's errors",
    }
    rows = [
        [title, _number(score[name]), str(score[name]["n"])]
        for name, title in titles.items()
        if score.get(name)
    ]
    return _table(("", "percent", "n"), rows)


def _subtasks(score: Mapping[str, Any]) -> str:
    rows = [
        [name.replace("_", " "), _number(row["cot_e"]), _number(row["f1"]),
         f"{row['judged']} of {row['n']}"]
        for name, row in score["subtasks"].items()
    ]  # fmt: skip
    return _table(("", "CoT_e", "F1 by harm", "judged"), rows)


def _conclusions(items: Sequence[Item]) -> str:
    score = score_items(items)
    names = [subtask for subtasks in SUBTASKS.values() for subtask in subtasks]
    rows = []
    for number, name in enumerate(names):
        row = score["subtasks"].get(name)
        own = ["-"] * 3
        if row:
            own = [f"{row['accuracy']:.1f}{ends_text(row['ci95'])}", f"{row['majority']:.1f}",
                   str(row["n"])]  # fmt: skip
        paper = [f"{TABLE_1[model][number]:.2f}" for model in _PAPER_MODELS]
        rows.append([name.replace("_", " "), *own, *paper])
    average = f"{score['average']:.1f}{ends_text(score['ci95'])}"
    means = [f"{fmean(TABLE_1[model]):.2f}" for model in _PAPER_MODELS]
    rows.append(["average", average, f"{score['majority']:.1f}", str(score["n"]), *means])
    heads = ("", "this run", "majority", "n", *(f"{model}, paper" for model in _PAPER_MODELS))
    return _table(heads, rows)


def _calibration(calibration: Mapping[str, Any] | None) -> str:
    if not calibration:
        return _section("Calibration of the judge", "This judge was not calibrated: do not "
                        "believe its marks.", "<p></p>")  # fmt: skip

    def cell(value: float | None) -> str:
        return "-" if value is None else f"{value:.3f}"

    rows = [
        [f"{row['group']}: {row['probe']}", str(row["n"]), cell(row["value"]),
         f"{cell(row['low'])} to {cell(row['high'])}", row["bar"],
         "met" if row["passed"] else "NOT MET"]
        for row in calibration["rows"]
    ]  # fmt: skip
    table = _table(("probe", "n", "value", "95 %", "bar", ""), rows, words=(0, 4, 5))
    return _section("Calibration of the judge", calibration_line(calibration), table)


def _silent(rows: Sequence[Judged]) -> str:
    shown = [row for row in rows if row.marks is None]
    cells = [[row.patient, row.subtask.replace("_", " "), row.state, row.why[:200]]
             for row in shown[:SHOWN]]  # fmt: skip
    more = len(shown) - len(cells)
    note = f'<p class="legend">and {more} more</p>' if more > 0 else ""
    return (
        _table(("patient", "subtask", "state", "why"), cells, words=(1, 2, 3)) + note
        if cells
        else ""
    )


def _lowest(rows: Sequence[Judged], items: Sequence[Item]) -> str:
    scored = [
        (row.scores.cot_e, row, item)
        for row, item in zip(rows, items, strict=True)
        if row.scores is not None
    ]
    scored.sort(key=lambda each: each[0])
    return "".join(_chain(*each) for each in scored[:SHOWN])


def _chain(cot_e: float, row: Judged, item: Item) -> str:
    marks = ", ".join(
        f"{name.replace('_', ' ')} {mark}" for name, mark in (row.marks or {}).items()
    )
    f1 = row.weights.f1 if row.weights else None
    score = f"CoT_e {cot_e:g}" + ("" if f1 is None else f", F1 {f1:.0f}")
    return f"""<details><summary class="free-text">{escape(score)}: {escape(item.question)}
({escape(row.patient)})</summary>
<p class="legend free-text">{escape(marks)}</p>
<p class="free-text"><b>Chain</b> {escape(item.chain or item.answer)}</p>
<p class="free-text"><b>Truth</b> {escape(item.reference)}</p>
<p class="legend free-text">read as {escape(" ".join(row.said) or "nothing")}</p></details>"""
