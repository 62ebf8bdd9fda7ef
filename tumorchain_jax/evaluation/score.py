"""Scores in the form of the paper's Tables 1 and 6, from judged answers.

No model is needed: see `items.py`. Intervals are percentile bootstraps over patients: items of one
patient are not independent, so they are drawn together. Of fewer than 20 patients, shares have a
wide one (`statistics.py: mean_interval`); averages and differences have none.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from statistics import fmean
from typing import Any

import numpy as np
from jaxtyping import Float

from tumorchain_jax.anatomy.organs import ORGANS
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.schema import SUBTASKS
from tumorchain_jax.evaluation.answers import YES_NO
from tumorchain_jax.evaluation.bootstrap import FEWEST_PATIENTS, interval_if_enough, resampled
from tumorchain_jax.evaluation.items import Item
from tumorchain_jax.evaluation.selective import selective
from tumorchain_jax.evaluation.statistics import mean_interval
from tumorchain_jax.reasoning.answer_values import NONE

TABLE_6 = [ORGANS[label] for label in (5, 7, 20, 6, 15)]
# Diameters (mm) from which the rows of accuracy by size begin.
SIZE_ROWS = {"under 10 mm": 0.0, "10-20 mm": 10.0, "20-40 mm": 20.0, "40+ mm": 40.0}
_SUBTASKS = [subtask for subtasks in SUBTASKS.values() for subtask in subtasks]


def score(items: Sequence[Item]) -> dict[str, Any]:
    """Score items in the forms of Table 1 and, by organ, of Table 6; in percent, but for counts.

    Returns:
        `average`: over the subtasks that were asked; with its `ci95` (None of fewer than 20
        patients), the averages of `majority` and `text_only`, and `n`, `patients`, `unparsed`.
        `subtasks`: each with `accuracy`, `ci95`, `n`, `unparsed`; `majority`, of always
        giving its most frequent truth (separately for multiple choice, yes or no, and open
        questions); `text_only`, of the answers about a mismatched image, None unless every item has
        one.
        `organs`: Table 6, whose numbers are of the reports on each digestive organ's tumours (the
        task cot_report): `accuracy`, `ci95`, `n`; `organ_average` over the organs, None without.

    Raises:
        InputError: there are no items.
    """
    if not items:
        raise InputError("items", "count", "0", "at least one", "evaluate on some patients")
    subtasks = _groups(items, "subtask", _SUBTASKS)
    reports = [item for item in items if item.subtask == "cot_report"]
    organs = _groups(reports, "organ", TABLE_6)
    right, n = _sums([*subtasks.values(), *organs.values()])
    draws = _draw(right, n)
    of_subtasks, of_organs = draws[:, : len(subtasks)], draws[:, len(subtasks) :]
    plain = [_row(*columns) for columns in zip(right.T, n.T, draws.T, strict=True)]
    patients = len(right)
    rows = {
        name: {
            **row,
            "unparsed": _unparsed(group),
            "majority": _majority(group),
            "text_only": _text_only(group),
        }
        for (name, group), row in zip(subtasks.items(), plain[: len(subtasks)], strict=True)
    }
    return _rounded(
        {
            "average": _average(of_subtasks[0].tolist()),
            "ci95": interval_if_enough(np.nanmean(of_subtasks, axis=1), patients),
            "majority": _average([row["majority"] for row in rows.values()]),
            "text_only": _average([row["text_only"] for row in rows.values()]),
            "n": len(items),
            "patients": patients,
            "unparsed": _unparsed(items),
            "subtasks": rows,
            "organs": dict(zip(organs, plain[len(subtasks) :], strict=True)),
            "organ_average": _average(of_organs[0].tolist()),
        }
    )


def summary(items: Sequence[Item]) -> dict[str, Any]:
    """Add to `score` the patients with a tumour alone, asked in which organ it is.

    Returns:
        of `score`, and `tumour_organ`: a row for the open questions and one for the
        `multiple_choice`; None where there are none. `selective`: how far confidences can be relied
        on, and `calibrated`, whether they are (else the plain probabilities of the conclusions
        stand in); `withheld`, the number of answers by the first words of the reason. Where items
        have a `tumour_mm`, also `tumour_organ_by_size`: the open questions by the names of
        `SIZE_ROWS`.
    """
    organ = [
        item
        for item in items
        if item.subtask == "tumor_position" and item.truth not in (*YES_NO, NONE)
    ]
    forms = {
        "open": [item for item in organ if not item.choices],
        "multiple_choice": [item for item in organ if item.choices],
    }
    rows = {
        form: score(of_form)["subtasks"]["tumor_position"] if of_form else None
        for form, of_form in forms.items()
    }
    whole = score(items) | {"tumour_organ": rows, "selective": _selective(items)}
    by_size = _by_size(forms["open"])
    return whole | {"tumour_organ_by_size": by_size} if by_size else whole


def _by_size(items: Sequence[Item]) -> dict[str, Any]:
    """Score items about the organ of a tumour by the tumour's size; sizes without any left out."""
    groups: dict[str, list[Item]] = {name: [] for name in SIZE_ROWS}
    names, limits = list(SIZE_ROWS), list(SIZE_ROWS.values())
    for item in items:
        if item.tumour_mm is not None:
            groups[names[int(np.digitize(item.tumour_mm, limits)) - 1]].append(item)
    return {
        name: score(group)["subtasks"]["tumor_position"] for name, group in groups.items() if group
    }


