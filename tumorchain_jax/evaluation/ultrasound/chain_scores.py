"""Scores of replies about lesions, arm by arm and pair by pair.

Accuracy is by what a reply says; what cannot be read or never came is wrong, and is counted apart.
The area under the ROC curve is by the probability at the answer's slot; without one a reply counts
as 0 or 1, and as one half if it cannot be read. Of several seeds the probabilities are averaged,
and so are right and wrong. Intervals are over clusters: patients and near duplicates. Beside every
arm stands, unasked, what it has to beat: `concepts.py`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

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
from tumorchain_jax.evaluation.ultrasound.baselines import Baseline
from tumorchain_jax.evaluation.ultrasound.concepts import references
from tumorchain_jax.evaluation.ultrasound.replies import Reply, read_replies
from tumorchain_jax.ultrasound.chains.fields import load_wording
from tumorchain_jax.ultrasound.chains.record import Levels
from tumorchain_jax.ultrasound.chains.text import ANSWERS
from tumorchain_jax.ultrasound.chains.write import RECORDS, read_records

PARTS = ("test", "folds", "all")
LEAST = 5
"""Lesions of a value, below which it is left out of a descriptor's balanced accuracy."""
LEAST_OF_SET = 20
"""Lesions of either label, below which a data set gets no row of its own."""
Seeds = Sequence[Mapping[str, Reply]]
"""Replies of an arm by the ids of lesions, once for each seed."""


@dataclass(frozen=True)
class Lesions:
    """The records that are asked about.

    Attributes:
        names: their ids.
        truth: their levels.
        clusters: patients with their near duplicates.
        folds: of each; -1 for the test part.
        sources: data set of each.
        beside: what an arm has to beat, see `concepts.py`.
    """

    names: Sequence[str]
    truth: Sequence[Levels]
    clusters: Sequence[str]
    folds: Int[np.ndarray, " N"]
    sources: Sequence[str]
    beside: Mapping[str, Baseline] = field(default_factory=dict)

    @property
    def malignant(self) -> Bool[np.ndarray, " N"]:
        """The truth of each."""
        return np.array([each.one("label") == "malignant" for each in self.truth], bool)

    def only(self, chosen: Bool[np.ndarray, " N"]) -> "Lesions":
        """Some of them."""
        where = np.flatnonzero(chosen).tolist()
        names, clusters, sources = (
            [values[number] for number in where]
            for values in (self.names, self.clusters, self.sources)
        )
        truth = [self.truth[number] for number in where]
        beside = {
            name: Baseline(each.what, each.scores[where]) for name, each in self.beside.items()
        }
        return Lesions(names, truth, clusters, self.folds[where], sources, beside)


def read_lesions(folder: Path, part: str, source: str = "") -> Lesions:
    """The lesions of the `test` part, of all `folds`, of one by its number, or `all`.

    Args:
        source: only of this data set; empty for all.

    Raises:
        InputError: the records are malformed, there is no such part, or none is left of both
            labels.
    """
    if not (part in PARTS or part.isdecimal()):
        expected = f"one of {', '.join(PARTS)}, or the number of a fold"
        raise InputError("command line", "--part", part[:80], expected, "choose one")
    kept = [
        (values, levels)
        for values, levels in read_records(folder)
        if levels.one("label") in ANSWERS
    ]
    records, truth = [values for values, _ in kept], [levels for _, levels in kept]
    folds = np.array([values["fold"] for values in records], int)
    sources = [str(values.get("source")) for values in records]
    whole = Lesions(
        [values["id"] for values in records],
        truth,
        [str(values.get("cluster")) for values in records],
        folds,
        sources,
    )
    # Fitted before any choice, so that a part is scored by what was learnt on the folds.
    beside = references(records, truth, whole.malignant, folds)
    chosen = np.array([not source or each == source for each in sources], bool)
    if part.isdecimal():
        chosen &= folds == int(part)
    elif part != "all":
        chosen &= (folds < 0) == (part == "test")
    found = replace(whole, beside=beside).only(chosen)
    if len(set(found.malignant.tolist())) < len(ANSWERS):
        said = f"{len(found.names)} lesions of the part {part}, of one label or none"
        raise InputError(folder / RECORDS, "records", said, "both labels", "take another part")
    return found


