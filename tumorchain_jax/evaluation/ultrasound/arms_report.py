"""The table of `bus arms`: arms, the concept bottleneck, controls, and what all have to beat."""

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.auc import auroc, difference, estimates
from tumorchain_jax.evaluation.ultrasound.arms import Replies, finished, folds_of
from tumorchain_jax.evaluation.ultrasound.chain_scores import (
    Lesions,
    Seeds,
    mean,
    plain,
    probabilities,
    read_lesions,
    score,
    scores_text,
    share_right,
)
from tumorchain_jax.evaluation.ultrasound.concepts import bottleneck, is_described

BOTTLENECK = "bottleneck"


def report(data: Path, workdir: Path) -> dict[str, Any]:
    """Score the folds that every arm has finished with every seed.

    Returns:
        `all`: arms on all lesions of these folds; `described`: on those whose descriptors a reader
        gave, with the concept bottleneck beside; `controls`: each with its arm.

    Raises:
        InputError: a file is malformed, or no fold is finished.
    """
    found = finished(workdir, folds_of(data))
    own = {arm: by_fold for (arm, control), by_fold in found.items() if control == "none"}
    folds = _whole_folds(own.values())
    if not folds:
        hint = "run `tumorchain bus arms` on"
        raise InputError(workdir, "folds", "none that all arms have finished", "one or more", hint)
    lesions = read_lesions(data, "folds")
    lesions = lesions.only(np.isin(lesions.folds, folds))
    arms = {str(arm): _joined(by_fold, folds) for arm, by_fold in own.items()}
    values: dict[str, Any] = {
        "folds": folds,
        "of_folds": folds_of(data),
        "seeds": len(next(iter(arms.values()))),
        "all": score(lesions, arms),
        "described": None,
        "controls": {},
    }
    described = np.array([is_described(each) for each in lesions.truth], bool)
    if described.any():
        part = lesions.only(described)
        beside = {BOTTLENECK: _bottleneck(part, arms["chain"])} if "chain" in arms else {}
        beside = {name: seeds for name, seeds in beside.items() if all(map(len, seeds))}
        values["described"] = score(part, arms | beside)
    for (arm, control), by_fold in found.items():
        if control != "none" and set(folds) <= set(by_fold):
            replies = _joined(by_fold, folds)
            values["controls"][f"{arm}, {control}"] = _control(lesions, arms[arm], replies)
    return values


def _whole_folds(arms: Any) -> list[int]:
    """The folds that all arms have, each with as many seeds as any."""
    most = max((len(seeds) for each in arms for seeds in each.values()), default=0)
    whole = [{fold for fold, seeds in each.items() if len(seeds) == most} for each in arms]
    return sorted(set.intersection(*whole)) if whole else []


def _joined(by_fold: Mapping[int, Sequence[Replies]], folds: Sequence[int]) -> list[Replies]:
    """Replies about all folds, for each seed."""
    seeds = zip(*(by_fold[fold] for fold in folds), strict=False)
    return [dict(chain.from_iterable(each.items() for each in of_seed)) for of_seed in seeds]


def _bottleneck(lesions: Lesions, seeds: Sequence[Replies]) -> list[Replies]:
    truth, labels, folds = lesions.truth, lesions.malignant, lesions.folds
    return [bottleneck(lesions.names, truth, labels, folds, replies) for replies in seeds]


def _control(lesions: Lesions, own: Seeds, control: Seeds) -> dict[str, Any]:
    labels, clusters = lesions.malignant, lesions.clusters
    scores, right = probabilities(lesions, control), share_right(lesions, control)
    gap = difference(labels, scores, probabilities(lesions, own), clusters)
    return {
        "auroc": plain(estimates(labels, scores, clusters, {"auroc": auroc})["auroc"]),
        "accuracy": plain(estimates(labels, right, clusters, {"accuracy": mean})["accuracy"]),
        "less_arm": plain(gap),
    }


def report_text(values: Mapping[str, Any]) -> str:
    """The same for people."""
    lines = [
        f"folds {', '.join(map(str, values['folds']))} of {values['of_folds']}; "
        f"{values['seeds']} seed(s); each lesion by models that have not seen its fold",
        "",
        scores_text(values["all"]),
    ]
    if values["described"]:
        lines += ["", "Lesions with a reader's descriptors:", scores_text(values["described"])]
    if values["controls"]:
        lines += ["", "Controls: AUROC; less the arm's; ACC"]
    for name, row in values["controls"].items():
        shown = (
            f"{value:.3f} ({low:.3f}, {high:.3f})"
            for value, low, high in (row["auroc"], row["less_arm"], row["accuracy"])
        )
        lines.append(f"{name:<18}" + "   ".join(shown))
    return "\n".join(lines) + "\n"
