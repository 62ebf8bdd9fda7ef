"""Where a classifier looks: how its logit changes when a part of the picture is blurred away.

A map is believed only if it depends on the weights: `sanity` compares the maps of a trained and of
a random model of the same kind (Adebayo et al. 2018).

Shape letters: N pictures, S side, G cells along a side.
"""

import numpy as np
from jaxtyping import Bool, Float, UInt8
from scipy import ndimage, stats

from tumorchain_jax.evaluation.ultrasound.classifier import Classifier

CELLS, REACH = 12, 1.5
"""Cells of a map along a side; a blurred square is so many cells wide."""
BLUR = 0.08
"""Of the side: deviation of the blur that takes the detail away."""


def occlusion_map(
    classifier: Classifier, image: UInt8[np.ndarray, "S S"]
) -> Float[np.ndarray, "G G"]:
    """Fall of the logit of malignancy where a square around each cell is blurred."""
    side = len(image)
    blurred = ndimage.gaussian_filter(image, BLUR * side)
    centres = (np.arange(CELLS) + 0.5) * side / CELLS
    half = REACH * side / CELLS / 2
    changed = []
    for y in centres:
        for x in centres:
            rows, columns = (slice(max(0, round(at - half)), round(at + half)) for at in (y, x))
            one = image.copy()
            one[rows, columns] = blurred[rows, columns]
            changed.append(one)
    scores = classifier.scores(np.stack([image, *changed]))
    logits = np.log(scores + 1e-9) - np.log1p(-scores + 1e-9)
    return (logits[0] - logits[1:]).reshape(CELLS, CELLS)


def sanity(
    trained: Classifier, random: Classifier, images: UInt8[np.ndarray, "N S S"]
) -> Float[np.ndarray, " N"]:
    """Rank correlation of the maps of a trained and of a random model, for each picture.

    Near 0: the maps depend on what was learned. Near 1: on the picture alone.
    """
    found = [
        stats.spearmanr(*(np.abs(occlusion_map(each, image)).ravel() for each in (trained, random)))
        for image in images
    ]
    return np.array([float(each.statistic) for each in found])


def inside_share(
    heat: Float[np.ndarray, "G G"], mask: Bool[np.ndarray, "S S"]
) -> tuple[float, float]:
    """Share of a map's absolute change within a lesion, and the lesion's share of the picture."""
    weight = ndimage.zoom(np.abs(heat), len(mask) / len(heat), order=1)
    size = min(weight.shape[0], len(mask))
    weight, mask = weight[:size, :size], mask[:size, :size]
    total = weight.sum()
    return (float(weight[mask].sum() / total) if total else 0.0), float(mask.mean())
