"""Scores of a run, from its replies, the reference and the manifest alone.

Intention to diagnose: all cases count; without an answer a case is wrong, and a lesion ranks as the
worst possible error. Per protocol: answered cases alone. Intervals are over patients.

Shape letters: N cases, D draws.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tumorchain_jax.evaluation.agreement import category_counts, fleiss, pair
from tumorchain_jax.evaluation.auc import (
    Draws,
    Labels,
    Scores,
    Weights,
    auroc,
    brier,
    calibration_error,
    estimates,
)
from tumorchain_jax.evaluation.bust.adjudicate import cluster, plain
from tumorchain_jax.evaluation.bust.answer import STATES
from tumorchain_jax.evaluation.bust.ask import TEMPERATURES
from tumorchain_jax.evaluation.bust.plan import plan
from tumorchain_jax.evaluation.bust.safety import safety_table
from tumorchain_jax.evaluation.bust.tiers import TIERS
from tumorchain_jax.ultrasound.lesion import Lesion
from tumorchain_jax.ultrasound.lexicon import PROBABILITY, Lexicon

Line = Mapping[str, Any]
SUSPICIOUS = ("4a", "4b", "4c", "5")


@dataclass(frozen=True)
class Case:
    """A case with its reference and what the model said of it.

    Attributes:
        category: of the reference; empty where there is none.
        reference: whole reading; empty where only a category is known.
        reading: the model's; None without an answer.
    """

    row: Lesion
    category: str
    reference: Mapping[str, Any]
    reading: Mapping[str, Any] | None

    @property
    def right(self) -> bool:
        """Whether the category is the reference's; 4 without a letter takes any 4."""
        return self.reading is not None and matches(self.reading["category"], self.category)


def matches(said: str, reference: str) -> bool:
    """Whether a category is the reference's, at the reference's precision."""
    return said == reference or (reference == "4" and said[0] == "4")


def cases_of(
    replies: Sequence[Line], rows: Sequence[Lesion],
    reference: Mapping[str, Mapping[str, Any]] | None,
) -> list[Case]:  # fmt: skip
    """Pair the first replies at temperature 0 with the cases.

    Args:
        replies: in one mode of thinking.
        reference: case -> adjudicated reading; None: the categories of the manifest.
    """
    first = {
        line["item"]: line
        for line in replies
        if not line["group"] and line["temperature"] == 0 and line["repeat"] == 0
    }
    found = []
    for row in rows:
        line = first.get(row.id)
        answered = line is not None and line["state"] == "answered"
        reading = line["reading"] if line is not None and answered else None
        known = {} if reference is None else reference.get(row.id, {})
        category = row.birads if reference is None else str(known.get("category", ""))
        found.append(Case(row, category, known, reading))
    return found


def share(_: Labels, scores: Scores, weights: Weights) -> Draws:
    """Mean of the scores."""
    return weights @ scores / weights.sum(axis=1)


def _share(cases: Sequence[Case], is_so: Callable[[Case], bool]) -> dict[str, Any] | None:
    if not cases:
        return None
    values = np.array([is_so(case) for case in cases])
    clusters = [cluster(case.row) for case in cases]
    found = estimates(values, values.astype(float), clusters, {"share": share})["share"]
    return plain(found) | {"n": len(cases), "count": int(values.sum())}


def accuracy(cases: Sequence[Case], per_protocol: bool) -> dict[str, Any] | None:
    """Share of cases with a reference category whose category is right."""
    chosen = [case for case in cases if case.category]
    if per_protocol:
        chosen = [case for case in chosen if case.reading is not None]
    return _share(chosen, lambda case: case.right)


def auc(
    cases: Sequence[Case], per_protocol: bool, score: Callable[[Mapping[str, Any]], float]
) -> dict[str, Any] | None:
    """Area under the ROC curve of lesions; None without both labels.

    Args:
        score: of a reading, from 0 to 1.
    """
    lesions = [case for case in cases if case.row.label != "normal"]
    if per_protocol:
        lesions = [case for case in lesions if case.reading is not None]
    labels = np.array([case.row.label == "malignant" for case in lesions], bool)
    if labels.all() or not labels.any():
        return None
    scores = np.array([
        score(case.reading) if case.reading is not None else (-1.0 if malignant else 2.0)
        for case, malignant in zip(lesions, labels, strict=True)
    ])  # fmt: skip
    clusters = [cluster(case.row) for case in lesions]
    found = plain(estimates(labels, scores, clusters, {"auc": auroc})["auc"])
    ties = len(scores) - len(np.unique(scores))
    return found | {"n": len(lesions), "malignant": int(labels.sum()), "ties": ties}