def score_files(
    folder: Path, files: Mapping[str, Sequence[Path]], part: str = "test", source: str = ""
) -> dict[str, Any]:
    """Score files of replies, those of each seed of an arm, by the records of a folder.

    Raises:
        InputError: a file is malformed or is about other records.
    """
    lesions = read_lesions(folder, part, source)
    known = {values["id"] for values, _ in read_records(folder)}
    arms: dict[str, list[Mapping[str, Reply]]] = {}
    for arm, paths in files.items():
        arms[arm] = [read_replies(path) for path in paths]
        for path, replies in zip(paths, arms[arm], strict=True):
            if strange := sorted(set(replies) - known):
                hint = "give the records that were asked about"
                raise InputError(path, "id", strange[0][:80], f"an id of {RECORDS}", hint)
    return score(lesions, arms)


def score(lesions: Lesions, arms: Mapping[str, Seeds]) -> dict[str, Any]:
    """Scores of every arm and of every pair of arms, as plain values."""
    labels = lesions.malignant
    right = {arm: share_right(lesions, seeds) for arm, seeds in arms.items()}
    scores = {arm: probabilities(lesions, seeds) for arm, seeds in arms.items()}
    pairs = {}
    for one, other in combinations(arms, 2):
        first, second = right[one] > 0.5, right[other] > 0.5  # in most seeds
        only_one, only_other = int((first & ~second).sum()), int((second & ~first).sum())
        pairs[f"{other} - {one}"] = {
            "auroc": plain(difference(labels, scores[other], scores[one], lesions.clusters)),
            "accuracy": plain(difference(labels, right[other], right[one], lesions.clusters, mean)),
            f"right_only_{one}": only_one,
            f"right_only_{other}": only_other,
            "p_mcnemar": mcnemar(only_one, only_other),
        }
    return {
        "n": len(labels),
        "malignant": int(labels.sum()),
        "clusters": len(set(lesions.clusters)),
        "majority": float(max(labels.mean(), 1 - labels.mean())),
        "beside": {name: _beside(lesions, each, scores) for name, each in lesions.beside.items()},
        "arms": {arm: _arm(lesions, seeds, scores[arm], right[arm]) for arm, seeds in arms.items()},
        "sets": _sets(lesions, scores),
        "pairs": pairs,
    }


def _beside(lesions: Lesions, each: Baseline, scores: Mapping[str, Scores]) -> dict[str, Any]:
    """A reference's area, and that of every arm less it, on the lesions that it applies to."""
    where = np.flatnonzero(each.applies).tolist()
    labels, clusters = lesions.malignant[where], [lesions.clusters[number] for number in where]
    found: dict[str, Any] = {"what": each.what, "n": len(where), "auroc": None, "arm_less": {}}
    if len(set(labels.tolist())) == len(ANSWERS):
        own = each.scores[where]
        found["auroc"] = plain(estimates(labels, own, clusters, {"auroc": auroc})["auroc"])
        found["arm_less"] = {
            arm: plain(difference(labels, given[where], own, clusters))
            for arm, given in scores.items()
        }
    return found


def _sets(lesions: Lesions, scores: Mapping[str, Scores]) -> dict[str, Any]:
    """Areas by data set, where there are several and of enough lesions."""
    found: dict[str, Any] = {}
    for name in sorted(set(lesions.sources)):
        chosen = np.array([each == name for each in lesions.sources], bool)
        labels = lesions.malignant[chosen]
        is_few = min(labels.sum(), (~labels).sum()) < LEAST_OF_SET
        if is_few or chosen.all():
            continue
        clusters = [lesions.clusters[number] for number in np.flatnonzero(chosen).tolist()]
        named = {name: each.scores for name, each in lesions.beside.items()} | dict(scores)
        found[name] = {"n": len(labels), "malignant": int(labels.sum()), "auroc": {
            arm: plain(estimates(labels, own[chosen], clusters, {"auroc": auroc})["auroc"])
            for arm, own in named.items()
            if np.isfinite(own[chosen]).all()
        }}  # fmt: skip
    return found


def mean(labels: Labels, scores: Scores, weights: Weights) -> Draws:
    """Mean of values, as a metric of `auc`."""
    return weights @ scores / weights.sum(axis=1)


def share_right(lesions: Lesions, seeds: Seeds) -> Scores:
    """Of each lesion, in how many of the seeds the reply says what is true."""
    return np.mean([_right(lesions, replies) for replies in seeds], axis=0)


def probabilities(lesions: Lesions, seeds: Seeds) -> Scores:
    """Of each lesion, the mean over seeds of the probability of malignancy."""
    return np.mean([_scores(lesions, replies) for replies in seeds], axis=0)


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


