"""Scores of replies about lesions, arm by arm and pair by pair.

Accuracy is by what a reply says; what cannot be read or never came is wrong, and is counted apart.
The area under the ROC curve is by the probability at the answer's slot; without one a reply counts
as 0 or 1, and as one half if it cannot be read. Intervals are over clusters: patients and near
duplicates.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.auc import (
    Draws,
    Estimate,
    Labels,
    Scores,
    Weights,
    auroc,
    difference,
    estimates,
)
from tumorchain_jax.evaluation.statistics import mcnemar
from tumorchain_jax.evaluation.ultrasound.replies import Reply, read_replies
from tumorchain_jax.ultrasound.chains.fields import load_wording
from tumorchain_jax.ultrasound.chains.record import Levels
from tumorchain_jax.ultrasound.chains.text import ANSWERS
from tumorchain_jax.ultrasound.chains.write import RECORDS, read_records

PARTS = ("test", "folds", "all")
LEAST = 5
"""Lesions of a value, below which it is left out of a descriptor's balanced accuracy."""


@dataclass(frozen=True)
class Lesions:
    """The records that are asked about.

    Attributes:
        names: their ids.
        truth: their levels.
        clusters: patients with their near duplicates.
    """

    names: Sequence[str]
    truth: Sequence[Levels]
    clusters: Sequence[str]

    @property
    def malignant(self) -> Bool[np.ndarray, " N"]:
        """The truth of each."""
        return np.array([each.one("label") == "malignant" for each in self.truth], bool)


def read_lesions(folder: Path, part: str) -> Lesions:
    """The lesions of the `test` part, of all `folds`, of one by its number, or `all`.

    Raises:
        InputError: the records are malformed, there is no such part, or none is left of both
            labels.
    """
    if not (part in PARTS or part.isdecimal()):
        expected = f"one of {', '.join(PARTS)}, or the number of a fold"
        raise InputError("command line", "--part", part[:80], expected, "choose one")

    def is_wanted(fold: int) -> bool:
        if part.isdecimal():
            return fold == int(part)
        return part == "all" or (fold < 0) == (part == "test")

    kept = [
        (values["id"], levels, str(values.get("cluster")))
        for values, levels in read_records(folder)
        if levels.one("label") in ANSWERS and is_wanted(values["fold"])
    ]
    if len({levels.one("label") for _, levels, _ in kept}) < len(ANSWERS):
        found = f"{len(kept)} lesions of the part {part}, of one label or none"
        raise InputError(folder / RECORDS, "records", found, "both labels", "take another part")
    names, truth, clusters = zip(*kept, strict=True)
    return Lesions(names, truth, clusters)


def score_files(folder: Path, files: Mapping[str, Path], part: str = "test") -> dict[str, Any]:
    """Score files of replies by the records of a folder.

    Raises:
        InputError: a file is malformed or is about other records.
    """
    lesions = read_lesions(folder, part)
    known = {values["id"] for values, _ in read_records(folder)}
    arms = {}
    for arm, path in files.items():
        arms[arm] = read_replies(path)
        if strange := sorted(set(arms[arm]) - known):
            hint = "give the records that were asked about"
            raise InputError(path, "id", strange[0][:80], f"an id of {RECORDS}", hint)
    return score(lesions, arms)


def score(lesions: Lesions, arms: Mapping[str, Mapping[str, Reply]]) -> dict[str, Any]:
    """Scores of every arm and of every pair of arms, as plain values."""
    labels = lesions.malignant
    right = {arm: _right(lesions, replies) for arm, replies in arms.items()}
    scores = {arm: _scores(lesions, replies) for arm, replies in arms.items()}
    pairs = {}
    for one, other in combinations(arms, 2):
        only_one = int((right[one] > right[other]).sum())
        only_other = int((right[other] > right[one]).sum())
        pairs[f"{other} - {one}"] = {
            "auroc": _plain(difference(labels, scores[other], scores[one], lesions.clusters)),
            "accuracy": _plain(
                difference(labels, right[other], right[one], lesions.clusters, mean)
            ),
            f"right_only_{one}": only_one,
            f"right_only_{other}": only_other,
            "p_mcnemar": mcnemar(only_one, only_other),
        }
    return {
        "n": len(labels),
        "malignant": int(labels.sum()),
        "clusters": len(set(lesions.clusters)),
        "majority": float(max(labels.mean(), 1 - labels.mean())),
        "arms": {
            arm: _arm(lesions, replies, scores[arm], right[arm]) for arm, replies in arms.items()
        },
        "pairs": pairs,
    }


def mean(labels: Labels, scores: Scores, weights: Weights) -> Draws:
    """Mean of values, as a metric of `auc`."""
    return weights @ scores / weights.sum(axis=1)


