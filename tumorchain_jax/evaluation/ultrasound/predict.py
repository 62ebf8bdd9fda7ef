"""`tumorchain bus predict` and `bus evaluate`: a shipped classifier on pictures of its own."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.auc import METRICS, estimates
from tumorchain_jax.evaluation.ultrasound.baselines import baselines
from tumorchain_jax.evaluation.ultrasound.classifier import Classifier
from tumorchain_jax.evaluation.ultrasound.guard import appearances, load_guard, refused
from tumorchain_jax.training.classification.source import load_pictures
from tumorchain_jax.ultrasound.lesion import Box, Lesion, read_manifest
from tumorchain_jax.ultrasound.picture import read_picture
from tumorchain_jax.ultrasound.view import VIEWS, render
from tumorchain_jax.weights.classifier_folder import load_classifier

NOT_READABLE = "not a readable B-mode breast image"


def predict(
    folder: Path,
    files: Sequence[Path],
    box: Box | None = None,
    skip: Callable[[InputError], None] | None = None,
) -> Iterator[dict[str, Any]]:
    """Score pictures one by one; what is no breast ultrasound gets no class.

    Args:
        box: of the lesion, for a classifier of that view.
        skip: takes what is wrong with a picture, which is then left out; None: it is raised.

    Raises:
        InputError: the folder is no shipped classifier; a picture cannot be read; a box is missing.
    """
    read = load_classifier(folder)
    guard, classifier = load_guard(folder), Classifier(read, flips=True)
    view = next((each for each in VIEWS if each == read.view), None)
    if view is None:
        hint = "use a folder that `tumorchain bus crossval --ship` wrote"
        raise InputError(folder / "config.json", "view", read.view[:80], " or ".join(VIEWS), hint)
    if view != VIEWS[0] and box is None:
        expected = f"one: this classifier sees the view {read.view}"
        raise InputError("command line", "--box", "none", expected, "give x,y,width,height")
    for path in files:
        try:
            grey = read_picture(path).grey
            row = _lesion(path, grey.shape, box)
        except InputError as error:
            if skip is None:
                raise
            skip(error)
            continue
        distance = float(guard.distances(appearances([grey]))[0])
        readable = distance <= guard.threshold
        score = None
        if readable:
            image = render(path.parent, row, view, read.side)
            score = float(classifier.scores(image[None])[0])
        yield {
            "picture": str(path),
            "readable": readable,
            "malignant": None if score is None else round(score, 4),
            "said": NOT_READABLE if score is None else f"malignant: {score:.2f}",
            "distance": round(distance, 2),
            "threshold": round(guard.threshold, 2),
        }


def _lesion(path: Path, shape: tuple[int, ...], box: Box | None) -> Lesion:
    height, width = shape
    if box and (box.x + box.width > width or box.y + box.height > height):
        found = f"{box.x},{box.y},{box.width},{box.height}"
        expected = f"within {width} x {height}"
        raise InputError(path, "--box", found, expected, "give x,y,width,height in pixels")
    name = path.name
    return Lesion(name, name, "", box, "", False, "", "", "", "benign", width=width, height=height)


def evaluate(folder: Path, data: Path, cache: Path) -> dict[str, Any]:
    """Score the test part of a manifest, which no training and no choice has seen.

    Raises:
        InputError: a folder cannot be used, or the test part lacks a class.
    """
    read = load_classifier(folder)
    classifier = Classifier(read, flips=True)
    settings = {"folder": str(data), "view": read.view, "side": read.side}
    config = ConfigDict({"data": {**settings, "sources": "", "held_out": ""}})
    pictures = load_pictures(config, cache)
    test = np.flatnonzero(pictures.is_test)
    normal = [row for row in read_manifest(data) if row.label == "normal"]
    guard = load_guard(folder)

    def refusals(rows: Sequence[Lesion]) -> dict[str, Any]:
        greys = [read_picture(data / row.image).grey for row in rows]
        return refused(guard.distances(appearances(greys)), guard.threshold)

    labels = pictures.labels == 1
    if len(set(labels[test].tolist())) < 2:
        raise InputError(data, "test part", "one class", "both", "add pictures")
    scores = classifier.scores(pictures.images[test])
    clusters = [pictures.clusters[number] for number in test]
    greys = pictures.images.reshape(len(pictures.images), -1).mean(axis=1)
    # One fold that is tested, fitted on the rest.
    parts = np.where(pictures.is_test, 0, 1)
    beside = baselines(pictures, greys, parts)
    return {
        "n": len(test),
        "malignant": int(labels[test].sum()),
        "clusters": len(set(clusters)),
        "view": read.view,
        "guard": {
            "lesions": refusals([pictures.rows[int(number)] for number in test]),
            **({"normal": refusals(normal)} if normal else {}),
        },
        "classifier": {
            name: {"value": each.value, "ci95": list(each.ci95)}
            for name, each in estimates(labels[test], scores, clusters).items()
        },
        "baselines": {
            name: {
                "what": baseline.what,
                **_area(labels, baseline.scores, test, pictures.clusters),
            }
            for name, baseline in beside.items()
        },
    }


def _area(
    labels: np.ndarray, scores: np.ndarray, test: np.ndarray, clusters: Sequence[str]
) -> dict[str, Any]:
    where = [int(number) for number in test if np.isfinite(scores[number])]
    found = estimates(
        labels[where], scores[where], [clusters[k] for k in where], {"auroc": METRICS["auroc"]}
    )["auroc"]
    return {"n": len(where), "auroc": {"value": found.value, "ci95": list(found.ci95)}}