def by_probability(reading: Mapping[str, Any]) -> float:
    """Stated probability as a score."""
    return float(reading[PROBABILITY]) / 100


def endpoints(cases: Sequence[Case]) -> dict[str, Any]:
    """Both primary endpoints, by intention to diagnose and per protocol."""
    return {
        f"{name}{suffix}": value
        for suffix, protocol in (("", False), ("_per_protocol", True))
        for name, value in (
            ("birads_accuracy", accuracy(cases, protocol)),
            ("auc", auc(cases, protocol, by_probability)),
        )
    }


def score_run(
    replies: Sequence[Line], rows: Sequence[Lesion], lexicon: Lexicon,
    reference: Mapping[str, Mapping[str, Any]] | None, tiers: Mapping[str, str] | None,
    seconds: Mapping[str, float],
) -> dict[str, Any]:  # fmt: skip
    """Score a run as the plan says.

    Args:
        replies: lines of `replies.jsonl`; the first is in the first mode of thinking.
        tiers: case -> tier; None: no tiers.
        seconds: of each reply of the journal, by its key.
    """
    main = [line for line in replies if line["thinking"] == replies[0]["thinking"]]
    cases = cases_of(main, rows, reference)
    own = [line for line in main if not line["group"]]
    first = [line for line in own if line["temperature"] == 0 and line["repeat"] == 0]
    states = Counter(line["state"] for line in first)
    return {
        "plan": plan().sha256,
        "cases": len(cases),
        "labels": dict(sorted(Counter(case.row.label for case in cases).items())),
        "states": {state: states[state] for state in STATES},
        "contradictions": sum(bool(line["contradiction"]) for line in first),
        "reference": "manifest" if reference is None else "adjudicated",
        "primary": endpoints(cases),
        "secondary": _secondary(cases, lexicon),
        "groups": _groups(cases),
        "tiers": _tiers(cases, tiers),
        "stability": stability(own, lexicon),
        "thinking": _thinking(replies, rows, reference, seconds),
        "safety": safety_table(main),
        "tokens": [sum(line["tokens"][k] for line in replies) for k in (0, 1)],
        "calls": sum(line["calls"] for line in replies),
        "seconds": _median_seconds(first, seconds),
    }


def _median_seconds(lines: Sequence[Line], seconds: Mapping[str, float]) -> float | None:
    """Median over questions, with what was asked again for a fault of form."""
    found = [sum(seconds.get(key, 0.0) for key in line["keys"]) for line in lines if line["keys"]]
    return float(np.median(found)) if found else None


def _thinking(
    replies: Sequence[Line], rows: Sequence[Lesion],
    reference: Mapping[str, Mapping[str, Any]] | None, seconds: Mapping[str, float],
) -> dict[str, Any]:  # fmt: skip
    """Modes of thinking side by side, on all cases; empty with fewer than two."""
    modes = list(dict.fromkeys(line["thinking"] for line in replies))
    if len(modes) < 2:
        return {}
    found: dict[str, Any] = {}
    said: list[list[str | None]] = []
    for mode in modes:
        lines = [
            line for line in replies
            if (line["thinking"], line["group"]) == (mode, "")
            and (line["temperature"], line["repeat"]) == (0, 0)
        ]  # fmt: skip
        cases = cases_of(lines, rows, reference)
        said.append([case.reading["category"] if case.reading else None for case in cases])
        found[mode] = endpoints(cases) | {
            "answered": sum(case.reading is not None for case in cases),
            "tokens": float(np.mean([line["tokens"][1] for line in lines])),
            "seconds": _median_seconds(lines, seconds),
        }
    both = [one != other for one, other in zip(*said, strict=True) if one and other]
    return found | {"differ": float(np.mean(both)) if both else None, "both": len(both)}


