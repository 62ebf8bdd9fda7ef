"""Two judged runs on the same questions: differences of CoT_e, where the judge allows them."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.bootstrap import (
    TOO_FEW,
    ends_cells,
    interval_if_enough,
    patient_rows,
    resampled,
)
from tumorchain_jax.evaluation.chain.judged import Judged
from tumorchain_jax.evaluation.chain.score import (
    LEVEL_NAMES,
    MOST_APART,
    MOST_FAILURES,
    cot_e,
    level_score,
)
from tumorchain_jax.evaluation.chain.verdict import FAILED
from tumorchain_jax.evaluation.statistics import holm, sign_flip


def compare_judged(a: Sequence[Judged], b: Sequence[Judged]) -> dict[str, Any]:
    """Compare CoT_e (the primary end) and its levels (corrected by Holm) of two runs.

    Chains that are judged in both runs are compared.

    Returns:
        `usable`, and `why` not: failures over 2 % in a run, or more than 1 point apart;
        `failed`: percent in each; `cot_e` and the levels: `a`, `b`, `difference`, `ci95`, `p`, `n`.

    Raises:
        InputError: not the same questions to the same patients.
    """
    if not a or {row.key for row in a} != {row.key for row in b}:
        found = f"{len(a)} and {len(b)}, not the same"
        raise InputError("two runs", "chains", found, "the same questions to the same patients",
                         "judge the same items of both")  # fmt: skip
    of_b = {row.key: row for row in b}
    pairs = [(row, of_b[row.key]) for row in a]
    failed = [100 * sum(row.state == FAILED for row in run) / len(run) for run in (a, b)]
    why = []
    if max(failed) > MOST_FAILURES:
        why.append(f"over {MOST_FAILURES:g} % failed")
    if abs(failed[0] - failed[1]) > MOST_APART:
        why.append(f"failures more than {MOST_APART:g} point apart")
    known = [(x, y) for x, y in pairs if x.scores and y.scores]
    if not known:
        why.append("no chain was judged in both")
    rows: dict[str, Any] = {}
    if known:
        rows["cot_e"] = _row(known, cot_e)
        for level, name in LEVEL_NAMES.items():
            rows[name] = _row(known, partial(level_score, level))
        corrected = holm({name: rows[name]["p"] for name in LEVEL_NAMES.values()})
        for name, p in corrected.items():
            rows[name]["p_holm"] = float(f"{p:.3g}")
    return {
        "usable": not why,
        "why": why,
        "failed": [round(percent, 2) for percent in failed],
        "asked": len(a),
        **rows,
    }


def _row(
    pairs: Sequence[tuple[Judged, Judged]], value: Callable[[Judged], float | None]
) -> dict[str, Any]:
    of_a, of_b = (np.array([value(pair[side]) for pair in pairs], float) for side in (0, 1))
    patients = patient_rows([a.patient for a, _ in pairs])
    sums, n = np.bincount(patients, of_a - of_b), np.bincount(patients)
    times = resampled(len(n))
    draws = (times @ sums) / (times @ n)
    ends = interval_if_enough(draws, len(n))
    return {
        "a": round(float(of_a.mean()), 2),
        "b": round(float(of_b.mean()), 2),
        "difference": round(float(draws[0]), 2),
        "ci95": ends and [round(limit, 2) for limit in ends],
        "p": float(f"{sign_flip(sums):.3g}"),
        "n": len(pairs),
        "patients": len(n),
    }


def judged_text(values: Mapping[str, Any], names: tuple[str, str]) -> str:
    """Format what `compare_judged` returns as text."""
    failed_a, failed_b = values["failed"]
    lines = [f"A: {names[0]}, {failed_a:g} % failed", f"B: {names[1]}, {failed_b:g} % failed"]
    if not values["usable"]:
        lines.append(f"UNUSABLE: {'; '.join(values['why'])}")
    lines.append(f"{'':<8}{'A':>8}{'B':>8}{'A - B':>8}{'95 % from':>11}{'to':>8}{'p':>9}{'n':>7}")
    for name in ("cot_e", *LEVEL_NAMES.values()):
        if row := values.get(name):
            low, high = ends_cells(row["ci95"], 11, 8, digits=2)
            p = row.get("p_holm", row["p"])
            lines.append(f"{name:<8}{row['a']:>8.1f}{row['b']:>8.1f}{row['difference']:>8.2f}"
                         f"{low}{high}{p:>9.3g}{row['n']:>7}")  # fmt: skip
    if "cot_e" in values and not values["cot_e"]["ci95"]:
        lines.append(TOO_FEW)
    return "\n".join([*lines, "p by sign flips of patients; of the levels corrected by Holm"])
