"""Does a picture look like the breast ultrasound that a classifier was trained on?

By Mahalanobis' distance of its appearance (`ultrasound/appearance.py`) to the mean of the training
pictures', whose covariance is shrunk towards its diagonal. The threshold is chosen on pictures that
a fold has not seen, never on pictures of anything else, so that a stated share of breast pictures
is refused.

Shape letters: N M pictures, K numbers of an appearance.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int, UInt8
from PIL import Image
from safetensors.numpy import load_file
from scipy import ndimage

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import atomic_path
from tumorchain_jax.evaluation.auc import auroc, estimates
from tumorchain_jax.evaluation.statistics import wilson
from tumorchain_jax.ultrasound.appearance import NUMBERS, appearance
from tumorchain_jax.weights.tensor_files import write_arrays

SHRINKAGE, REFUSED_SHARE = 0.2, 0.02
NOISE_PX = 256
FILE = "guard.safetensors"
SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff"}


@dataclass(frozen=True)
class Guard:
    """What a readable picture looks like.

    Attributes:
        threshold: of the distance, beyond which a picture is refused.
    """

    mean: Float[np.ndarray, " K"]
    precision: Float[np.ndarray, "K K"]
    threshold: float = float("inf")

    def distances(self, values: Float[np.ndarray, "N K"]) -> Float[np.ndarray, " N"]:
        """Distance of each picture."""
        centred = values - self.mean
        return np.sqrt(np.einsum("nf,fg,ng->n", centred, self.precision, centred))


def fit_guard(values: Float[np.ndarray, "N K"]) -> Guard:
    """Fit mean and covariance; the threshold is not chosen yet."""
    mean = values.mean(axis=0)
    covariance = np.cov(values, rowvar=False)
    diagonal = np.diag(np.diag(covariance))
    shrunk = (1 - SHRINKAGE) * covariance + SHRINKAGE * diagonal
    return Guard(mean, np.linalg.inv(shrunk + 1e-6 * np.eye(len(mean))))


def threshold_of(distances: Float[np.ndarray, " N"]) -> float:
    """The threshold that refuses a share of `REFUSED_SHARE` of pictures that no training saw."""
    return float(np.quantile(distances, 1 - REFUSED_SHARE))


def save_guard(folder: Path, guard: Guard) -> None:
    """Write `guard.safetensors` beside a classifier."""
    arrays = {
        "mean": guard.mean,
        "precision": guard.precision,
        "threshold": np.array([guard.threshold]),
    }
    with atomic_path(folder / FILE) as part:
        write_arrays(part, arrays)


def load_guard(folder: Path) -> Guard:
    """Read a classifier's guard.

    Raises:
        InputError: there is none, or it measures pictures otherwise.
    """
    path = folder / FILE
    try:
        arrays = load_file(path)
        mean, precision = arrays["mean"], arrays["precision"]
        (threshold,) = arrays["threshold"].tolist()
    except Exception as error:  # safetensors raises errors of its own kind
        found = f"{type(error).__name__}: {error}"[:100]
        hint = "use a folder that `tumorchain bus crossval --ship` wrote"
        raise InputError(path, "guard", found, "a guard of this classifier", hint) from error
    if mean.shape != (NUMBERS,) or precision.shape != (NUMBERS, NUMBERS):
        found, expected = f"{mean.shape} numbers of a picture", f"{NUMBERS}"
        raise InputError(path, "guard", found, expected, "ship the classifier again")
    return Guard(mean, precision, threshold)


def appearances(greys: Iterable[UInt8[np.ndarray, "H W"]]) -> Float[np.ndarray, "N K"]:
    """Measure pictures of any sizes."""
    return np.stack([appearance(grey) for grey in greys])


def measured_guard(
    own: Float[np.ndarray, "N K"],
    folds: Int[np.ndarray, " N"],
    sources: np.ndarray,
    others: Mapping[str, Float[np.ndarray, "M K"]],
) -> tuple[Guard, dict[str, Any]]:
    """Fit a guard on breast pictures, choose its threshold on their folds, and measure it.

    Args:
        folds: of each picture.
        sources: the data set of each.
        others: appearances of what is no breast ultrasound, by name.

    Returns:
        the guard, and as plain values what it refuses: of pictures out of fold, of each data set by
        a guard that was fitted and given its threshold without it, and of the others.
    """
    distances = _out_of_fold(own, folds)
    guard = replace(fit_guard(own), threshold=threshold_of(distances))
    names, left_out = np.unique(sources), {}
    for source in names if len(names) > 1 else []:
        rest = sources != source
        limit = threshold_of(_out_of_fold(own[rest], folds[rest]))
        left_out[str(source)] = refused(fit_guard(own[rest]).distances(own[~rest]), limit)
    far = {name: guard.distances(values) for name, values in others.items()}
    return guard, {
        "breast_pictures": len(own),
        "breast_refused": float((distances > guard.threshold).mean()),
        "by_set": {
            str(source): refused(distances[sources == source], guard.threshold) for source in names
        },
        "left_out": left_out,
        "others": {
            name: {"auroc": _area(distances, away), **refused(away, guard.threshold)}
            for name, away in far.items()
        },
    }


def refused(distances: Float[np.ndarray, " N"], threshold: float) -> dict[str, Any]:
    """The share of pictures that is refused, with its 95 % interval (Wilson)."""
    count = int((distances > threshold).sum())
    interval = list(wilson(count, len(distances)))
    return {"n": len(distances), "refused": count / max(1, len(distances)), "ci95": interval}


def _out_of_fold(
    own: Float[np.ndarray, "N K"], folds: Int[np.ndarray, " N"]
) -> Float[np.ndarray, " N"]:
    distances = np.empty(len(own))
    for fold in np.unique(folds):
        held = folds == fold
        distances[held] = fit_guard(own[~held]).distances(own[held])
    return distances


def _area(near: Float[np.ndarray, " N"], far: Float[np.ndarray, " M"]) -> dict[str, Any]:
    scores = np.concatenate([near, far])
    names = [str(number) for number in range(len(scores))]
    found = estimates(np.arange(len(scores)) >= len(near), scores, names, {"auroc": auroc})["auroc"]
    return {"value": found.value, "ci95": list(found.ci95)}


def other_pictures(folders: Mapping[str, Path]) -> dict[str, list[UInt8[np.ndarray, "H W"]]]:
    """Pictures that are no breast ultrasound: those of folders, and noise made here.

    Raises:
        InputError: a folder has no picture.
    """
    rng, side = np.random.default_rng(0), NOISE_PX
    white = [rng.integers(0, 256, (side, side)).astype(np.uint8) for _ in range(50)]
    smooth = [ndimage.gaussian_filter(rng.normal(size=(side, side)), side / 18) for _ in range(50)]
    low, high = np.min(smooth), np.max(smooth)
    found = {
        "white noise": white,
        "smooth noise": [(255 * (each - low) / (high - low)).astype(np.uint8) for each in smooth],
    }
    for name, folder in folders.items():
        files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
        if not files:
            raise InputError(folder, "--others", "no picture", "pictures", "check the path")
        found[name] = []
        for path in files:
            with Image.open(path) as image:
                found[name].append(np.asarray(image.convert("L")))
    return found
