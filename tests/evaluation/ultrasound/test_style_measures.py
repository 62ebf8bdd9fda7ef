"""Measures of a change of style on pictures whose answer is known."""

import numpy as np
import pytest
from skimage.filters import threshold_otsu

from tumorchain_jax.evaluation.ultrasound.style.features import random_network, spectrum
from tumorchain_jax.evaluation.ultrasound.style.measures import (
    box_in_view,
    device_classifier,
    dice,
    hidden_information,
    kernel_distance,
    otsu,
    overlaps,
    standardized,
)
from tumorchain_jax.ultrasound.lesion import Box, Lesion


def pictures(count: int, seed: int, bright: float = 1.0, side: int = 32) -> np.ndarray:
    """Noise with a dark square in the middle."""
    images = np.random.default_rng(seed).normal(120, 15, (count, side, side)) * bright
    images[:, 10:22, 8:24] *= 0.3
    return np.clip(images, 1, 255).astype(np.uint8)


@pytest.mark.parametrize("features", [random_network, spectrum])
def test_distance_and_classifier_tell_looks_apart_and_no_more(features: object) -> None:
    one, like, other = (
        features(pictures(20, seed, bright)) for seed, bright in ((0, 1.0), (1, 1.0), (2, 1.4))
    )
    one, like, other = standardized(np.concatenate([one, other]), one, like, other)
    assert abs(kernel_distance(one, like)) < 0.05 * kernel_distance(one, other)
    device = device_classifier((one[:10], other[:10]), (one[10:], other[10:]), like)
    assert device.accuracy == 1.0
    assert device.to_target == 0.0
    assert device_classifier((one[:10], other[:10]), (one, other), other).to_target == 1.0


def test_kernel_distance_is_the_unbiased_one_by_its_definition() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(5, 3)), rng.normal(size=(4, 3)) + 1

    def k(a: np.ndarray, b: np.ndarray) -> float:
        return float((a @ b / 3 + 1) ** 3)

    within_x = np.mean([k(a, b) for i, a in enumerate(x) for j, b in enumerate(x) if i != j])
    within_y = np.mean([k(a, b) for i, a in enumerate(y) for j, b in enumerate(y) if i != j])
    between = np.mean([k(a, b) for a in x for b in y])
    assert kernel_distance(x, y) == pytest.approx(within_x + within_y - 2 * between, abs=1e-12)
    with pytest.raises(ValueError, match="two pictures"):
        kernel_distance(x[:1], y)


def test_hidden_information_is_found() -> None:
    """A way forth that hides the picture's fine detail at a thousandth of the grey values."""
    images = pictures(4, 0) / 255

    def hiding(x: np.ndarray) -> np.ndarray:
        return 0.5 + x * 1e-3

    def honest(x: np.ndarray) -> np.ndarray:
        return 0.25 + x / 2

    found = hidden_information(images, hiding, lambda x: (x - 0.5) * 1e3 + 1e-3)
    assert found.growth > 20
    found = hidden_information(images, honest, lambda x: (x - 0.25) * 2 + 0.02)
    assert 1 <= found.growth < 1.5


def test_dark_regions_of_lesions_overlap_as_far_as_they_are_kept() -> None:
    before = pictures(3, 0)
    box = Box(6, 8, 20, 16)
    assert otsu(before[0]) == threshold_otsu(before[0])
    np.testing.assert_array_equal(overlaps(before, before, [box] * 3), 1.0)
    brighter = np.clip(before * 1.3, 0, 255).astype(np.uint8)
    assert overlaps(before, brighter, [box] * 3).min() > 0.95
    moved = np.roll(before, 8, axis=2)
    assert overlaps(before, moved, [box] * 3).max() < 0.75
    assert dice(np.zeros((2, 2), bool), np.zeros((2, 2), bool)) == 1.0


def test_a_box_is_placed_in_the_padded_view() -> None:
    row = Lesion(
        id="x", image="", mask="", box=Box(20, 10, 40, 20), patient="p", patient_known=True,
        view="", device="", source="busi", label="benign", width=100, height=50,
    )  # fmt: skip
    assert box_in_view(row, 50) == Box(10, 17, 20, 10)
