"""Styles against scikit-image and against what defines them."""

import numpy as np
import pytest
from scipy import ndimage
from skimage.exposure import match_histograms as reference_match

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.ultrasound.style import (
    STYLES,
    find_style,
    fourier_adapt,
    match_histograms,
    restyled,
)


def pair(side: int = 45) -> tuple[np.ndarray, np.ndarray]:
    """Pictures of two looks, with a black border of their own."""
    noise = np.random.default_rng(0).normal(size=(2, side, side))
    smooth = np.stack([ndimage.gaussian_filter(each, 3) for each in noise])
    grey = np.interp(smooth, (smooth.min(), smooth.max()), (1, 255)).astype(np.uint8)
    dark, bright = grey[:1] // 3, grey[1:]
    dark[:, :5] = 0
    return dark, bright


def test_histograms_are_those_of_scikit_image() -> None:
    dark, bright = pair()
    inside = dark[0] > 0
    found = match_histograms(dark, bright)[0]
    expected = reference_match(dark[0][inside], bright[0].ravel())
    np.testing.assert_array_equal(found[inside], np.rint(expected))
    assert not found[~inside].any()
    np.testing.assert_array_equal(match_histograms(0 * dark, bright), 0 * dark)
    np.testing.assert_array_equal(match_histograms(dark, 0 * bright), dark)


@pytest.mark.parametrize("low_share", [0.0, 0.05])
def test_fourier_adaptation_swaps_low_amplitudes_alone(low_share: float) -> None:
    dark, bright = pair(44)
    dark, bright = np.maximum(dark, 60), np.clip(bright, 60, 100)
    found = fourier_adapt(dark, bright, low_share)[0].astype(float)
    reach = int(low_share * 44)
    amplitudes = [np.abs(np.fft.fft2(each)) for each in (found, dark[0], bright[0])]
    low = np.zeros((44, 44), bool)
    at = np.arange(-reach, reach + 1)
    low[np.ix_(at, at)] = True
    new, own, other = amplitudes
    rounding = 0.1 * 44**2  # to 8 bits: less than a tenth of a grey value for each pixel
    np.testing.assert_allclose(new[low], other[low], atol=rounding)
    np.testing.assert_allclose(new[~low], own[~low], atol=rounding)
    assert np.abs(own[low] - other[low]).max() > 1000


@pytest.mark.parametrize("name", STYLES)
def test_own_look_changes_nothing(name: str) -> None:
    dark, _ = pair()
    restyled = STYLES[name](dark, dark)
    assert restyled.dtype == np.uint8
    np.testing.assert_array_equal(restyled, dark)


def test_half_of_a_batch_is_restyled_by_draws_of_its_own() -> None:
    dark, bright = pair()
    batch, keys = np.repeat(dark, 40, axis=0), [(0, 7, row) for row in range(40)]
    found = restyled(find_style("histogram"), batch, bright, keys)
    expected = match_histograms(dark, bright)[0]
    changed = np.array([np.array_equal(each, expected) for each in found])
    assert 10 <= changed.sum() <= 30
    np.testing.assert_array_equal(found[~changed], batch[~changed])
    later = restyled(find_style("histogram"), batch[9:], bright, keys[9:])
    np.testing.assert_array_equal(later, found[9:])
    with pytest.raises(InputError, match="histogram, fda"):
        find_style("cubist")
