"""Measures of a change of style.

Shape letters: N pictures, S side, F features.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, UInt8

from tumorchain_jax.evaluation.ultrasound.logistic import fit_and_score
from tumorchain_jax.ultrasound.lesion import Box, Lesion

Pictures = UInt8[np.ndarray, "N S S"]
Features = Float[np.ndarray, "_ F"]
NOISE = 2 / 255
"""Of the test for hidden information: deviation of the noise, of grey values from 0 to 1."""


def standardized(reference: Features, *others: Features) -> list[Features]:
    """Features in deviations of the reference's; constant ones become 0."""
    mean, std = reference.mean(axis=0), reference.std(axis=0)
    return [(each - mean) / np.where(std > 1e-9, std, np.inf) for each in others]


def kernel_distance(one: Features, other: Features) -> float:
    """Unbiased squared MMD by the kernel (x.y / F + 1)^3 (KID: Binkowski et al. 2018).

    It may be slightly below 0 where both are alike.

    Raises:
        ValueError: fewer than two pictures of either.
    """
    if min(len(one), len(other)) < 2:
        raise ValueError("fewer than two pictures")

    def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return (a @ b.T / a.shape[1] + 1) ** 3

    def within(a: np.ndarray) -> float:
        k = kernel(a, a)
        return float((k.sum() - np.trace(k)) / (len(a) * (len(a) - 1)))

    return within(one) + within(other) - 2 * float(kernel(one, other).mean())


class Hidden(NamedTuple):
    """How much worse the way back becomes if what may be hidden in a translation is disturbed.

    Attributes:
        plain: mean absolute difference of pictures and their reconstructions, from 0 to 1.
        rounded, noisy: the same through 8 bits, and through noise.
    """

    plain: float
    rounded: float
    noisy: float

    @property
    def growth(self) -> float:
        """The larger of both against the plain one; below 2 little is hidden."""
        return max(self.rounded, self.noisy) / max(self.plain, 1e-9)


def hidden_information(
    images: Float[np.ndarray, "N S S"],
    forth: Callable[[np.ndarray], np.ndarray],
    back: Callable[[np.ndarray], np.ndarray],
    seed: int = 0,
) -> Hidden:
    """The steganography test (Chu et al. 2017).

    Args:
        images: from 0 to 1, as `forth` and `back` take and give them.
    """
    translated = forth(images)
    noise = np.random.default_rng(seed).normal(0, NOISE, translated.shape)
    disturbed = (translated, np.rint(translated * 255) / 255, np.clip(translated + noise, 0, 1))
    return Hidden(*(float(np.abs(back(each) - images).mean()) for each in disturbed))


def dark_region(picture: UInt8[np.ndarray, "S S"], box: Box) -> Bool[np.ndarray, "S S"]:
    """Pixels of the lesion's box that are darker than Otsu's threshold within its neighbourhood."""
    half = 0.25 * max(box.width, box.height)
    top, left = (max(0, int(each - half)) for each in (box.y, box.x))
    bottom, right = int(box.y + box.height + half) + 1, int(box.x + box.width + half) + 1
    threshold = otsu(picture[top:bottom, left:right])
    found = np.zeros(picture.shape, bool)
    rows, columns = slice(box.y, box.y + box.height), slice(box.x, box.x + box.width)
    found[rows, columns] = picture[rows, columns] <= threshold
    return found


def otsu(pixels: UInt8[np.ndarray, "H W"]) -> int:
    """The grey value that parts pixels into two classes of least variance (Otsu 1979)."""
    counts = np.bincount(pixels.ravel(), minlength=256).astype(float)
    share = np.cumsum(counts) / counts.sum()
    mean = np.cumsum(counts * np.arange(256)) / counts.sum()
    between = np.zeros(256)
    inside = (share > 0) & (share < 1)
    gap = mean[-1] * share - mean
    between[inside] = gap[inside] ** 2 / (share[inside] * (1 - share[inside]))
    return int(between.argmax())


def dice(one: Bool[np.ndarray, "S S"], other: Bool[np.ndarray, "S S"]) -> float:
    """Overlap of two regions; 1 where both are empty."""
    total = int(one.sum() + other.sum())
    return 2 * float((one & other).sum()) / total if total else 1.0


def box_in_view(row: Lesion, side: int) -> Box:
    """The lesion's box in the view `image`: padded to a square and resized.

    Raises:
        ValueError: the lesion has none.
    """
    if row.box is None:
        raise ValueError(f"no box of {row.id}")
    longer = max(row.width, row.height)
    scale = side / longer
    x = (row.box.x + (longer - row.width) // 2) * scale
    y = (row.box.y + (longer - row.height) // 2) * scale
    left, top = int(x), int(y)
    width, height = (max(2, round(each * scale)) for each in (row.box.width, row.box.height))
    return Box(left, top, min(width, side - left), min(height, side - top))


def overlaps(before: Pictures, after: Pictures, boxes: Sequence[Box]) -> Float[np.ndarray, " N"]:
    """Overlap of each lesion's dark region before and after."""
    return np.array(
        [
            dice(dark_region(one, box), dark_region(other, box))
            for one, other, box in zip(before, after, boxes, strict=True)
        ]
    )


class Device(NamedTuple):
    """A classifier of two looks, and what it says.

    Attributes:
        accuracy: balanced, on pictures of both looks that it was not fitted on.
        to_target: share of the translated pictures that it takes for the target's.
    """

    accuracy: float
    to_target: float


def device_classifier(
    train: tuple[Features, Features], held: tuple[Features, Features], translated: Features
) -> Device:
    """Logistic regression between two looks.

    Args:
        train, held: features of the one and of the target.
    """
    table = np.concatenate(train)
    labels = np.arange(len(table)) >= len(train[0])
    scores = [fit_and_score(table, labels, each, penalty=10.0) for each in (*held, translated)]
    accuracy = ((scores[0] < 0.5).mean() + (scores[1] >= 0.5).mean()) / 2
    return Device(float(accuracy), float((scores[2] >= 0.5).mean()))
