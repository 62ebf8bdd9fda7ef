"""A score as text, in the form of the paper's Tables 1 and 6."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from tumorchain_jax.anatomy.organs import ORGANS, display_name
from tumorchain_jax.evaluation.bootstrap import TOO_FEW, ends_text
from tumorchain_jax.evaluation.score import TABLE_6

LABEL, CELL, ORGAN_CELL = 14, 8, 11
# Heads of the columns: group, subtask of Table 1, its name there.
_TABLE_1 = (
    ("Position", "organ_position", "organ"),
    ("Position", "tumor_position", "tumor"),
    ("Lesion attributes", "segment_localization", "segm."),
    ("Lesion attributes", "shape", "shape"),
    ("Lesion attributes", "boundary", "bound."),
    ("Lesion attributes", "density", "density"),
    ("Lesion attributes", "count", "count"),
    ("Lesion attributes", "others", "others"),
    ("TNM prediction", "tumor", "tumor"),
    ("TNM prediction", "node", "node"),
    ("TNM prediction", "metastasis", "met."),
    ("CoT", "cot_report", "report"),
)


def table(score: Mapping[str, Any]) -> str:
    """Table 1: a column for each subtask, `-` where nothing was asked, and one for the average."""
    groups = ((name, len(list(columns))) for name, columns in groupby(_TABLE_1, lambda c: c[0]))
    spans = "".join(f"  {name:<{CELL * width - 2}}" for name, width in groups)
    columns = [score["subtasks"].get(subtask) for _, subtask, _ in _TABLE_1]
    average = {**score, "accuracy": score["average"]}
    heads = [name for _, _, name in _TABLE_1]
    lines = _lines([*heads, "average"], [*columns, average], CELL, ("majority", "text_only"))
    return "\n".join([f"{'':<{LABEL}}{spans}".rstrip(), *lines])


def organ_table(score: Mapping[str, Any]) -> str:
    """Table 6: accuracy of the reports on the tumours of each organ, and the average."""
    columns = [score["organs"].get(organ) for organ in TABLE_6]
    heads = [display_name(ORGANS.index(organ)) for organ in TABLE_6]
    average = {"accuracy": score["organ_average"]}
    return "\n".join(_lines([*heads, "average"], [*columns, average], ORGAN_CELL))


def summary_text(summary: Mapping[str, Any]) -> str:
    """Format what `evaluation/score.py: summary` returns as text."""
    patients = f"{summary['patients']} patients with made-up tumours, accuracy in percent"
    lines = [f"{patients}; text only: about another patient's scan", "", table(summary), ""]
    if not summary["ci95"]:
        lines.insert(1, TOO_FEW)
    if summary["organs"]:
        lines += ["Reports by organ of the tumour", organ_table(summary), ""]
    for form, row in summary["tumour_organ"].items():
        if row:
            lines.append(f"organ of the tumour, {form.replace('_', ' ')}: {_accuracy(row)}")
    for size, row in summary.get("tumour_organ_by_size", {}).items():
        lines.append(f"organ of a tumour of {size}: {_accuracy(row)}")
    return "\n".join([*lines, *_selective_lines(summary["selective"])])


def _selective_lines(row: Mapping[str, Any]) -> list[str]:
    """How many answers were given, how good they are, and how good their confidence is."""
    reasons = ", ".join(f"{name} {n}" for name, n in row["withheld"].items()) or "none"
    of_what = "calibrated confidence" if row["calibrated"] else "plain probability, not calibrated"
    return [
        f"answered: {_with_interval(row['coverage'])} % of {row['n']}; withheld: {reasons}",
        f"accuracy of the answered: {_with_interval(row['accuracy_answered'])}, "
        f"n {row['answered']}",
        f"accuracy at 80 % coverage: {_with_interval(row['accuracy_at_80'])}, n {row['n']} "
        f"({of_what})",
        f"expected calibration error: {_with_interval(row['ece'])}, n {row['with_confidence']} "
        f"({of_what})",
    ]


def _with_interval(values: Sequence[float] | None) -> str:
    return "-" if values is None else f"{values[0]:.1f}{ends_text(values[1:])}"


def _accuracy(row: Mapping[str, Any]) -> str:
    baselines = f"majority {row['majority']}, text only {row['text_only']}"
    return f"{row['accuracy']}{ends_text(row['ci95'])}, n {row['n']}, {baselines}"


def _lines(
    heads: Sequence[str],
    columns: Sequence[Mapping[str, Any] | None],
    width: int,
    baselines: Sequence[str] = (),
) -> list[str]:
    rows: dict[str, list[Any]] = {"": list(heads)}
    rows["accuracy"] = [_value(column, "accuracy") for column in columns]
    for bound, name in enumerate(("95 % from", "to")):
        rows[name] = [_value(column, "ci95", bound) for column in columns]
    for name in (*baselines, "n"):
        rows[name.replace("_", " ")] = [_value(column, name) for column in columns]
    return [
        f"{name:<{LABEL}}" + "".join(f"{cell:>{width}}" for cell in cells)
        for name, cells in rows.items()
    ]


def _value(column: Mapping[str, Any] | None, name: str, part: int | None = None) -> str:
    value = column.get(name) if column else None
    if value is None:
        return "-"
    value = value if part is None else value[part]
    return f"{value:.1f}" if isinstance(value, float) else str(value)
