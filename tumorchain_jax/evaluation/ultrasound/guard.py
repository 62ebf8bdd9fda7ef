"""Is a picture like those that a classifier was trained on? By the distance of its features.

The distance is Mahalanobis' to the mean of the training features, whose covariance is shrunk
towards its diagonal. The threshold is chosen on pictures that a fold has not seen, never on
pictures of anything else, so that a stated share of breast pictures is refused.

Shape letters: N pictures, F features, S side.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image
from safetensors.numpy import load_file
from scipy import ndimage

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import atomic_path
from tumorchain_jax.ultrasound.view import square
from tumorchain_jax.weights.tensor_files import write_arrays

SHRINKAGE, REFUSED_SHARE = 0.2, 0.02
FILE = "guard.safetensors"
SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff"}


@dataclass(frozen=True)
class Guard:
    """What a readable picture's features look like.

    Attributes:
        threshold: of the distance, beyond which a picture is refused.
    """

    mean: Float[np.ndarray, " F"]
    precision: Float[np.ndarray, "F F"]
    threshold: float = float("inf")

    def distances(self, features: Float[np.ndarray, "N F"]) -> Float[np.ndarray, " N"]:
        """Distance of each picture."""
        centred = features - self.mean
        return np.sqrt(np.einsum("nf,fg,ng->n", centred, self.precision, centred))


def fit_guard(features: Float[np.ndarray, "N F"]) -> Guard:
    """Fit mean and covariance; the threshold is not chosen yet."""
    mean = features.mean(axis=0)
    covariance = np.cov(features, rowvar=False)
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


def load_guard(folder: Path, features: int) -> Guard:
    """Read a classifier's guard.

    Raises:
        InputError: there is none, or it is of another classifier.
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
    if mean.shape != (features,) or precision.shape != (features, features):
        found = f"for {mean.shape} features"
        raise InputError(path, "guard", found, f"for {features}", "use the classifier's own")
    return Guard(mean, precision, threshold)


def other_pictures(folders: Mapping[str, Path], side: int) -> dict[str, UInt8[np.ndarray, "N S S"]]:
    """Pictures that are no breast ultrasound: those of folders, and noise made here.

    Raises:
        InputError: a folder has no picture.
    """
    rng = np.random.default_rng(0)
    white = rng.integers(0, 256, (50, side, side)).astype(np.uint8)
    smooth = np.stack(
        [ndimage.gaussian_filter(rng.normal(size=(side, side)), 4) for _ in range(50)]
    )
    smooth = (255 * (smooth - smooth.min()) / np.ptp(smooth)).astype(np.uint8)
    found = {"white noise": white, "smooth noise": smooth}
    for name, folder in folders.items():
        files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
        if not files:
            raise InputError(folder, "--others", "no picture", "pictures", "check the path")
        images = []
        for path in files:
            with Image.open(path) as image:
                images.append(square(np.asarray(image.convert("L")), side))
        found[name] = np.stack(images)
    return found
