"""Two runs on the same questions: differences with intervals, and p values over patients.

The average is the primary end, and not corrected. The subtasks of Table 1 are one claim and the
organs of Table 6 another: within each, p values are corrected by Holm's method.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from tumorchain_jax.data.schema import SUBTASKS
from tumorchain_jax.evaluation.bootstrap import TOO_FEW, ends_cells, interval_if_enough, resampled
from tumorchain_jax.evaluation.items import Item
from tumorchain_jax.evaluation.score import TABLE_6, asked, check_same_questions
from tumorchain_jax.evaluation.statistics import holm, mcnemar, sign_flip

_SUBTASKS = [subtask for subtasks in SUBTASKS.values() for subtask in subtasks]


def compare(a: Sequence[Item], b: Sequence[Item]) -> dict[str, Any]:
    """Compare run `a` with run `b`; differences are `a` minus `b`, in points of percent.

    Returns:
        `a`, `b`: the averages over the subtasks that were asked; `difference`, `ci95` (bootstrap
        over patients), `p` (sign flips of patients), `n`, `patients`. `subtasks` and `organs`: the
        same by subtask (Table 1) and, of the reports, by organ (Table 6), with `p_holm`, the
        numbers of questions that one run alone has right (`only_a`, `only_b`), and `p_mcnemar`,
        None unless each patient has one question.

    Raises:
        InputError: not the same questions to the same patients.
    """
    check_same_questions(a, b)
    pairs = _pairs(a, b)
    by_subtask = {name: [pair for pair in pairs if pair[0].subtask == name] for name in _SUBTASKS}
    reports = by_subtask["cot_report"]
    by_organ = {name: [pair for pair in reports if pair[0].organ == name] for name in TABLE_6}
    subtasks = {name: group for name, group in by_subtask.items() if group}
    organs = {name: group for name, group in by_organ.items() if group}
    return {
        **_row(list(subtasks.values())),
        "subtasks": _claim(subtasks),
        "organs": _claim(organs),
    }


def _pairs(a: Sequence[Item], b: Sequence[Item]) -> list[tuple[Item, Item]]:
    """Pair the answers to the same question; repeated ones in their order."""
    places: dict[tuple[object, ...], list[Item]] = {}
    for item in b:
        places.setdefault(asked(item), []).append(item)
    return [(item, places[asked(item)].pop(0)) for item in a]


def _claim(groups: Mapping[str, Sequence[tuple[Item, Item]]]) -> dict[str, Any]:
    rows = {name: _row([group]) | _discordant(group) for name, group in groups.items()}
    corrected = holm({name: row["p"] for name, row in rows.items()})
    return {name: row | {"p_holm": _rounded_p(corrected[name])} for name, row in rows.items()}


def _row(groups: Sequence[Sequence[tuple[Item, Item]]]) -> dict[str, Any]:
    """Compare the mean over groups of the share of right answers in each."""
    patients = sorted({a.patient for group in groups for a, _ in group})
    rows = {patient: row for row, patient in enumerate(patients)}
    n, of_a, of_b = np.zeros((3, len(patients), len(groups)))
    for column, group in enumerate(groups):
        for a, b in group:
            where = rows[a.patient], column
            n[where] += 1
            of_a[where] += a.right
            of_b[where] += b.right
    times = resampled(len(patients))
    with np.errstate(invalid="ignore"):  # nan where a draw has nobody of a rare group
        draws = np.nanmean(100 * (times @ (of_a - of_b)) / (times @ n), axis=1)
    whole = n.sum(axis=0)
    parts = ((of_a - of_b) / whole).sum(axis=1)
    ends = interval_if_enough(draws, len(patients))
    return {
        "a": _percent(of_a, whole),
        "b": _percent(of_b, whole),
        "difference": round(float(draws[0]), 2),
        "ci95": ends and [round(limit, 2) for limit in ends],
        "p": _rounded_p(sign_flip(parts)),
        "n": int(whole.sum()),
        "patients": len(patients),
    }


def _percent(right: Float[np.ndarray, "P G"], whole: Float[np.ndarray, " G"]) -> float:
    return round(float(np.mean(100 * right.sum(axis=0) / whole)), 2)


def _discordant(group: Sequence[tuple[Item, Item]]) -> dict[str, Any]:
    only_a = sum(a.right and not b.right for a, b in group)
    only_b = sum(b.right and not a.right for a, b in group)
    each_once = max(Counter(a.patient for a, _ in group).values()) == 1
    p = _rounded_p(mcnemar(only_a, only_b)) if each_once else None
    return {"only_a": only_a, "only_b": only_b, "p_mcnemar": p}


def _rounded_p(p: float) -> float:
    return float(f"{p:.3g}")


def compare_text(values: Mapping[str, Any], names: tuple[str, str]) -> str:
    """Format what `compare` returns as text."""
    head = f"{'':<22}{'A %':>8}{'B %':>8}{'A - B':>8}{'95 % from':>11}{'to':>8}{'p':>9}"
    lines = [
        f"A: {names[0]}",
        f"B: {names[1]}",
        f"{values['patients']} patients, {values['n']} questions; p by sign flips of patients, "
        "intervals by bootstrap over patients",
        *([] if values["ci95"] else [TOO_FEW]),
        "",
        f"{head}{'p Holm':>9}{'A alone':>9}{'B alone':>9}{'McNemar':>9}{'n':>7}",
        _line("average", values),
    ]
    for title in ("subtasks", "organs"):
        lines += [_line(name, row) for name, row in values[title].items()]
    return "\n".join(lines)


def _line(name: str, row: Mapping[str, Any]) -> str:
    low, high = ends_cells(row["ci95"], 11, 8, digits=2)
    cells = f"{name:<22}{row['a']:>8.1f}{row['b']:>8.1f}{row['difference']:>8.2f}{low}{high}"
    cells += f"{row['p']:>9.3g}{_or_dash(row.get('p_holm')):>9}"
    cells += f"{_or_dash(row.get('only_a')):>9}{_or_dash(row.get('only_b')):>9}"
    return f"{cells}{_or_dash(row.get('p_mcnemar')):>9}{row['n']:>7}"


def _or_dash(value: float | int | None) -> str:
    return "-" if value is None else f"{value:.3g}"
