"""Scores of DeepTumorVQA answers, by each rule set apart; no model and no JAX is needed.

Intervals are percentile bootstraps over CTs: questions about one CT are drawn together. Of fewer
than 20 CTs, or where all scores are 0 or all 1, they are wide (`statistics.py: mean_interval`); the
macro mean then has none.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import fmean, median
from typing import Any

import numpy as np
from jaxtyping import Float

from tumorchain_jax.evaluation.bootstrap import interval_if_enough, patient_rows, resampled
from tumorchain_jax.evaluation.deeptumorvqa import rule_sets
from tumorchain_jax.evaluation.deeptumorvqa.fixed import Format, Verdict, judge
from tumorchain_jax.evaluation.deeptumorvqa.subtypes import SUBTYPES, TYPES, UNITS, Subtype
from tumorchain_jax.evaluation.statistics import mean_interval

RULES = ("fixed", "upstream", "v1")
TOLERANCES = (5, 10, 20, 50)
_LAST = "not_answerable"


@dataclass(frozen=True)
class Item:
    """A question with its answer: all that scoring needs.

    Attributes:
        qid, image_id: of the question.
        subtype: name, as version 2 writes it.
        options: letter -> text.
        truth: the right letter (`mc`) or the answer's text (`freeform`).
        output: the model's whole text.
        upstream_text: what upstream scores of it.
        not_answerable: why it cannot be answered from the input, "" if it can.
    """

    qid: str
    image_id: str
    subtype: str
    options: dict[str, str]
    truth: str
    output: str
    upstream_text: str
    not_answerable: str = ""


def score(items: Sequence[Item], form: Format, rules: Sequence[str]) -> dict[str, Any]:
    """Score items by each of the rule sets; percentages have two digits.

    Args:
        rules: of `RULES`.
    """
    scorers: dict[str, Callable[[Sequence[Item], Format], dict[str, Any]]] = {
        "fixed": score_fixed,
        "upstream": score_upstream,
        "v1": score_v1,
    }
    return {name: scorers[name](items, form) for name in rules}


def score_upstream(items: Sequence[Item], form: Format) -> dict[str, Any]:
    """Score by upstream's rules, exactly: shares with four digits."""
    rows = [(SUBTYPES[i.subtype].type, i.subtype, form, i.upstream_text, i.truth) for i in items]
    return rule_sets.upstream_rows(rows)


def score_v1(items: Sequence[Item], form: Format) -> dict[str, Any]:
    """Score by version 1's rules: plain means over subtypes."""
    values: dict[str, list[float]] = {}
    for each in items:
        case = {"subtype": each.subtype, "format": form}
        case |= {"output": each.output, "truth": each.truth}
        values.setdefault(each.subtype, []).append(rule_sets.v1_case(case))
    means = {name: fmean(scores) for name, scores in values.items()}
    by_type = {
        kind: _percent(fmean(mean for name, mean in means.items() if SUBTYPES[name].type == kind))
        for kind in TYPES
        if any(SUBTYPES[name].type == kind for name in means)
    }
    rows = {
        name: {"value": _percent(means[name]), "n": len(scores)} for name, scores in values.items()
    }
    return {"macro": _percent(fmean(means.values())), "by_type": by_type, "by_subtype": rows}


