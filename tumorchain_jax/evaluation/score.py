"""Scores in the form of the paper's Tables 1 and 6, from judged answers.

No model is needed: answers are JSON lines, one `Item` each. Intervals are percentile bootstraps
over patients: items of one patient are not independent, so they are drawn together.
"""

import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from jaxtyping import Float

from tumorchain_jax.anatomy.organs import ORGANS, labels_named
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.schema import SUBTASKS, Record
from tumorchain_jax.evaluation.answers import YES_NO, judge
from tumorchain_jax.evaluation.bootstrap import interval, resampled
from tumorchain_jax.evaluation.selective import selective
from tumorchain_jax.reasoning.answer_values import NONE
from tumorchain_jax.report.verdict import Verdict

TABLE_6 = [ORGANS[label] for label in (5, 7, 20, 6, 15)]
# Diameters (mm) from which the rows of accuracy by size begin.
SIZE_ROWS = {"under 10 mm": 0.0, "10-20 mm": 10.0, "20-40 mm": 20.0, "40+ mm": 40.0}
_SUBTASKS = [subtask for subtasks in SUBTASKS.values() for subtask in subtasks]


@dataclass(frozen=True)
class Item:
    """One question, its answer and the judgement.

    Attributes:
        patient, task, subtask, question, choices: of the record.
        organ: the organ (Table 10) that the question or else its truth names, "" for none.
        truth: as `judge` reads it.
        answer: all the text of the model's last round.
        parsed: what `judge` read in it, "" if nothing (unparsed).
        right: whether that is the truth.
        text_only_right: the same for the answer about a mismatched image; None if not asked.
        log_probability: of the conclusion's tokens; None without a conclusion.
        confidence: calibrated; None where there is none.
        withheld: why a report gives no answer in its headline; "" if it does.
        tumour_mm: diameter of the patient's largest tumour; None without one, or where sizes are
            not compared.
    """

    patient: str
    task: str
    subtask: str
    organ: str
    question: str
    choices: tuple[str, ...]
    truth: str
    answer: str
    parsed: str
    right: bool
    text_only_right: bool | None = None
    log_probability: float | None = None
    confidence: float | None = None
    withheld: str = ""
    tumour_mm: float | None = None

    def values(self) -> dict[str, Any]:
        """Return plain values; `tumour_mm` only where there is one."""
        values = asdict(self)
        if self.tumour_mm is None:
            del values["tumour_mm"]
        return values


def make_item(
    record: Record, answer: str, text_only: str | None = None, verdict: Verdict | None = None
) -> Item:
    """Judge an answer to a record, and the one about a mismatched image if there is one.

    Args:
        verdict: on the answer, if it was judged without the truth as well.

    Raises:
        InputError: the record's own answer cannot be read.
    """
    judgement = judge(record, answer)
    named = {label for mention in labels_named(record.answer) for label in mention.labels}
    organ = record.organ or (named.pop() if len(named) == 1 else 0)
    return Item(
        record.patient,
        record.task,
        record.subtask,
        ORGANS[organ] if organ else "",
        record.question,
        record.choices,
        judgement.truth,
        answer,
        judgement.parsed,
        judgement.right,
        None if text_only is None else judge(record, text_only).right,
        verdict.confidence.log_probability if verdict else None,
        verdict.confidence.value if verdict else None,
        verdict.reason if verdict else "",
    )


def json_lines(items: Sequence[Item]) -> str:
    """Format items as JSON lines."""
    return "".join(json.dumps(item.values()) + "\n" for item in items)