def _right(lesions: Lesions, replies: Mapping[str, Reply]) -> Float[np.ndarray, " N"]:
    said = [replies[name].verdict if name in replies else None for name in lesions.names]
    truth = lesions.malignant
    return np.array([each == bool(own) for each, own in zip(said, truth, strict=True)], float)


def _scores(lesions: Lesions, replies: Mapping[str, Reply]) -> Float[np.ndarray, " N"]:
    found = []
    for name in lesions.names:
        reply = replies.get(name)
        if reply is None or reply.verdict is None:
            found.append(0.5)
        elif reply.malignant is None:
            found.append(float(reply.verdict))
        else:
            found.append(reply.malignant)
    return np.array(found)


def _arm(
    lesions: Lesions, replies: Mapping[str, Reply], scores: Scores, right: Scores
) -> dict[str, Any]:
    labels, clusters = lesions.malignant, lesions.clusters
    own = [replies[name] for name in lesions.names if name in replies]
    read = np.array([n in replies and replies[n].verdict is not None for n in lesions.names])
    area = estimates(labels, scores, clusters, {"auroc": auroc})["auroc"]
    accuracy = estimates(labels, right, clusters, {"accuracy": mean})["accuracy"]
    return {
        "accuracy": _plain(accuracy),
        "auroc": _plain(area),
        "missing": len(labels) - len(own),
        "unparsed": sum(reply.verdict is None for reply in own),
        "accuracy_of_parsed": float(right[read].mean()) if read.any() else None,
        "without_probability": sum(r.malignant is None and r.verdict is not None for r in own),
        "cut": sum(not reply.parsed.closed or bool(reply.parsed.cut) for reply in own),
        "contradictions": sum(bool(reply.parsed.faults) for reply in own),
        "descriptors": _descriptors(lesions, replies),
    }


def _descriptors(lesions: Lesions, replies: Mapping[str, Reply]) -> dict[str, Any]:
    """Of each field that some reply speaks of: accuracy beside the majority's, and balanced."""
    said = [replies[name].parsed.levels.values if name in replies else {} for name in lesions.names]
    found = {}
    for name, field in load_wording().fields.items():
        if field.level not in ("feature", "diagnosis") or not any(name in each for each in said):
            continue
        pairs = [
            (truth.values[name], own.get(name))
            for truth, own in zip(lesions.truth, said, strict=True)
            if name in truth.values
        ]
        counts = Counter(truth for truth, _ in pairs)
        kept = [value for value, count in counts.items() if count >= LEAST]
        if len(kept) < 2:
            continue
        recalls = [
            np.mean([own == truth for truth, own in pairs if truth == value]) for value in kept
        ]
        found[name] = {
            "n": len(pairs),
            "accuracy": float(np.mean([own == truth for truth, own in pairs])),
            "majority": max(counts.values()) / len(pairs),
            "balanced_accuracy": float(np.mean(recalls)),
            "chance": 1 / len(kept),
        }
    return found


def _plain(estimate: Estimate) -> list[float]:
    return [estimate.value, *estimate.ci95]


def scores_text(values: Mapping[str, Any]) -> str:
    """The same for people."""
    lines = [
        f"{values['n']} lesions, {values['malignant']} malignant, {values['clusters']} clusters; "
        f"majority {values['majority']:.3f}",
        f"{'arm':<14}{'AUROC':<24}{'ACC':<24}{'unparsed':>9}{'missing':>8}{'cut':>6}{'contrad.':>9}",
    ]
    for arm, row in values["arms"].items():
        lines.append(
            f"{arm:<14}{_with_interval(row['auroc']):<24}{_with_interval(row['accuracy']):<24}"
            f"{row['unparsed']:>9}{row['missing']:>8}{row['cut']:>6}{row['contradictions']:>9}"
        )
        if row["without_probability"]:
            lines.append(f"  {row['without_probability']} without a probability: counted as 0 or 1")
        for name, each in row["descriptors"].items():
            lines.append(
                f"  {name:<16}accuracy {each['accuracy']:.3f} (majority {each['majority']:.3f}),"
                f" balanced {each['balanced_accuracy']:.3f} (chance {each['chance']:.3f}),"
                f" n {each['n']}"
            )
    for name, row in values["pairs"].items():
        alone = ", ".join(
            f"{key.removeprefix('right_only_')} alone right {count}"
            for key, count in row.items()
            if key.startswith("right_only_")
        )
        lines.append(
            f"{name}: AUROC {_with_interval(row['auroc'])}, ACC {_with_interval(row['accuracy'])};"
            f" {alone}; McNemar p {row['p_mcnemar']:.3g}"
        )
    if values["clusters"] < values["n"] and values["pairs"]:
        lines.append("McNemar's test takes pictures for patients: trust the intervals more")
    return "\n".join(lines)


def _with_interval(values: Sequence[float]) -> str:
    value, low, high = values
    return f"{value:.3f} ({low:.3f}, {high:.3f})"