def score_fixed(items: Sequence[Item], form: Format) -> dict[str, Any]:
    """Score by the default rules.

    Questions whose own answer cannot be read are counted and left out of everything else.
    """
    verdicts = [judge(SUBTYPES[i.subtype], form, i.options, i.truth, i.output) for i in items]
    sound = [(i, v) for i, v in zip(items, verdicts, strict=True) if v.state != "bad_truth"]
    counts = {"n_asked": len(sound), "bad_truth": len(items) - len(sound)}
    if not sound:
        return {**counts, "n_answered": 0, "abstained": {}}
    draws = _Draws([item for item, _ in sound], [verdict for _, verdict in sound])
    names = [name for name in SUBTYPES if any(item.subtype == name for item, _ in sound)]
    rows = {}
    for name in names:
        of_subtype = [(item, verdict) for item, verdict in sound if item.subtype == name]
        rows[name] = draws.row([name]) | _details(SUBTYPES[name], form, of_subtype)
    by_type = {}
    for kind in TYPES:
        of_type = [name for name in names if SUBTYPES[name].type == kind]
        if of_type:
            by_type[kind] = draws.row(of_type) | _baselines([rows[name] for name in of_type])
    whys = Counter(verdict.why for _, verdict in sound if verdict.why)
    return {
        **counts,
        "n_answered": len(sound) - whys.total(),
        "abstained": dict(sorted(whys.items())),
        "micro": draws.row(names) | _baselines(list(rows.values())),
        "macro": draws.macro(names),
        "by_type": by_type,
        "by_subtype": rows,
        **_answerable(draws, rows, [item for item, _ in sound]),
    }


def _answerable(
    draws: "_Draws", rows: dict[str, dict[str, Any]], items: Sequence[Item]
) -> dict[str, Any]:
    """Score the subtypes that the input can answer; nothing where it can answer all."""
    unfit = Counter(item.not_answerable for item in items if item.not_answerable)
    if not unfit:
        return {}
    left_out = {item.subtype for item in items if item.not_answerable}
    names = [name for name in rows if name not in left_out]
    fit = draws.row(names) | _baselines([rows[name] for name in names]) if names else None
    return {"not_answerable": dict(sorted(unfit.items())), "answerable": fit}


class _Draws:
    """Sums of scores by CT and subtype, and what draws of CTs make of them."""

    def __init__(self, items: Sequence[Item], verdicts: Sequence[Verdict]):
        images = patient_rows([item.image_id for item in items])
        self.columns = {name: number for number, name in enumerate(SUBTYPES)}
        shape = images.max() + 1, len(self.columns)
        self.sums, self.counts, self.answered = (np.zeros(shape) for _ in range(3))
        at = images, np.array([self.columns[item.subtype] for item in items])
        given = np.array([verdict.score is not None for verdict in verdicts])
        np.add.at(self.sums, at, np.array([verdict.score or 0.0 for verdict in verdicts]))
        np.add.at(self.counts, at, 1)
        np.add.at(self.answered, at, given)
        weights = resampled(len(self.sums))
        self.drawn_sums, self.drawn_counts = weights @ self.sums, weights @ self.counts

    def row(self, names: Sequence[str]) -> dict[str, Any]:
        """Score some subtypes together, each question alike."""
        columns = [self.columns[name] for name in names]
        sums, counts = self.sums[:, columns].sum(1), self.counts[:, columns].sum(1)
        n, right, answered = counts.sum(), sums.sum(), self.answered[:, columns].sum()
        drawn = self.drawn_sums[:, columns].sum(1), self.drawn_counts[:, columns].sum(1)
        ends = mean_interval(sums, counts, _share(*drawn))
        return {
            "n": int(n),
            "images": int((counts > 0).sum()),
            "n_answered": int(answered),
            "of_asked": _percent(right / n),
            "ci95": [_percent(end) for end in ends],
            "of_answered": _percent(right / answered) if answered else None,
            "answered": _percent(answered / n),
        }

    def macro(self, names: Sequence[str]) -> dict[str, Any]:
        """Score the mean over subtypes, of all asked."""
        columns = [self.columns[name] for name in names]
        shares = _share(self.drawn_sums[:, columns], self.drawn_counts[:, columns])
        means = np.nanmean(shares, axis=1)
        ends = interval_if_enough(means, len(self.counts))
        return {
            "of_asked": _percent(float(means[0])),
            "ci95": ends and [_percent(end) for end in ends],
            "subtypes": len(names),
        }


def _share(
    sums: Float[np.ndarray, "*cells"], counts: Float[np.ndarray, "*cells"]
) -> Float[np.ndarray, "*cells"]:
    return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)


