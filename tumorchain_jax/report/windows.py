"""Display windows: HU -> 8-bit levels of a picture, and SVG filters that show them in a window.

A picture stores one level for all windows: 3 HU a level in soft tissue, coarser elsewhere. The page
maps levels to greys with one of the filters, so that the window can be changed without a copy of
the picture for each.
"""

from typing import NamedTuple

import numpy as np

# Where the level changes its step: coarse in lung and in bone, fine in soft tissue.
_HU = (-1100.0, -200.0, 280.0, 1500.0)
_LEVELS = (0.0, 48.0, 208.0, 255.0)


class Window(NamedTuple):
    """A display window: its name on the page, and its centre and width in HU."""

    title: str
    level: float
    width: float


WINDOWS = {
    "soft": Window("Soft tissue", 40.0, 400.0),
    "lung": Window("Lung", -600.0, 1500.0),
    "bone": Window("Bone", 400.0, 1800.0),
}


def levels(hu: np.ndarray) -> np.ndarray:
    """Map HU to uint8 levels of the same shape; what is no number becomes air."""
    finite = np.nan_to_num(hu, nan=_HU[0], posinf=_HU[-1], neginf=_HU[0])
    return np.rint(np.interp(finite, _HU, _LEVELS)).astype(np.uint8)


def level_hu() -> np.ndarray:
    """Return the HU that each of the 256 levels stands for."""
    return np.interp(np.arange(256), _LEVELS, _HU)


def window_greys(window: Window) -> np.ndarray:
    """Return the grey, 0 to 1, in which each of the 256 levels is shown."""
    return np.clip((level_hu() - window.level) / window.width + 0.5, 0, 1)


def window_filters() -> str:
    """Return the SVG filters `window-NAME`, one for each of `WINDOWS`."""
    filters = "".join(_filter(name, window) for name, window in WINDOWS.items())
    return f'<svg class="filters" width="0" height="0" aria-hidden="true">{filters}</svg>'


def _filter(name: str, window: Window) -> str:
    table = " ".join(f"{grey:.3f}".rstrip("0").rstrip(".") for grey in window_greys(window))
    channels = "".join(f'<feFunc{c} type="table" tableValues="{table}"/>' for c in "RGB")
    return (
        f'<filter id="window-{name}" color-interpolation-filters="sRGB">'
        f"<feComponentTransfer>{channels}</feComponentTransfer></filter>"
    )
