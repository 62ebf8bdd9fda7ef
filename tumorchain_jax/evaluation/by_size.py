"""Two models about the same patients: paired differences in accuracy by the size of the tumour."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.answers import YES_NO
from tumorchain_jax.evaluation.bootstrap import ends_cells
from tumorchain_jax.evaluation.items import Item
from tumorchain_jax.evaluation.score import asked, paired_difference
from tumorchain_jax.reasoning.answer_values import NONE

# Diameters (mm) from and below which the organ of a tumour is compared.
SIZES_MM = ((0.0, 10.0), (10.0, 20.0), (20.0, 40.0), (10.0, 40.0), (40.0, inf))


def differences(a: Sequence[Item], b: Sequence[Item]) -> dict[str, Any]:
    """Accuracy of run `a` minus that of run `b`, where both were asked the same.

    Models of other grids see other organs, so that a few questions differ; they are left out. Of
    the open question which organ holds the tumour, wordings count as one.

    Returns:
        by group of questions, what `paired_difference` returns and the accuracies of `a` and `b`:
        all of them, which organ, and this by the tumour's size. `left_out`: questions of one run.

    Raises:
        InputError: no question was asked in both.
    """
    run_a, run_b = list(map(_one_wording, a)), list(map(_one_wording, b))
    common = Counter(map(asked, run_a)) & Counter(map(asked, run_b))
    if not common:
        expected = "questions that both were asked"
        raise InputError("two runs", "items", "none in common", expected, "evaluate both alike")
    run_a, run_b = _only(run_a, common), _only(run_b, common)
    size = {item.patient: item.tumour_mm for item in run_a if item.tumour_mm is not None}
    of_organ = {item.patient for item in run_a if _is_which_organ(item)}
    groups: dict[str, set[str]] = {"which organ": of_organ}
    for low, high in SIZES_MM:
        name = f"which organ, {low:g}-{high:g} mm" if high < inf else f"which organ, {low:g}+ mm"
        groups[name] = {who for who in of_organ & size.keys() if low <= size[who] < high}
    rows = {"all questions": _row(run_a, run_b)}
    for name, patients in groups.items():
        of_a, of_b = (
            [item for item in run if _is_which_organ(item) and item.patient in patients]
            for run in (run_a, run_b)
        )
        if of_a:
            rows[name] = _row(of_a, of_b)
    return {"rows": rows, "left_out": len(a) + len(b) - len(run_a) - len(run_b)}


def differences_text(found: dict[str, Any]) -> str:
    """Format what `differences` returns."""
    lines = [
        "Accuracy in percent, and the paired difference with 95 % intervals over patients; "
        f"{found['left_out']} questions of one run alone are left out",
        f"\n{'':<24}{'first':>8}{'minus':>8}{'points':>8}{'95 % from':>11}{'to':>8}{'n':>7}",
    ]
    for name, row in found["rows"].items():
        low, high = ends_cells(row["ci95"], 11, 8)
        lines.append(
            f"{name:<24}{row['a']:>8.1f}{row['b']:>8.1f}{row['difference']:>8.1f}"
            f"{low}{high}{row['n']:>7}"
        )
    return "\n".join(lines)


def _is_which_organ(item: Item) -> bool:
    of_organ = item.subtask == "tumor_position" and item.truth not in (*YES_NO, NONE)
    return of_organ and not item.choices


def _one_wording(item: Item) -> Item:
    return replace(item, question="which organ") if _is_which_organ(item) else item


def _only(items: Sequence[Item], common: Counter[tuple[object, ...]]) -> list[Item]:
    """The items whose question both runs were asked, as often as both were."""
    rest, chosen = Counter(common), []
    for item in items:
        if rest[asked(item)] > 0:
            rest[asked(item)] -= 1
            chosen.append(item)
    return chosen


def _row(a: Sequence[Item], b: Sequence[Item]) -> dict[str, Any]:
    return paired_difference(a, b) | {"a": _accuracy(a), "b": _accuracy(b)}


def _accuracy(items: Sequence[Item]) -> float:
    return round(100 * sum(item.right for item in items) / len(items), 1)