def _percent(share: float) -> float:
    return round(100 * float(share), 2)


def _baselines(rows: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    """Average chance and majority over questions; chance only where all have one."""
    total = sum(row["n"] for row in rows)
    return {
        name: round(sum(row["n"] * row[name] for row in rows) / total, 2)
        if all(row[name] is not None for row in rows)
        else None
        for name in ("chance", "majority")
    }


def _details(
    subtype: Subtype, form: Format, pairs: Sequence[tuple[Item, Verdict]]
) -> dict[str, Any]:
    items = [item for item, _ in pairs]
    found: dict[str, Any] = {"kind": subtype.kind, "chance": _chance(subtype, form, items)}
    found["majority"] = _majority(form, pairs)
    if form == "mc":
        return found
    if subtype.kind == "binary":
        return found | _sensitivity([verdict for _, verdict in pairs])
    if subtype.kind == "numeric":
        return found | _numeric(subtype, [verdict for _, verdict in pairs])
    return found


def _chance(subtype: Subtype, form: Format, items: Sequence[Item]) -> float | None:
    """Expected score of a random option; None for free numbers."""
    if form == "freeform" and subtype.kind == "numeric":
        return None
    return _percent(fmean(1 / len(item.options) if item.options else 0.5 for item in items))


def _majority(form: Format, pairs: Sequence[tuple[Item, Verdict]]) -> float:
    """Score of the most frequent answer: a text, and a letter where no option says it, or a letter
    alone if that is more frequent; of numbers their median (see `baselines.py`)."""
    if form == "mc":
        rows = [(item.options, item.truth.strip().upper()) for item, _ in pairs]
        text, texts = Counter(options[letter] for options, letter in rows).most_common(1)[0]
        letter, letters = Counter(letter for _, letter in rows).most_common(1)[0]
        elsewhere = sum(truth == letter and text not in o.values() for o, truth in rows)
        return _percent(max(letters, texts + elsewhere) / len(pairs))
    truths = [verdict.truth for _, verdict in pairs]
    numbers = [truth for truth in truths if isinstance(truth, float)]
    if not numbers:
        return _percent(max(Counter(truths).values()) / len(pairs))
    guess = median(numbers)
    return _percent(
        fmean(max(0.0, 1 - abs(guess - t) / abs(t)) if t else float(guess == t) for t in numbers)
    )


def _sensitivity(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    def share(truth: str) -> float | None:
        answered = [v.score for v in verdicts if v.truth == truth and v.score is not None]
        return _percent(fmean(answered)) if answered else None

    return {"sensitivity": share("yes"), "specificity": share("no")}


def _numeric(subtype: Subtype, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Errors of the answered; shares within a tolerance and MRA of version 1 of all asked."""
    assert subtype.quantity is not None
    given = [v for v in verdicts if v.score is not None]
    errors = [v.absolute_error for v in given if v.absolute_error is not None]
    within = partial(_within, given, len(verdicts))
    return {
        "mra10": _percent(sum(v.mra10 or 0.0 for v in given) / len(verdicts)),
        "tolerance": {f"{percent} %": within(percent / 100) for percent in TOLERANCES},
        "exact": within(0.0),
        "mean_absolute_error": round(fmean(errors), 4) if errors else None,
        "median_absolute_error": round(median(errors), 4) if errors else None,
        "unit": UNITS[subtype.quantity],
    }


def _within(given: Sequence[Verdict], asked: int, share: float) -> float:
    def near(verdict: Verdict) -> bool:
        assert verdict.absolute_error is not None
        if verdict.relative_error is None:
            return verdict.absolute_error == 0
        return verdict.relative_error <= share

    return _percent(sum(map(near, given)) / asked)


def item_values(items: Sequence[Item]) -> list[dict[str, Any]]:
    """Return items as plain values; `not_answerable` only where it says something."""
    rows = [asdict(item) for item in items]
    return [{name: each for name, each in row.items() if each or name != _LAST} for row in rows]
