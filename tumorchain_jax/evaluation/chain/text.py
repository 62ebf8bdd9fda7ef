"""Scores of judged chains and calibrations of a judge as text."""

from collections.abc import Mapping
from typing import Any

from tumorchain_jax.evaluation.bootstrap import TOO_FEW, ends_cells
from tumorchain_jax.evaluation.chain.bars import Calibration, too_few
from tumorchain_jax.evaluation.chain.score import MOST_FAILURES

_ROWS = {
    "cot_e": "CoT_e",
    "S_FC": "  S_FC  (findings, .3)",
    "S_IC": "  S_IC  (impressions, .3)",
    "S_LRC": "  S_LRC (long reasoning, .4)",
    "precision": "triples: precision",
    "recall": "triples: recall",
    "f1": "triples: F1 by harm",
    "right": "conclusion right, by rules",
    "agrees": "conclusion right, by judge",
    "agrees_corrected": "  corrected for its errors",
}


def score_text(score: Mapping[str, Any]) -> str:
    """Format what `score` returns."""
    run = score["run"]
    lines = [
        f"judge: {run['judge']}, {calibration_line(run.get('calibration'))}",
        headline(score),
        f"{'':<30}{'mean':>8}{'95 % from':>11}{'to':>8}{'n':>7}{'failed 0':>10}{'or 100':>8}"
        f"{'of all':>8}",
    ]
    for name, title in _ROWS.items():
        if row := score.get(name):
            low, high = ends_cells(row["ci95"], 11, 8)
            bounds = row.get("bounds", ("", ""))
            cells = f"{title:<30}{row['mean']:>8.1f}{low}{high}{row['n']:>7}"
            cells += "".join(f"{bound:>{w}}" for bound, w in zip(bounds, (10, 8), strict=True))
            lines.append(f"{cells}{row.get('of_all_asked', ''):>8}")
    if (f1 := score.get("f1")) and not f1["ci95"]:
        lines.append(TOO_FEW)
    lines += ["", f"{'subtask':<24}{'CoT_e':>8}{'F1':>8}{'judged':>8}{'n':>7}"]
    for name, row in score["subtasks"].items():
        cot_e, f1 = (_mean(row[key]) for key in ("cot_e", "f1"))
        lines.append(f"{name:<24}{cot_e:>8}{f1:>8}{row['judged']:>8}{row['n']:>7}")
    return "\n".join(lines)


def headline(score: Mapping[str, Any]) -> str:
    """Count what was asked, answered, judged and what not, and why."""
    parts = [f"{score['asked']} asked of {score['patients']} patients"]
    parts += [f"{score['answered']} answered", f"{score['judged']} judged"]
    for name in ("abstained", "failed"):
        reasons = ", ".join(f"{why} {n}" for why, n in score[name]["why"].items())
        parts.append(f"{score[name]['n']} {name}" + (f" ({reasons})" if reasons else ""))
    if score["sums_that_differ"]:
        parts.append(f"{score['sums_that_differ']} sums of the judge's own differ from its marks")
    line = ", ".join(parts)
    if score["usable"]:
        return line
    if not score["judged"]:
        return f"{line}: UNUSABLE, 0 judged"
    return f"{line}: UNUSABLE, over {MOST_FAILURES:g} % failed"


def calibration_line(calibration: Mapping[str, Any] | None) -> str:
    """Say whether a judge was calibrated, and how it did."""
    if not calibration:
        return "NOT CALIBRATED"
    failed = [row["probe"] for row in calibration["rows"] if not row["passed"]]
    n = calibration["phantoms"]
    if failed:
        return f"calibrated on {n} phantoms, FAILS {len(failed)} bars: {', '.join(failed)}"
    return f"calibrated on {n} phantoms, passes all {len(calibration['rows'])} bars"


def calibration_text(calibration: Calibration) -> str:
    """Format a calibration as a table."""
    first, last = calibration.seeds
    lines = [
        f"judge: {calibration.judge}; truths {first} to {last}; {calibration.judged} judged, "
        f"{calibration.failed} failed",
        f"{'probe':<58}{'n':>5}{'failed':>8}{'value':>8}{'95 % from':>11}{'to':>8}  bar",
    ]
    group = ""
    for row in calibration.rows:
        if row.group != group:
            group = row.group
            lines.append(group)
        numbers = "".join(
            f"{'-' if value is None else format(value, '.3f'):>{width}}"
            for value, width in ((row.value, 8), (row.low, 11), (row.high, 8))
        )
        lines.append(
            f"  {row.probe:<56}{row.n:>5}{row.failed:>8}{numbers}  "
            f"{'ok  ' if row.passed else 'FAIL'} {row.bar}"
        )
    binary, length = calibration.binary, calibration.length
    if binary.get("n_right") and binary.get("n_wrong"):
        lines.append(
            f"short answers: {binary['called_right_of_right']} of {binary['n_right']} right ones "
            f"called right, {binary['called_right_of_wrong']} of {binary['n_wrong']} wrong ones"
        )
    if length is not None:
        lines.append(f"rank correlation of CoT_e of right reports with their length: {length:.2f}")
    if not calibration.judged:
        lines.append("0 judged")
    passed = sum(row.passed for row in calibration.rows)
    verdict = "PASSED" if calibration.passed else "NOT PASSED"
    lines.append(f"{passed} of {len(calibration.rows)} bars met: {verdict}")
    if note := too_few(calibration.phantoms):
        lines.append(note)
    return "\n".join(lines)


def _mean(row: Mapping[str, Any] | None) -> str:
    return f"{row['mean']:.1f}" if row else "-"
