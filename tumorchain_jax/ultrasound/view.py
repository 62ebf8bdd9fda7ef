"""What a classifier sees of a picture: the whole, its lesion, or all but its lesion.

image     the picture padded to a square by black, centred
lesion    a square around the lesion: the longer side of its box, times `MARGIN`
outside   the picture with a square of fixed size blanked over the lesion's middle: the square tells
          neither size nor shape of the lesion, and hides it unless it is larger

Resizing is PIL's bicubic, byte for byte what timm's own preprocessing of a square does.

Shape letters: H W pixels, S side of the view.
"""

from pathlib import Path
from typing import Literal, get_args

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.ultrasound.lesion import Lesion
from tumorchain_jax.ultrasound.picture import read_mask, read_picture

View = Literal["image", "lesion", "outside"]
VIEWS: tuple[View, ...] = get_args(View)
MARGIN, BLANK_SHARE = 1.5, 0.6
"""Of the box's longer side; of the picture's longer side."""


def render(folder: Path, row: Lesion, view: View, side: int) -> UInt8[np.ndarray, "S S"]:
    """Read a picture of a manifest and show a view of it.

    Raises:
        InputError: there is no box for a view that needs one, or the file cannot be read.
    """
    return _shown(read_picture(folder / row.image).grey, folder, row, view, side)


def render_mask(folder: Path, row: Lesion, view: View, side: int) -> UInt8[np.ndarray, "S S"]:
    """Show a lesion's mask (255 inside) as `render` shows its picture.

    Raises:
        InputError: the lesion has none, or its file cannot be read.
    """
    if not row.mask:
        hint = "leave it out, or set config.mask_weight=0"
        raise InputError(folder / row.image, "mask", "none", "one of the lesion", hint)
    mask = read_mask(folder / row.mask, (row.height, row.width))
    return _shown(mask.astype(np.uint8) * np.uint8(255), folder, row, view, side)


def _shown(
    grey: UInt8[np.ndarray, "H W"], folder: Path, row: Lesion, view: View, side: int
) -> UInt8[np.ndarray, "S S"]:
    if view not in VIEWS:
        raise InputError("config", "view", str(view), f"one of {', '.join(VIEWS)}", "choose one")
    if view == "image":
        return square(grey, side)
    if row.box is None:
        found = f"no box of a lesion in {row.id}"
        raise InputError(folder / row.image, "view", found, "one, or view=image", "leave it out")
    x, y = row.box.x + row.box.width / 2, row.box.y + row.box.height / 2
    if view == "lesion":
        half = MARGIN * max(row.box.width, row.box.height) / 2
        return _resized(_cut(grey, x, y, half), side)
    half = BLANK_SHARE * max(grey.shape) / 2
    blanked = grey.copy()
    top, left = (max(0, round(middle - half)) for middle in (y, x))
    blanked[top : round(y + half), left : round(x + half)] = 0
    return square(blanked, side)


def square(grey: UInt8[np.ndarray, "H W"], side: int) -> UInt8[np.ndarray, "S S"]:
    """Pad a picture to a square, centred, and resize it."""
    return _resized(_padded(grey), side)


def _padded(grey: UInt8[np.ndarray, "H W"]) -> UInt8[np.ndarray, "S S"]:
    side = max(grey.shape)
    before = [(side - length) // 2 for length in grey.shape]
    after = [side - length - first for length, first in zip(grey.shape, before, strict=True)]
    return np.pad(grey, list(zip(before, after, strict=True)))


def _cut(
    grey: UInt8[np.ndarray, "H W"], x: float, y: float, half: float
) -> UInt8[np.ndarray, "S S"]:
    """Cut a square; black where it leaves the picture."""
    side = max(1, round(2 * half))
    top, left = round(y - half), round(x - half)
    window = np.zeros((side, side), np.uint8)
    rows = slice(max(0, top), min(grey.shape[0], top + side))
    columns = slice(max(0, left), min(grey.shape[1], left + side))
    part = grey[rows, columns]
    window[rows.start - top :, columns.start - left :][: part.shape[0], : part.shape[1]] = part
    return window


def _resized(whole: UInt8[np.ndarray, "S S"], side: int) -> UInt8[np.ndarray, "T T"]:
    if whole.shape == (side, side):
        return whole
    return np.asarray(Image.fromarray(whole).resize((side, side), Image.Resampling.BICUBIC))
