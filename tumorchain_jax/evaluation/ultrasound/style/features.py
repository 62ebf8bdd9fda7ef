"""Two sets of features that no one trained on photographs: a random network's, and a spectrum's.

Shape letters: N pictures, S side, F features.
"""

import itertools
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt8

SEED, BATCH, RINGS, GREYS, WINDOW = 0, 16, 16, 16, 4
WIDTHS = (1, 16, 32, 64)
"""Channels of the random network: three convolutions of 3 x 3 pixels, each halving the sides."""
Pictures = UInt8[np.ndarray, "N S S"]
Features = Float[np.ndarray, "N F"]


def random_network(pictures: Pictures) -> Features:
    """Mean and deviation of every channel of a network with random weights of a fixed seed."""
    found = []
    for start in range(0, len(pictures), BATCH):
        part = pictures[start : start + BATCH]
        filled = np.zeros((BATCH, *part.shape[1:]), np.float32)
        filled[: len(part)] = part
        found.append(np.asarray(_pooled(filled, _kernels()))[: len(part)])
    return np.concatenate(found).astype(float)


@lru_cache(maxsize=1)
def _kernels() -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(SEED)
    pairs = itertools.pairwise(WIDTHS)
    kernels = [rng.normal(0, (2 / (9 * into)) ** 0.5, (3, 3, into, out)) for into, out in pairs]
    return tuple(kernel.astype(np.float32) for kernel in kernels)


@jax.jit
def _pooled(images: Float[Array, "B S S"], kernels: tuple[Array, ...]) -> Float[Array, "B F"]:
    x, found = images[..., None] / 127.5 - 1, []
    for kernel in kernels:
        layout = ("NHWC", "HWIO", "NHWC")
        x = jax.lax.conv_general_dilated(x, kernel, (2, 2), "SAME", dimension_numbers=layout)
        x = jax.nn.relu(x)
        found += [x.mean(axis=(1, 2)), x.std(axis=(1, 2))]
    return jnp.concatenate(found, axis=-1)


def spectrum(pictures: Pictures) -> Features:
    """Power in rings of frequency, the distribution of grey values, and speckle.

    The rings are logarithms of the mean power; speckle is mean over deviation of windows of 4 x 4
    pixels that are not black, as a distribution.
    """
    found = []
    for picture in pictures.astype(float):
        power = np.abs(np.fft.fft2(picture - picture.mean())) ** 2
        side = len(picture)
        frequency = np.hypot(*np.meshgrid(*[np.fft.fftfreq(side, 1 / side)] * 2))
        ring = np.minimum((frequency / (side / 2) * RINGS).astype(int), RINGS)
        total, count = (
            np.bincount(ring.ravel(), each, RINGS + 1) for each in (power.ravel(), None)
        )
        rings = np.log1p(total / np.maximum(count, 1))[:RINGS]
        greys = np.histogram(picture, GREYS, (0, 256))[0] / picture.size
        found.append(np.concatenate([rings, greys, _speckle(picture)]))
    return np.array(found)


def _speckle(picture: np.ndarray) -> np.ndarray:
    side = len(picture) // WINDOW * WINDOW
    cut = picture[:side, :side].reshape(side // WINDOW, WINDOW, side // WINDOW, WINDOW)
    windows = cut.transpose(0, 2, 1, 3).reshape(-1, WINDOW**2)
    windows = windows[(windows > 0).all(axis=1)]
    if not len(windows):
        return np.zeros(8)
    ratio = windows.mean(axis=1) / np.maximum(windows.std(axis=1), 1.0)
    return np.histogram(ratio, 8, (0, 16))[0] / len(windows)
