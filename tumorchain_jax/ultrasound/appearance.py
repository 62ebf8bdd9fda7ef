"""What a picture looks like, in numbers that need no training: is it B-mode of a breast at all?

Speckle and layers give ultrasound a look of its own: detail is longer across the beam than along
it, and its strength changes with depth more than from side to side. CT, MR and radiographs have
smooth parts with sharp edges, a dark surround and two like halves; noise and photographs have other
spectra. Nothing here knows of lesions. All is measured on a copy of `SIDE_PX` on the longer side,
so that resolution and compression count little.

Shape letters: H W pixels, h w of the copy, K numbers.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image
from scipy import ndimage

SIDE_PX, LEAST_PX = 128, 32
"""The copy's longer side; least length of its shorter one, which the coarsest scale needs."""
SCALES = 5
"""Each half as fine as the one before."""
BLOCKS = 4
LAGS_PX = (1, 2, 3, 5, 8)
SLOW_PX = 4.0
"""Standard deviation of the blur that leaves what is no texture."""
NUMBERS = BLOCKS**2 + SCALES * 10 + 2 * len(LAGS_PX) + 2
Copy = Float[np.ndarray, "h w"]


def appearance(grey: UInt8[np.ndarray, "H W"]) -> Float[np.ndarray, " K"]:
    """Measure a picture: `NUMBERS` numbers without unit.

    contrast      log standard deviation of grey in each of 4 x 4 blocks
    detail        at five scales: log root mean square of differences of neighbours; across against
                  along the beam, one diagonal against the other, diagonals against both; how rare
                  large differences are
    correlation   of the texture with itself, 1 to 8 pixels away, across and along the beam
    symmetry      correlation with the picture mirrored left to right, and top to bottom
    """
    copy = _reduced(grey)
    parts = [_contrast(copy), _detail(copy), _correlation(copy), _symmetry(copy)]
    return np.concatenate([np.asarray(part, float) for part in parts])


def _reduced(grey: UInt8[np.ndarray, "H W"]) -> Copy:
    factor = SIDE_PX / max(grey.shape)
    height, width = (max(LEAST_PX, round(length * factor)) for length in grey.shape)
    way = Image.Resampling.BOX if factor < 1 else Image.Resampling.BICUBIC
    return np.asarray(Image.fromarray(grey).resize((width, height), way), float) / 255


def _contrast(copy: Copy) -> Sequence[float]:
    def blocks(values: Copy) -> np.ndarray:
        image = Image.fromarray(values.astype(np.float32))
        return np.asarray(image.resize((BLOCKS, BLOCKS), Image.Resampling.BOX)).ravel()

    return np.log(0.01 + np.sqrt(np.maximum(blocks(copy**2) - blocks(copy) ** 2, 0))).tolist()


def _detail(copy: Copy) -> Sequence[float]:
    found = []
    for _ in range(SCALES):
        across, along = np.diff(copy, axis=1), np.diff(copy, axis=0)
        falling, rising = copy[1:, 1:] - copy[:-1, :-1], copy[1:, :-1] - copy[:-1, 1:]
        h, v, f, r = (_log(_strength(each)) for each in (across, along, falling, rising))
        found += [(h + v) / 2, h - v, f - r, (f + r - h - v) / 2]
        found += [*_rarity(across), *_rarity(along)]
        height, width = (length // 2 * 2 for length in copy.shape)
        copy = copy[:height, :width].reshape(height // 2, 2, width // 2, 2).mean(axis=(1, 3))
    return found


def _strength(differences: Copy) -> float:
    return float(np.sqrt(np.mean(differences**2)))


def _log(value: float) -> float:
    return float(np.log(1e-3 + value))


def _rarity(differences: Copy) -> Sequence[float]:
    """Mean, median and 98th percentile of differences against each other."""
    sizes = np.abs(differences)
    mean, median, large = sizes.mean(), np.median(sizes), np.quantile(sizes, 0.98)
    return (
        _log(mean) - _log(_strength(differences)),
        float(np.log((2e-3 + median) / (2e-3 + mean))),
        float(np.log((2e-3 + large) / (2e-3 + mean))),
    )


def _correlation(copy: Copy) -> Sequence[float]:
    texture = copy - ndimage.gaussian_filter(copy, SLOW_PX)
    power = np.mean(texture**2) + 1e-6
    return [
        float(np.mean(way[:, lag:] * way[:, :-lag]) / power)
        for way in (texture, texture.T)
        for lag in LAGS_PX
    ]


def _symmetry(copy: Copy) -> Sequence[float]:
    centred = copy - copy.mean()
    power = np.sum(centred**2) + 1e-6
    return [float(np.sum(centred * np.flip(centred, axis)) / power) for axis in (1, 0)]
