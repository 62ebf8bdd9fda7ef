"""Scores of DeepTumorVQA as text, each with version, format, rules and what was read."""

from collections.abc import Mapping, Sequence
from typing import Any

from tumorchain_jax.evaluation.plot import bar_chart

TITLE = 30
"""Characters of a model's name in a chart."""
_NAMES = {"fixed": "fixed rules", "upstream": "upstream's rules", "v1": "version 1's rules"}


def document_text(document: Mapping[str, Any]) -> str:
    """Describe a scored document: a heading and a table for each rule set, never side by side."""
    sections = [_heading(document, rules) + text for rules, text in _tables(document)]
    return "\n\n".join(sections)


def _heading(document: Mapping[str, Any], rules: str) -> str:
    questions, answers = document["questions"], document["answers"]
    synthetic = " on SYNTHETIC patients" if document["synthetic"] else ""
    lines = [
        f"{document['benchmark']} {document['version']}{synthetic}, {document['format']}, "
        f"{_NAMES[rules]}; model: {document['model']}; input: {document['input']}",
        f"questions {questions['file']} ({questions['n']}), sha256 {questions['sha256']}",
        f"answers   {answers['file']} ({answers['n']}), sha256 {answers['sha256']}",
    ]
    if answers["n"] < questions["n"]:
        lines.append(f"PARTIAL: {answers['n']} of {questions['n']} questions have an answer")
    return "\n".join(lines) + "\n"


def _tables(document: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    writers = {"fixed": _fixed, "upstream": _upstream, "v1": _v1}
    return [(rules, writers[rules](found)) for rules, found in document["scores"].items()]


def _fixed(score: Mapping[str, Any]) -> str:
    why = ", ".join(f"{name} {n}" for name, n in score["abstained"].items())
    lines = [f"{score['n_answered']} answered of {score['n_asked']}" + (f" ({why})" if why else "")]
    if score["bad_truth"]:
        lines.append(f"{score['bad_truth']} questions left out: their own answer cannot be read")
    if not score["n_asked"]:
        return "\n".join(lines)
    head = ("", "n", "CTs", "of asked", "95 % interval", "of answered", "answered")
    rows: list[tuple[str, ...]] = [(*head, "chance", "majority")]
    rows.append(_row("micro (questions)", score["micro"]))
    if unfit := score.get("not_answerable"):
        whys = ", ".join(f"{why} {n}" for why, n in unfit.items())
        lines.append(f"not answerable from this input, no skill: {whys}")
        if score["answerable"]:
            rows.append(_row("micro, answerable ones alone", score["answerable"]))
    macro = score["macro"]
    name = f"macro ({macro['subtypes']} subtypes)"
    rows.append((name, "", "", _share(macro["of_asked"]), _ends(macro["ci95"]), *[""] * 4))
    rows += [_row(name, row) for name, row in score["by_type"].items()]
    rows += [_row(f"  {name}", row) for name, row in score["by_subtype"].items()]
    lines += _aligned(rows)
    numeric = [
        (f"  {name}", row) for name, row in score["by_subtype"].items() if row.get("tolerance")
    ]
    if numeric:
        lines += [
            "",
            "numbers: share of asked within 5, 10, 20, 50 %, exact, MRA of version 1; error",
        ]
        table = [
            (
                name,
                *map(_share, row["tolerance"].values()),
                _share(row["exact"]),
                _share(row["mra10"]),
                f"{_error(row['mean_absolute_error'])} {row['unit']}".rstrip(),
            )
            for name, row in numeric
        ]
        lines += _aligned(table)
    return "\n".join(lines)


def _row(name: str, row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        name,
        str(row["n"]),
        str(row["images"]),
        _share(row["of_asked"]),
        _ends(row["ci95"]),
        _share(row["of_answered"]),
        _share(row["answered"]),
        _share(row.get("chance")),
        _share(row.get("majority")),
    )


def _upstream(score: Mapping[str, Any]) -> str:
    overall = score["overall"]
    rows = [("overall (micro)", str(overall["n_total"]), _share(100 * overall["accuracy"]))]
    rows += [
        (name, str(row["n_total"]), _share(100 * row["accuracy"]))
        for name, row in score["by_super_type"].items()
    ]
    rows += [
        (f"  {name}", str(row["n_total"]), _share(100 * row.get("mean_mra", row.get("accuracy"))))
        for name, row in score["by_subtype"].items()
    ]
    return "\n".join(_aligned(rows))


def _v1(score: Mapping[str, Any]) -> str:
    rows = [("overall (macro)", "", _share(score["macro"]))]
    rows += [(name, "", _share(value)) for name, value in score["by_type"].items()]
    rows += [
        (f"  {name}", str(row["n"]), _share(row["value"]))
        for name, row in score["by_subtype"].items()
    ]
    return "\n".join(_aligned(rows))


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if number == 0 else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _ends(ends: Sequence[float] | None) -> str:
    return "-" if ends is None else f"{ends[0]:.1f} to {ends[1]:.1f}"


def _error(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def chart(document: Mapping[str, Any]) -> str:
    """Draw the default rules' score by type, with intervals and majority, as SVG."""
    score = document["scores"]["fixed"]
    rows = {name: _bar(row) for name, row in score["by_type"].items()}
    micro = _bar(score["micro"])
    synthetic = " (SYNTHETIC)" if document["synthetic"] else ""
    about = f"{document['version']}{synthetic}, {document['format']}, fixed rules"
    title = f"{document['benchmark']} {about}: {document['model'][:TITLE]}"
    return bar_chart({**micro, "average": micro["accuracy"], "subtasks": rows}, title)


def _bar(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "accuracy": row["of_asked"],
        "ci95": row["ci95"],
        "n": row["n"],
        "majority": row["majority"],
        "text_only": None,
    }