def _arm(lesions: Lesions, seeds: Seeds, scores: Scores, right: Scores) -> dict[str, Any]:
    labels, clusters = lesions.malignant, lesions.clusters
    areas = {"auroc": auroc}
    own = [replies[name] for replies in seeds for name in lesions.names if name in replies]
    read = np.array(
        [
            [n in replies and replies[n].verdict is not None for n in lesions.names]
            for replies in seeds
        ]
    )
    hits = np.array([_right(lesions, replies) for replies in seeds])
    return {
        "accuracy": plain(estimates(labels, right, clusters, {"accuracy": mean})["accuracy"]),
        "auroc": plain(estimates(labels, scores, clusters, areas)["auroc"]),
        "auroc_of_seeds": [
            estimates(labels, _scores(lesions, replies), clusters, areas)["auroc"].value
            for replies in seeds
        ],
        "missing": len(seeds) * len(labels) - len(own),
        "unparsed": sum(reply.verdict is None for reply in own),
        "accuracy_of_parsed": float(hits[read].mean()) if read.any() else None,
        "without_probability": sum(r.malignant is None and r.verdict is not None for r in own),
        "cut": sum(not reply.parsed.closed or bool(reply.parsed.cut) for reply in own),
        "contradictions": sum(bool(reply.parsed.faults) for reply in own),
        "descriptors": _descriptors(lesions, seeds),
    }


def _descriptors(lesions: Lesions, seeds: Seeds) -> dict[str, Any]:
    """Of each field that some reply speaks of: accuracy beside the majority's, and balanced."""
    said = [
        (truth.values, replies[name].parsed.levels.values if name in replies else {})
        for replies in seeds
        for name, truth in zip(lesions.names, lesions.truth, strict=True)
    ]
    found = {}
    for name, each in load_wording().fields.items():
        is_spoken_of = any(name in own for _, own in said)
        if each.level not in ("feature", "diagnosis") or not is_spoken_of:
            continue
        pairs = [(truth[name], own.get(name)) for truth, own in said if name in truth]
        counts = Counter(truth for truth, _ in pairs)
        kept = [value for value, count in counts.items() if count >= LEAST * len(seeds)]
        if len(kept) < 2:
            continue
        recalls = [
            np.mean([own == truth for truth, own in pairs if truth == value]) for value in kept
        ]
        found[name] = {
            "n": len(pairs) // len(seeds),
            "accuracy": float(np.mean([own == truth for truth, own in pairs])),
            "majority": max(counts.values()) / len(pairs),
            "balanced_accuracy": float(np.mean(recalls)),
            "chance": 1 / len(kept),
        }
    return found


def plain(estimate: Estimate) -> list[float]:
    """The value and its interval."""
    return [estimate.value, *estimate.ci95]


def scores_text(values: Mapping[str, Any]) -> str:
    """The same for people."""
    lines = [
        f"{values['n']} lesions, {values['malignant']} malignant, {values['clusters']} clusters; "
        f"majority {values['majority']:.3f}",
        f"{'arm':<14}{'AUROC':<24}{'ACC':<24}{'unparsed':>9}{'missing':>8}{'cut':>6}{'contrad.':>9}",
    ]
    for name, row in values["beside"].items():
        if row["auroc"]:
            lines.append(f"{name:<14}{_with_interval(row['auroc']):<24}{row['what']}, n {row['n']}")
    for arm, row in values["arms"].items():
        lines.append(
            f"{arm:<14}{_with_interval(row['auroc']):<24}{_with_interval(row['accuracy']):<24}"
            f"{row['unparsed']:>9}{row['missing']:>8}{row['cut']:>6}{row['contradictions']:>9}"
        )
        if len(row["auroc_of_seeds"]) > 1:
            each = ", ".join(f"{value:.3f}" for value in row["auroc_of_seeds"])
            lines.append(f"  AUROC of the seeds: {each}; counts are of all seeds together")
        if row["without_probability"]:
            lines.append(f"  {row['without_probability']} without a probability: counted as 0 or 1")
        for name, each in row["descriptors"].items():
            lines.append(
                f"  {name:<16}accuracy {each['accuracy']:.3f} (majority {each['majority']:.3f}),"
                f" balanced {each['balanced_accuracy']:.3f} (chance {each['chance']:.3f}),"
                f" n {each['n']}"
            )
    for name, row in values["sets"].items():
        areas = "; ".join(f"{arm} {_with_interval(own)}" for arm, own in row["auroc"].items())
        lines.append(f"{name}, n {row['n']} ({row['malignant']} malignant): AUROC {areas}")
    for name, row in values["beside"].items():
        for arm, gap in row["arm_less"].items():
            lines.append(f"{arm} - {name}: AUROC {_with_interval(gap)}, n {row['n']}")
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
