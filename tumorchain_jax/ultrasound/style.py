"""Give pictures the look of another device or data set, for training that has to carry over.

histogram    grey values are mapped so that their distribution is the reference's
fda          Fourier domain adaptation (Yang & Soatto 2020): the amplitudes of the lowest
             frequencies are the reference's; phases, and with them all edges, stay

Neither is trained, moves anything, or sees a label. Black stays black: it is padding, or outside
the sector.

Shape letters: N pictures, M references, S side, G grey values.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import UInt8

from tumorchain_jax.core.errors import InputError

Pictures = UInt8[np.ndarray, "N S S"]
LOW_SHARE = 0.03
"""Of the side: the swapped amplitudes lie within this many frequencies of zero, either way."""


@runtime_checkable
class Style(Protocol):
    """Restyles pictures."""

    def __call__(self, pictures: Pictures, references: Pictures) -> Pictures:
        """Give each picture the look of the reference at its place; the shapes are the same."""


def match_histograms(pictures: Pictures, references: Pictures) -> Pictures:
    """Map the grey values of each picture so that those above 0 are distributed as the reference's.

    As `skimage.exposure.match_histograms` of the pixels above 0. A picture or a reference that is
    all black leaves its picture as it is.
    """
    found = pictures.copy()
    for number, (picture, reference) in enumerate(zip(pictures, references, strict=True)):
        table = _mapping(picture, reference)
        if table is not None:
            found[number] = table[picture]
    return found


def _mapping(
    picture: UInt8[np.ndarray, "S S"], reference: UInt8[np.ndarray, "S S"]
) -> UInt8[np.ndarray, " G"] | None:
    """The new value of each of the 256 grey values; None if there is nothing to map."""
    own, other = (np.bincount(each.ravel(), minlength=256)[1:] for each in (picture, reference))
    if not own.any() or not other.any():
        return None
    shares, known = np.cumsum(own) / own.sum(), np.cumsum(other) / other.sum()
    present = np.flatnonzero(other)
    values = np.interp(shares, known[present], present + 1)
    return np.concatenate([[0], np.rint(values)]).astype(np.uint8)


def fourier_adapt(
    pictures: Pictures, references: Pictures, low_share: float = LOW_SHARE
) -> Pictures:
    """Swap the amplitudes of low frequencies for the references'.

    Args:
        low_share: see `LOW_SHARE`; at 0 the mean grey value alone is the reference's.
    """
    ours, theirs = (np.fft.fft2(each.astype(float)) for each in (pictures, references))
    amplitude = np.where(_is_low(pictures.shape[1:], low_share), np.abs(theirs), np.abs(ours))
    mixed = np.fft.ifft2(amplitude * np.exp(1j * np.angle(ours))).real
    return np.where(pictures > 0, np.clip(np.rint(mixed), 0, 255), 0).astype(np.uint8)


def _is_low(shape: tuple[int, ...], low_share: float) -> np.ndarray:
    reach = int(low_share * min(shape))
    rows, columns = (np.abs(np.fft.fftfreq(side, 1 / side)) <= reach for side in shape)
    return rows[:, None] & columns


STYLES: Mapping[str, Style] = {"histogram": match_histograms, "fda": fourier_adapt}
"""Those that need no training, by name."""


def find_style(name: str) -> Style:
    """A style by its name.

    Raises:
        InputError: there is none of that name.
    """
    if name not in STYLES:
        raise InputError("config", "data.style", name, f"one of {', '.join(STYLES)}", "choose one")
    return STYLES[name]


def restyled(
    style: Style,
    pictures: Pictures,
    references: UInt8[np.ndarray, "M S S"],
    keys: Sequence[Sequence[int]],
) -> Pictures:
    """Give about half of the pictures the looks of references that are drawn for them.

    Args:
        keys: of each picture's draws, which depend on nothing else.
    """
    draws = [np.random.default_rng(list(key)) for key in keys]
    chosen = [number for number, rng in enumerate(draws) if rng.random() < 0.5]
    found = pictures.copy()
    if chosen:
        lent = [int(draws[number].integers(len(references))) for number in chosen]
        found[chosen] = style(pictures[chosen], np.asarray(references[lent]))
    return found
