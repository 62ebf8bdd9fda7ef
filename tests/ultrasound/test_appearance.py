"""Numbers of a picture's look: stable where they should be, apart where looks differ."""

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from tumorchain_jax.evaluation.ultrasound.guard import load_guard
from tumorchain_jax.pretrained import BUS_NANO
from tumorchain_jax.ultrasound.appearance import NUMBERS, appearance


def layers(turned: bool = False) -> np.ndarray:
    """Speckle that is long across the beam, in tissue that grows dark with depth."""
    rng = np.random.default_rng(0)
    speckle = ndimage.gaussian_filter(rng.normal(size=(256, 256)), (1.5, 6))
    made = 90 + 25 * speckle / speckle.std() - 60 * np.linspace(0, 1, 256)[:, None]
    made = made.T if turned else made
    return np.clip(made, 0, 255).astype(np.uint8)


@pytest.mark.parametrize("shape", [(16, 16), (16, 160), (700, 70)])
def test_any_picture_that_is_read_has_finite_numbers(shape: tuple[int, int]) -> None:
    for grey in (np.zeros(shape, np.uint8), np.full(shape, 255, np.uint8)):
        numbers = appearance(grey)
        assert numbers.shape == (NUMBERS,)
        assert np.isfinite(numbers).all()


def test_resolution_hardly_counts_and_direction_does() -> None:
    grey = layers()
    larger = Image.fromarray(grey).resize((700, 700), Image.Resampling.BICUBIC)
    own, turned = appearance(grey), appearance(layers(turned=True))
    assert np.abs(appearance(np.asarray(larger)) - own).max() < 0.1
    assert np.abs(turned - own).max() > 1
    # Turned by a right angle, across and along change places.
    across = slice(66, 71)
    np.testing.assert_allclose(own[across], turned[71:76], atol=1e-3)


def test_shipped_guard_refuses_what_is_drawn() -> None:
    guard, rng = load_guard(BUS_NANO), np.random.default_rng(0)
    y, x = np.mgrid[:256, :256] / 255
    drawn = [
        np.zeros((256, 256)),
        255 * y,
        rng.integers(0, 256, (256, 256)),
        127 + 120 * np.sin(30 * x),
        200.0 * (((y - 0.5) / 0.35) ** 2 + ((x - 0.5) / 0.45) ** 2 < 1),  # a body in air
    ]
    numbers = np.stack([appearance(each.astype(np.uint8)) for each in drawn])
    assert (guard.distances(numbers) > guard.threshold).all()