def confidence_of(items: Sequence[Item]) -> Float[np.ndarray, " N"]:
    """The confidence of each item: calibrated if any is, else the plain probability; or NaN."""
    if any(item.confidence is not None for item in items):
        values = [item.confidence for item in items]
        return np.array([np.nan if value is None else value for value in values], float)
    logs = [item.log_probability for item in items]
    return np.exp(np.array([np.nan if value is None else value for value in logs], float))


def _selective(items: Sequence[Item]) -> dict[str, Any]:
    right = np.array([item.right for item in items])
    withheld = np.array([bool(item.withheld) for item in items])
    patients = [item.patient for item in items]
    row = selective(patients, confidence_of(items), right, withheld)
    if len(set(patients)) < FEWEST_PATIENTS:  # the values alone
        row = {name: each[:1] if isinstance(each, list) else each for name, each in row.items()}
    reasons = Counter(_short(item.withheld) for item in items if item.withheld)
    calibrated = any(item.confidence is not None for item in items)
    return _rounded(row) | {"calibrated": calibrated, "withheld": dict(sorted(reasons.items()))}


def _short(reason: str) -> str:
    words = "not segmented"
    return words if reason.endswith(words) else reason.partition(":")[0]


def paired_difference(a: Sequence[Item], b: Sequence[Item]) -> dict[str, Any]:
    """Average accuracy of run `a` minus that of run `b`, on the same items.

    Runs of several training seeds may be concatenated, as many in both: a patient is then drawn
    with all of them.

    Returns:
        `difference` and its `ci95` (None of too few patients), in points of percent; `n` and
        `patients`.

    Raises:
        InputError: not the same questions to the same patients.
    """
    check_same_questions(a, b)
    # Same seed, same patients: each draw is of the same patients for both.
    of_a, of_b = (_draw(*_sums(_groups(run, "subtask", _SUBTASKS).values())) for run in (a, b))
    difference = np.nanmean(of_a - of_b, axis=1)
    patients = len({item.patient for item in a})
    ends = interval_if_enough(difference, patients)
    return {
        "difference": round(float(difference[0]), 2),
        "ci95": ends and [round(limit, 2) for limit in ends],
        "n": len(a),
        "patients": patients,
    }


def check_same_questions(a: Sequence[Item], b: Sequence[Item]) -> None:
    """Refuse two runs that cannot be compared.

    Raises:
        InputError: not the same questions to the same patients.
    """
    asked_a, asked_b = Counter(map(asked, a)), Counter(map(asked, b))
    if not a or asked_a != asked_b:
        alone = (asked_a - asked_b).total() + (asked_b - asked_a).total()
        raise InputError(
            "two runs",
            "items",
            f"{len(a)} and {len(b)}, {alone} of them in one run alone",
            "the same questions to the same patients",
            "evaluate both on the same data",
        )


def asked(item: Item) -> tuple[object, ...]:
    """What makes two items the same question."""
    return item.patient, item.subtask, item.question, item.choices, item.truth


def _groups(items: Sequence[Item], field: str, names: Sequence[str]) -> dict[str, list[Item]]:
    groups = {name: [item for item in items if getattr(item, field) == name] for name in names}
    return {name: group for name, group in groups.items() if group}


def _sums(
    groups: Collection[Sequence[Item]],
) -> tuple[Float[np.ndarray, "patients groups"], Float[np.ndarray, "patients groups"]]:
    """How many items of each patient and group are right, and how many there are."""
    patients = sorted({item.patient for group in groups for item in group})
    rows = {patient: row for row, patient in enumerate(patients)}
    n, right = np.zeros((2, len(patients), len(groups)))
    for column, group in enumerate(groups):
        for item in group:
            n[rows[item.patient], column] += 1
            right[rows[item.patient], column] += item.right
    return right, n


def _draw(
    right: Float[np.ndarray, "patients groups"], n: Float[np.ndarray, "patients groups"]
) -> Float[np.ndarray, "draws groups"]:
    """Percent right in each group: of all items in row 0, then in `RESAMPLES` draws of patients."""
    times = resampled(len(n))
    with np.errstate(invalid="ignore"):  # nan where a draw has nobody of a rare group
        return 100 * (times @ right) / (times @ n)


def _row(
    right: Float[np.ndarray, " patients"],
    n: Float[np.ndarray, " patients"],
    draws: Float[np.ndarray, " draws"],
) -> dict[str, Any]:
    ends = mean_interval(100 * right, n, draws, 100.0)
    return {"accuracy": float(draws[0]), "ci95": ends, "n": int(n.sum())}


def _unparsed(items: Sequence[Item]) -> int:
    return sum(not item.parsed for item in items)


def _majority(items: Sequence[Item]) -> float:
    forms: dict[tuple[bool, bool], Counter[str]] = {}
    for item in items:
        form = bool(item.choices), item.truth in YES_NO
        forms.setdefault(form, Counter())[item.truth] += 1
    return 100 * sum(max(truths.values()) for truths in forms.values()) / len(items)


def _text_only(items: Sequence[Item]) -> float | None:
    flags = [item.text_only_right for item in items]
    return _average([None if flag is None else 100.0 * flag for flag in flags])


def _average(percents: Sequence[float | None]) -> float | None:
    known = [percent for percent in percents if percent is not None]
    return fmean(known) if known and len(known) == len(percents) else None


def _rounded(value: Any) -> Any:
    """Every float in nested dicts and lists to one decimal."""
    match value:
        case float():
            return round(value, 1)
        case dict():
            return {key: _rounded(part) for key, part in value.items()}
        case list():
            return [_rounded(part) for part in value]
    return value