def read_items(path: Path) -> list[Item]:
    """Read a file of `json_lines`.

    Raises:
        InputError: there is no such file, or a line is no item.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        expected = "a file of judged answers"
        raise InputError(path, "items", repr(error.strerror), expected, "evaluate first") from error
    return [_item(line, f"{path}[{number}]") for number, line in enumerate(lines, 1)]


_OTHER_TYPES = {
    "choices": (tuple, "texts"),
    "right": (bool, "true or false"),
    "text_only_right": (bool | None, "true, false or null"),
    "tumour_mm": (float | None, "a number of mm, or null"),
    "log_probability": (float | None, "a number or null"),
    "confidence": (float | None, "a number or null"),
}


def _item(line: bytes, source: str) -> Item:
    try:
        values = json.loads(line)
    except ValueError as error:
        raise _refusal(source, "item", str(error), "JSON") from error
    return item_of(values, source)


def item_of(values: Any, source: str) -> Item:
    """Make an item from plain values, checked.

    Args:
        source: where the values were found, for the error.

    Raises:
        InputError: a value is missing or cannot be.
    """
    try:
        item = Item(**{**values, "choices": tuple(values["choices"])})
    except (KeyError, TypeError) as error:
        names = ", ".join(field.name for field in fields(Item))
        raise _refusal(source, "item", str(error), f"an object with {names}") from error
    for name, value in vars(item).items():
        kind, expected = _OTHER_TYPES.get(name, (str, "text"))
        if not isinstance(value, kind):
            raise _refusal(source, name, value, expected)
    if {type(choice) for choice in item.choices} - {str}:
        raise _refusal(source, "choices", item.choices, "texts")
    if item.subtask not in SUBTASKS.get(item.task, ()):
        raise _refusal(source, "subtask", f"{item.task}/{item.subtask}", "one of Table 1")
    if item.organ not in ("", *ORGANS):
        raise _refusal(source, "organ", item.organ, "an organ of Table 10, or none")
    return item


def _refusal(source: str, field: str, found: object, expected: str) -> InputError:
    return InputError(source, field, repr(found), expected, "evaluate again")


def score(items: Sequence[Item]) -> dict[str, Any]:
    """Score items in the forms of Table 1 and, by organ, of Table 6; in percent, but for counts.

    Returns:
        `average`: over the subtasks that were asked; with its `ci95`, the averages of `majority`
        and `text_only`, and `n`, `patients`, `unparsed`.
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
    draws = _draw([*subtasks.values(), *organs.values()])
    of_subtasks, of_organs = draws[:, : len(subtasks)], draws[:, len(subtasks) :]
    rows = {
        name: {
            **_row(group, draw),
            "unparsed": _unparsed(group),
            "majority": _majority(group),
            "text_only": _text_only(group),
        }
        for (name, group), draw in zip(subtasks.items(), of_subtasks.T, strict=True)
    }
    return _rounded(
        {
            "average": _average(of_subtasks[0].tolist()),
            "ci95": interval(np.nanmean(of_subtasks, axis=1)),
            "majority": _average([row["majority"] for row in rows.values()]),
            "text_only": _average([row["text_only"] for row in rows.values()]),
            "n": len(items),
            "patients": len({item.patient for item in items}),
            "unparsed": _unparsed(items),
            "subtasks": rows,
            "organs": {
                name: _row(group, draw)
                for (name, group), draw in zip(organs.items(), of_organs.T, strict=True)
            },
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
    row = selective([item.patient for item in items], confidence_of(items), right, withheld)
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
        `difference` and its `ci95`, in points of percent; `n` and `patients`.

    Raises:
        InputError: not the same questions to the same patients.
    """
    asked_a, asked_b = Counter(map(asked_of, a)), Counter(map(asked_of, b))
    if not a or asked_a != asked_b:
        alone = (asked_a - asked_b).total() + (asked_b - asked_a).total()
        raise InputError(
            "two runs",
            "items",
            f"{len(a)} and {len(b)}, {alone} of them in one run alone",
            "the same questions to the same patients",
            "evaluate both on the same data",
        )
    # Same seed, same patients: each draw is of the same patients for both.
    of_a, of_b = (_draw(_groups(run, "subtask", _SUBTASKS).values()) for run in (a, b))
    difference = np.nanmean(of_a - of_b, axis=1)
    return {
        "difference": round(float(difference[0]), 2),
        "ci95": [round(limit, 2) for limit in interval(difference)],
        "n": len(a),
        "patients": len({item.patient for item in a}),
    }


def asked_of(item: Item) -> tuple[object, ...]:
    """What two runs must have asked alike to be compared: patient, question and truth."""
    return item.patient, item.subtask, item.question, item.choices, item.truth


def _groups(items: Sequence[Item], field: str, names: Sequence[str]) -> dict[str, list[Item]]:
    groups = {name: [item for item in items if getattr(item, field) == name] for name in names}
    return {name: group for name, group in groups.items() if group}


def _draw(groups: Collection[Sequence[Item]]) -> Float[np.ndarray, "draws groups"]:
    """Percent right in each group: of all items in row 0, then in `RESAMPLES` draws of patients."""
    patients = sorted({item.patient for group in groups for item in group})
    rows = {patient: row for row, patient in enumerate(patients)}
    n, right = np.zeros((2, len(patients), len(groups)))
    for column, group in enumerate(groups):
        for item in group:
            n[rows[item.patient], column] += 1
            right[rows[item.patient], column] += item.right
    times = resampled(len(patients))
    with np.errstate(invalid="ignore"):  # nan where a draw has nobody of a rare group
        return 100 * (times @ right) / (times @ n)


def _row(group: Sequence[Item], draws: Float[np.ndarray, " draws"]) -> dict[str, Any]:
    return {"accuracy": float(draws[0]), "ci95": interval(draws), "n": len(group)}


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
