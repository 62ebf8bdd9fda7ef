"""`tumorchain bus crossval`: train on folds, score what each has not seen, with baselines beside.

    WORKDIR/SEED/fold_K/      a training; skipped where its export is there
    WORKDIR/SEED/left_SET/    trained without a data set (--leave-out)
    WORKDIR/scores.jsonl      a line for each seed and picture
    WORKDIR/crossval.json, crossval.txt    the tables

The test part is not touched: `bus evaluate` scores it, once.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from ml_collections import ConfigDict

from tumorchain_jax.core.files import write_file
from tumorchain_jax.evaluation.ultrasound.classifier import Classifier
from tumorchain_jax.training.classification.source import Pictures, fold_of, load_pictures
from tumorchain_jax.training.registry import train
from tumorchain_jax.weights.classifier_folder import load_classifier


class Run(NamedTuple):
    """One training of a cross-validation.

    Attributes:
        name: of its folder within the seed's.
        fold: that it does not see; -1 for none.
        held_out: data set that it does not see; empty for none.
        device: the only one that it sees; empty for all.
        style: see `training/classification/config.py`.
    """

    name: str
    fold: int = -1
    held_out: str = ""
    device: str = ""
    style: str = ""


class Scored(NamedTuple):
    """Scores of one seed.

    Attributes:
        folds: of each picture; -1 for the test part.
        scores: out of fold; not a number for the test part.
        left_out: scores of each data set by the training without it, where there is one.
    """

    seed: int
    folds: Int[np.ndarray, " N"]
    scores: Float[np.ndarray, " N"]
    left_out: Float[np.ndarray, " N"]


def cross_validate(
    config: ConfigDict, workdir: Path, seeds: Sequence[int], leave_out: bool = False
) -> tuple[Pictures, list[Scored]]:
    """Train and score every fold of every seed; what is there already is not done again.

    Args:
        config: of the task `classification`; its fold and seeds are set here.
        leave_out: also train without each data set, and score it.

    Raises:
        InputError: the configuration or the data cannot be used, or a folder is of another run.
        Stopped: a signal stopped a training.
    """
    pictures = load_pictures(config, workdir / "cache")
    found = []
    for seed in seeds:
        own = of_seed(config, seed)
        folds = fold_of(pictures, own)
        scores, left_out = (np.full(len(folds), np.nan) for _ in range(2))
        for run in runs(own, pictures, leave_out):
            classifier = trained(own, workdir, seed, run)
            chosen = folds == run.fold if not run.held_out else pictures.sources == run.held_out
            chosen = chosen & ~pictures.is_test
            where = left_out if run.held_out else scores
            where[chosen] = classifier.scores(pictures.images[chosen])
        found.append(Scored(seed, folds, scores, left_out))
    lines = "".join(json.dumps(line) + "\n" for line in _lines(pictures, found))
    write_file(workdir / "scores.jsonl", lines.encode())
    return pictures, found


def of_seed(config: ConfigDict, seed: int) -> ConfigDict:
    """The configuration of a seed, which deals the folds and draws the weights."""
    own = config.copy_and_resolve_references()
    own.seed = own.data.fold_seed = seed
    return own


def runs(config: ConfigDict, pictures: Pictures, leave_out: bool) -> Iterator[Run]:
    """The trainings of a seed."""
    for fold in range(config.data.folds):
        yield Run(f"fold_{fold}", fold)
    if leave_out:
        for source in sorted(set(pictures.sources)):
            yield Run(f"left_{source}", held_out=str(source))


def trained(config: ConfigDict, workdir: Path, seed: int, run: Run) -> Classifier:
    """Train one run unless its export is there, and open it.

    Args:
        config: of the seed.
    """
    folder = workdir / str(seed) / run.name
    config = config.copy_and_resolve_references()
    config.data.fold, config.data.held_out = run.fold, run.held_out
    config.data.device, config.data.style = run.device, run.style or config.data.style
    config.data.cache = str(workdir / "cache")
    if not (folder / "export" / "config.json").is_file():
        print(f"seed {seed}, {run.name}", flush=True)
        train(config, folder)
    return Classifier(load_classifier(folder / "export"), flips=True)


def _lines(pictures: Pictures, found: Sequence[Scored]) -> Iterator[dict[str, Any]]:
    for scored in found:
        for number, row in enumerate(pictures.rows):
            if np.isfinite(scored.scores[number]):
                left = scored.left_out[number]
                yield {
                    "seed": scored.seed,
                    "id": row.id,
                    "source": row.source,
                    "cluster": row.cluster,
                    "label": row.label,
                    "fold": int(scored.folds[number]),
                    "score": float(scored.scores[number]),
                    "left_out": float(left) if np.isfinite(left) else None,
                }
