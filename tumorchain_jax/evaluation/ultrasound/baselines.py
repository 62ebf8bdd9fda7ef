"""What a classifier has to beat: scores that see no picture, or little of it, on the same folds.

box           logistic regression on three numbers of the true lesion's box
size          logistic regression on the picture's size and mean grey value
birads        the reader's category as it is
descriptors   logistic regression on the reader's descriptors
majority      the share of malignant lesions among those trained on
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from tumorchain_jax.evaluation.ultrasound.logistic import fit_and_score
from tumorchain_jax.training.classification.source import Pictures
from tumorchain_jax.ultrasound.lesion import BIRADS, Box, Lesion

DESCRIPTORS = ("shape", "margin", "echo", "posterior", "halo", "calcifications", "skin_thickening")
CATEGORY = {name: number / (len(BIRADS) - 1) for number, name in enumerate(BIRADS)}
Row = Sequence[float]


@dataclass(frozen=True)
class Baseline:
    """Scores of the pictures that a baseline applies to.

    Attributes:
        what: in words.
        scores: not a number where it does not apply.
    """

    what: str
    scores: Float[np.ndarray, " N"]

    @property
    def applies(self) -> Bool[np.ndarray, " N"]:
        """Which pictures have a score."""
        return np.isfinite(self.scores)


def baselines(
    pictures: Pictures, greys: Float[np.ndarray, " N"], folds: Int[np.ndarray, " N"]
) -> dict[str, Baseline]:
    """Score the pictures of every fold by what was fitted on the other folds.

    Args:
        greys: mean grey value of each picture.
        folds: -1 for pictures that are left out.
    """
    rows = pictures.rows
    labels = pictures.labels == 1
    found = {
        "box": Baseline(
            "lesion box alone: aspect, height, width", by_fold(labels, folds, _each(rows, _box))
        ),
        "size": Baseline(
            "picture size and mean grey",
            by_fold(
                labels,
                folds,
                [
                    (float(r.width), float(r.height), float(g))
                    for r, g in zip(rows, greys, strict=True)
                ],
            ),
        ),
        "majority": Baseline(
            "share of malignant ones", by_fold(labels, folds, [(0.0,)] * len(rows))
        ),
    }
    categories = np.array([CATEGORY[row.birads] if row.birads else np.nan for row in rows])
    if np.isfinite(categories).any():
        found["birads"] = Baseline(
            "the reader's BI-RADS category", np.where(folds >= 0, categories, np.nan)
        )
    if any(row.descriptors for row in rows):
        described = _each(rows, _descriptors(rows))
        found["descriptors"] = Baseline(
            "the reader's seven descriptors", by_fold(labels, folds, described)
        )
    return found


def _each(rows: Sequence[Lesion], read: Callable[[Lesion], Row | None]) -> list[Row | None]:
    return [read(row) for row in rows]


def _box(row: Lesion) -> Row | None:
    return None if row.box is None else box_features(row.box, row.width, row.height)


def box_features(box: Box, width: int, height: int) -> Row:
    """Three numbers of a lesion's box in a picture of so many pixels."""
    return box.height / box.width, box.height / height, box.width / width


def _descriptors(rows: Sequence[Lesion]) -> Callable[[Lesion], Row | None]:
    """Reader of one-hot descriptors; several values joined by & or - count each."""

    def parts(row: Lesion) -> set[tuple[str, str]]:
        return {
            (name, part.strip())
            for name in DESCRIPTORS
            for part in row.descriptors.get(name, "").replace(" - ", "&").split("&")
            if part.strip()
        }

    known = sorted({part for row in rows for part in parts(row)})

    def read(row: Lesion) -> Row | None:
        own = parts(row)
        return [float(part in own) for part in known] if own else None

    return read


def by_fold(
    labels: Bool[np.ndarray, " N"],
    folds: Int[np.ndarray, " N"],
    features: Sequence[Row | None],
) -> Float[np.ndarray, " N"]:
    """Probabilities of every fold by logistic regression on the others; of -1 by all folds."""
    scores = np.full(len(labels), np.nan)
    has = np.array([each is not None for each in features])
    width = max((len(each) for each in features if each is not None), default=0)
    table = np.array([each if each is not None else (0.0,) * width for each in features], float)
    for fold in range(-1, int(folds.max()) + 1):
        train, test = has & (folds >= 0) & (folds != fold), has & (folds == fold)
        if test.any() and len(set(labels[train])) == 2:
            scores[test] = fit_and_score(table[train], labels[train], table[test])
    return scores


def by_source(pictures: Pictures) -> Mapping[str, Bool[np.ndarray, " N"]]:
    """Which pictures each data set has, and `all`."""
    sources = pictures.sources
    everything = np.ones(len(sources), bool)
    return {"all": everything} | {str(name): sources == name for name in sorted(set(sources))}