def _secondary(cases: Sequence[Case], lexicon: Lexicon) -> dict[str, Any]:
    places = {name: place for place, name in enumerate(lexicon.categories)}
    top = len(places) - 1

    def by_category(reading: Mapping[str, Any]) -> float:
        return places[reading["category"]] / top

    answered = [case for case in cases if case.reading is not None]
    graded = [case for case in answered if case.category in places]
    found: dict[str, Any] = {
        "auc_by_category": auc(cases, False, by_category),
        "auc_by_category_per_protocol": auc(cases, True, by_category),
        "sensitivity_at_4a": _share(
            [case for case in cases if case.row.label == "malignant"], _suspects
        ),
        "specificity_at_4a": _share(
            [case for case in cases if case.row.label == "benign"],
            lambda case: case.reading is not None and not _suspects(case),
        ),
        "descriptors": _descriptors(answered, lexicon),
    }
    if graded:
        said = [str(case.reading["category"]) for case in graded if case.reading is not None]
        true = [case.category for case in graded]
        clusters = [cluster(case.row) for case in graded]
        kappa = pair(true, said, lexicon.categories, clusters, ordered=True)["weighted_kappa"]
        found["weighted_kappa"] = plain(kappa) | {"n": len(graded)}
    lesions = [case for case in answered if case.row.label != "normal"]
    if lesions:
        labels = np.array([case.row.label == "malignant" for case in lesions], bool)
        stated = [by_probability(case.reading) for case in lesions if case.reading is not None]
        metrics = {"brier": brier, "calibration_error": calibration_error}
        clusters = [cluster(case.row) for case in lesions]
        values = estimates(labels, np.array(stated), clusters, metrics)
        found |= {name: plain(each) | {"n": len(lesions)} for name, each in values.items()}
    return found


def _suspects(case: Case) -> bool:
    return case.reading is not None and case.reading["category"] in SUSPICIOUS


def _descriptors(answered: Sequence[Case], lexicon: Lexicon) -> dict[str, Any]:
    """Accuracy of each field of an adjudicated reference, beside its most frequent value."""
    found = {}
    for field in lexicon.fields:
        chosen = [case for case in answered if field.name in case.reference]
        if field.name == "category" or not chosen:
            continue
        name = field.name
        values = Counter(case.reference[name] for case in chosen)
        row = _share(chosen, partial(_same, name)) or {}
        found[name] = row | {"majority": values.most_common(1)[0][1] / len(chosen)}
    return found


def _same(name: str, case: Case) -> bool:
    return case.reading is not None and case.reading.get(name) == case.reference[name]


def _groups(cases: Sequence[Case]) -> dict[str, Any]:
    """Primary endpoints by data set and device, where a group is large enough."""
    least = int(plan().values["smallest_group"])
    found = {}
    for kind in ("source", "device"):
        names = sorted({str(getattr(case.row, kind)) for case in cases} - {""})
        for name in names:
            own = [case for case in cases if getattr(case.row, kind) == name]
            if len(own) >= least:
                found[f"{kind} {name}"] = endpoints(own) | {"n": len(own)}
    return found


def _tiers(cases: Sequence[Case], tiers: Mapping[str, str] | None) -> dict[str, Any]:
    if tiers is None:
        return {}
    found = {}
    for tier in TIERS:
        own = [case for case in cases if tiers.get(case.row.id) == tier]
        malignant = sum(case.row.label == "malignant" for case in own)
        found[tier] = endpoints(own) | {"n": len(own), "malignant": malignant}
    return found


def stability(lines: Sequence[Line], lexicon: Lexicon) -> dict[str, Any]:
    """How far repeats of one question agree, by temperature; cases asked more than once alone.

    A flip is a pair of answered repeats of a case with different categories. Fleiss' kappa is over
    the cases of which every repeat was answered.
    """
    places = {name: place for place, name in enumerate(lexicon.categories)}
    found = {}
    for temperature in TEMPERATURES:
        by_case: dict[str, list[str | None]] = {}
        for line in lines:
            if line["temperature"] == temperature:
                said = line["reading"]["category"] if line["state"] == "answered" else None
                by_case.setdefault(line["item"], []).append(said)
        repeated = [said for said in by_case.values() if len(said) > 1]
        if not repeated:
            continue
        answered = [[each for each in said if each is not None] for said in repeated]
        pairs = [len(said) * (len(said) - 1) // 2 for said in answered]
        alike = [sum(n * (n - 1) // 2 for n in Counter(said).values()) for said in answered]
        spread = [np.std([places[each] for each in said], ddof=1) for said in answered if said[1:]]
        whole = [said for said, every in zip(answered, repeated, strict=True) if said == every]
        kappa = None
        if whole:
            counts = category_counts(whole, lexicon.categories)
            value = float(fleiss(counts, np.ones((1, len(whole))))[0])
            kappa = value if np.isfinite(value) else None
        found[f"{temperature:g}"] = {
            "cases": len(repeated),
            "answered": sum(map(len, answered)) / sum(map(len, repeated)),
            "flip_rate": 1 - sum(alike) / sum(pairs) if sum(pairs) else None,
            "category_sd": float(np.mean(spread)) if spread else None,
            "fleiss": kappa,
        }
    return found
