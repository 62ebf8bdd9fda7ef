"""`tumorchain judge agree`: several judges of the same chains, and how far they agree.

One judge says as much about itself as about the chains. Judges of two families, and the median of
their marks, say more; Krippendorff's alpha (ordinal) says how far the marks are more than a taste.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.json_fields import read_json
from tumorchain_jax.evaluation.agreement import pair, raters
from tumorchain_jax.evaluation.auc import Estimate
from tumorchain_jax.evaluation.bootstrap import (
    FEWEST_PATIENTS,
    TOO_FEW,
    ends_cells,
    ends_text,
    patient_rows,
    resampled,
)
from tumorchain_jax.evaluation.chain.compare import compare_judged
from tumorchain_jax.evaluation.chain.judged import Judged, read_judged
from tumorchain_jax.evaluation.chain.rubric import NAMES
from tumorchain_jax.evaluation.chain.run import ROWS, SCORE
from tumorchain_jax.evaluation.chain.score import score
from tumorchain_jax.evaluation.statistics import mean_interval
from tumorchain_jax.llm.endpoint import families_of

_HINT = "name folders that `tumorchain judge -o` wrote of one items.jsonl"


@dataclass(frozen=True)
class JudgedRun:
    """What one judge made of the chains.

    Attributes:
        judge: its name.
        items: sha256 of the items.
        rows: of each chain.
    """

    judge: str
    items: str
    rows: tuple[Judged, ...]


def read_run(folder: Path) -> JudgedRun:
    """Read a folder of `tumorchain judge`.

    Raises:
        InputError: it is none.
    """
    run = read_json(folder / SCORE, _HINT).get("run")
    judge, items = (run.get("judge"), run.get("items")) if isinstance(run, dict) else ("", "")
    if not (isinstance(judge, str) and isinstance(items, str) and judge and items):
        raise InputError(folder / SCORE, "run", repr(run)[:80], "judge and items", _HINT)
    return JudgedRun(judge, items, tuple(read_judged(folder / ROWS)))


def agree(runs: Sequence[JudgedRun]) -> dict[str, Any]:
    """Compare judges of the same chains.

    Returns:
        `judges`: `name`, `family`, `failed` (percent), `cot_e` of each; `families`: how many;
        `median`: CoT_e by the median of the judges' marks, of the chains that all marked: `mean`,
        `ci95`, `n`; `alpha`: Krippendorff's ordinal alpha of each dimension and of CoT_e over the
        chains that two or more marked: `value`, `ci95`; `pairs`: of each two judges, `difference`
        of CoT_e with `ci95` and `p`, `usable`, and `kappa` on right conclusions.

    Raises:
        InputError: fewer than two judges, one of them twice, or not the same chains.
    """
    _check(runs)
    whole = [score(run.rows, {}) for run in runs]
    rows = [{row.key: row for row in run.rows} for run in runs]
    keys = list(rows[0])
    patients = [rows[0][key].patient for key in keys]
    marks = np.array([[_marks(of_judge[key]) for key in keys] for of_judge in rows])
    families = [sorted(families_of(run.judge.partition(", prompt ")[0])) for run in runs]
    return {
        "judges": [
            {
                "name": run.judge,
                "family": " ".join(family),
                "failed": values["failed_percent"],
                "cot_e": values["cot_e"],
            }
            for run, family, values in zip(runs, families, whole, strict=True)
        ],
        "families": len({tuple(family) for family in families}),
        "asked": len(keys),
        "patients": len(set(patients)),
        "marked_by_all": int((~np.isnan(marks[..., 0])).all(axis=0).sum()),
        "median": _median(marks, patients),
        "alpha": {
            **{name: _alpha(marks[..., n], patients) for n, name in enumerate(NAMES)},
            "cot_e": _alpha(marks.sum(axis=2), patients),
        },
        "pairs": [
            {"judges": [a, b], **_pair(runs[a].rows, runs[b].rows)}
            for a, b in combinations(range(len(runs)), 2)
        ],
    }


def _check(runs: Sequence[JudgedRun]) -> None:
    if len(runs) < 2:
        raise InputError("judges", "folders", str(len(runs)), "two or more", _HINT)
    first = runs[0]
    for number, run in enumerate(runs[1:], 1):
        if run.judge in [before.judge for before in runs[:number]]:
            raise InputError("judges", "judge", f"{run.judge} twice", "different judges", _HINT)
        same = {row.key for row in run.rows} == {row.key for row in first.rows}
        if run.items != first.items or not same:
            expected = f"the chains that {first.judge} judged"
            raise InputError("judges", "items", f"others by {run.judge}", expected, _HINT)


def _marks(row: Judged) -> list[float]:
    return [float(row.marks[name]) if row.marks else np.nan for name in NAMES]


def _alpha(ratings: Float[np.ndarray, "J N"], patients: Sequence[str]) -> dict[str, Any]:
    if (~np.isnan(ratings)).sum(axis=0).max(initial=0) < 2:
        return {"value": None, "ci95": None}
    return _plain(raters(ratings, patients), len(set(patients)))


def _plain(found: Estimate, patients: int) -> dict[str, Any]:
    value = None if isnan(found.value) else round(found.value, 3)
    if value is None or patients < FEWEST_PATIENTS or any(map(isnan, found.ci95)):
        return {"value": value, "ci95": None}
    return {"value": value, "ci95": [round(end, 3) for end in found.ci95]}


def _median(marks: Float[np.ndarray, "J N D"], patients: Sequence[str]) -> dict[str, Any] | None:
    both = ~np.isnan(marks[..., 0]).any(axis=0)
    if not both.any():
        return None
    cot_e = np.median(marks[:, both], axis=0).sum(axis=1)
    rows = patient_rows([each for each, known in zip(patients, both, strict=True) if known])
    sums, n = np.bincount(rows, cot_e), np.bincount(rows).astype(float)
    times = resampled(len(n))
    ends = mean_interval(sums, n, (times @ sums) / (times @ n), 100.0)
    mean = round(float(cot_e.mean()), 2)
    return {"mean": mean, "ci95": [round(end, 2) for end in ends], "n": int(both.sum())}


def _pair(a: Sequence[Judged], b: Sequence[Judged]) -> dict[str, Any]:
    found = compare_judged(a, b)
    row = found.get("cot_e") or {}
    values = {name: row.get(name) for name in ("difference", "ci95", "p", "n")}
    of_b = {each.key: each for each in b}
    known = [
        (each.patient, str(each.agrees), str(of_b[each.key].agrees))
        for each in a
        if each.agrees is not None and of_b[each.key].agrees is not None
    ]
    kappa = None
    if known:
        who, first, second = zip(*known, strict=True)
        kappa = _plain(pair(first, second, ("True", "False"), who)["kappa"], len(set(who)))
    return {**values, "usable": found["usable"], "kappa": kappa}


def agree_text(values: Mapping[str, Any]) -> str:
    """Format what `agree` returns."""
    lines = [
        f"{values['asked']} chains of {values['patients']} patients, {values['marked_by_all']} "
        f"marked by all of {len(values['judges'])} judges",
    ]
    if values["families"] < 2:
        lines.append("ONE FAMILY: these judges may share their errors; take one of another family")
    lines.append(
        f"{'judge':<50}{'family':>10}{'failed %':>10}{'CoT_e':>8}{'95 % from':>11}{'to':>8}"
    )
    for number, judge in enumerate(values["judges"], 1):
        name = f"{number} {judge['name'][:46]}"
        lines.append(f"{name:<50}{judge['family'][:9]:>10}{judge['failed']:>10.1f}"
                     f"{_mean(judge['cot_e'])}")  # fmt: skip
    lines.append(f"{'median of the marks, where all gave one':<70}{_mean(values['median'])}")
    lines += ["", f"{'Krippendorff alpha, ordinal':<30}{'alpha':>8}{'95 % from':>11}{'to':>8}"]
    for name, row in values["alpha"].items():
        low, high = ends_cells(row["ci95"], 11, 8, digits=2)
        value = "-" if row["value"] is None else f"{row['value']:.2f}"
        lines.append(f"{name.replace('_', ' '):<30}{value:>8}{low}{high}")
    lines.append("")
    for each in values["pairs"]:
        a, b = (number + 1 for number in each["judges"])
        lines.append(f"judge {a} minus judge {b}: {_difference(each)}")
    if values["patients"] < FEWEST_PATIENTS:
        lines.append(TOO_FEW)
    return "\n".join(lines)


def _mean(row: Mapping[str, Any] | None) -> str:
    if not row:
        return f"{'-':>8}{'-':>11}{'-':>8}"
    low, high = ends_cells(row["ci95"], 11, 8)
    return f"{row['mean']:>8.1f}{low}{high}"


def _difference(row: Mapping[str, Any]) -> str:
    if row["difference"] is None:
        return "no chain was marked by both"
    said = f"CoT_e {row['difference']:+.1f}{ends_text(row['ci95'])}, p {row['p']:.3g}, n {row['n']}"
    if row["kappa"] and row["kappa"]["value"] is not None:
        said += f"; kappa on right conclusions {row['kappa']['value']:.2f}"
    return said if row["usable"] else f"{said}; UNUSABLE: too many failures"
