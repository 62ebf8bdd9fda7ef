"""What arms have to beat, and the concept bottleneck: scores from a box, a category, descriptors.

The bottleneck is a logistic regression on the descriptors that a model wrote of pictures it had not
seen: for every fold it is fitted on those of the other folds. (The models that wrote these had seen
that fold, as in any stacking; the one that writes of the fold itself has not.)
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from tumorchain_jax.evaluation.ultrasound.baselines import (
    CATEGORY,
    Baseline,
    Row,
    box_features,
    by_fold,
)
from tumorchain_jax.evaluation.ultrasound.replies import BEGIN, Reply
from tumorchain_jax.ultrasound.chains.fields import load_wording
from tumorchain_jax.ultrasound.chains.record import Levels
from tumorchain_jax.ultrasound.chains.text import ANSWERS
from tumorchain_jax.ultrasound.lesion import Box

Said = Mapping[str, Sequence[str]]
"""Values of fields, as `Levels.values` has them."""
Column = tuple[str, str]


def is_described(levels: Levels) -> bool:
    """Whether a reader's descriptors of the lesion are known."""
    return bool(_descriptors(levels.values))


def references(
    records: Sequence[Mapping[str, Any]],
    truth: Sequence[Levels],
    labels: Bool[np.ndarray, " N"],
    folds: Int[np.ndarray, " N"],
) -> dict[str, Baseline]:
    """Score lesions by what sees no picture, or has all of a reader's words; -1: the test part.

    Args:
        records: lines of `records.jsonl`.
    """
    boxes = [_box(record) for record in records]
    columns = _columns(truth)
    described = [_one_hot(each.values, columns) if is_described(each) else None for each in truth]
    given = [each.one("category") for each in truth]
    categories = [CATEGORY[each] if each else np.nan for each in given]
    found = {
        "box": Baseline("the given box: aspect, height, width", by_fold(labels, folds, boxes)),
        "birads": Baseline("the reader's BI-RADS category", np.array(categories, float)),
        "descriptors": Baseline("the reader's descriptors", by_fold(labels, folds, described)),
    }
    return {name: each for name, each in found.items() if each.applies.any()}


def bottleneck(
    names: Sequence[str],
    truth: Sequence[Levels],
    labels: Bool[np.ndarray, " N"],
    folds: Int[np.ndarray, " N"],
    replies: Mapping[str, Reply],
) -> dict[str, Reply]:
    """Answers by logistic regression on descriptors that a model wrote out of fold.

    What it did not write, or what could not be read, is no value of any descriptor.

    Args:
        names: ids of lesions whose descriptors a reader gave.
        folds: of each.
        replies: by id; lesions without one get none from the bottleneck.
    """
    columns = _columns(truth)
    written = [
        _one_hot(replies[name].parsed.levels.values, columns) if name in replies else None
        for name in names
    ]
    found = {}
    for name, score in zip(names, by_fold(labels, folds, written), strict=True):
        if np.isfinite(score):
            said = ANSWERS["malignant" if score >= 0.5 else "benign"]
            found[name] = Reply(f"{BEGIN} {said} </answer>", float(score))
    return found


def _descriptors(said: Said) -> set[Column]:
    fields = load_wording().fields
    return {
        (name, value)
        for name, values in said.items()
        for value in values
        if name in fields and fields[name].level == "feature"
    }


def _columns(truth: Sequence[Levels]) -> list[Column]:
    return sorted({column for each in truth for column in _descriptors(each.values)})


def _one_hot(said: Said, columns: Sequence[Column]) -> Row:
    own = _descriptors(said)
    return [float(column in own) for column in columns]


def _box(record: Mapping[str, Any]) -> Row | None:
    box = record.get("box")
    return box and box_features(Box(**box), record["width"], record["height"])
