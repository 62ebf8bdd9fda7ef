"""Draw slices of the model grid with ROI cells on them, as PNG data URIs."""

import base64
import colorsys
import io
from dataclasses import dataclass

import numpy as np
from PIL import Image
from scipy import ndimage

from tumorchain_jax.scan.orientation import canonical
from tumorchain_jax.scan.volume import Volume

Colour = tuple[int, int, int]

# All pictures of a scan share one scale in mm per pixel: the axial one has this many pixels a side,
# or fewer when the scan is so long that another picture would pass the limit.
AXIAL_PIXELS, LONGEST_PIXELS = 256, 512
# A picture is a PNG with a palette, for the file's sake: greys, the same greys with the ROI's
# colour over them, and that colour alone for the outline.
GREYS = 80
FILL = 0.2


@dataclass(frozen=True)
class Picture:
    """One slice.

    Attributes:
        plane: `axial`, `coronal` or `sagittal`.
        sides: letters of the patient's sides at the picture's left, right, top and bottom.
        width: pixels; a pixel is as many mm wide as it is high.
        height: pixels.
        uri: the picture as a `data:` URI.
        overlay: outlines over it, likewise; "" for none.
        width_mm: its width in the patient; 0 if a ruler is not to be drawn.
        hu: whether it has levels of HU (see `windows.py`) rather than greys.
    """

    plane: str
    sides: str
    width: int
    height: int
    uri: str
    overlay: str = ""
    width_mm: float = 0.0
    hu: bool = False


def organ_colour(rank: int) -> Colour:
    """Return the colour (RGB) of the `rank`-th organ of a report; golden steps keep hues apart."""
    red, green, blue = colorsys.hls_to_rgb((0.5 + rank * 0.618034) % 1.0, 0.58, 0.9)
    return round(255 * red), round(255 * green), round(255 * blue)


def planes(
    image: np.ndarray,
    to_world: np.ndarray,
    mask: np.ndarray,
    colour: Colour,
    through: np.ndarray | None = None,
) -> tuple[Picture, Picture, Picture]:
    """Draw axial, coronal and sagittal slices through the centre of an ROI, in radiological view.

    Args:
        image: float32 `[D, H, W]` in [0, 1].
        to_world: float64 `[4, 4]`, voxel index (d, h, w, 1) -> mm RAS+. The patient's sides and the
            proportions come from it; an oblique scan shows along its own axes.
        mask: bool `[D, H, W]`, the ROI.
        colour: of the ROI's outline and fill.
        through: bool `[D, H, W]`, a region whose centre the slices cross, instead of the ROI's.
            If it is empty, the middle slices are drawn.
    """
    # Canonical axes run to superior, posterior and the patient's left.
    scan = canonical(Volume(image, to_world))
    voxels, roi = scan.voxels, canonical(Volume(mask, to_world)).voxels
    d, h, w = _centre(roi if through is None else canonical(Volume(through, to_world)).voxels)
    length, depth, width = np.multiply(scan.shape, scan.spacing)
    pixel_mm = max(max(depth, width) / AXIAL_PIXELS, length / LONGEST_PIXELS)
    sizes = np.maximum(np.rint(np.divide((length, depth, width), pixel_mm)), 1).astype(int)
    rows, deep, wide = sizes.tolist()
    up = slice(None, None, -1)
    return (
        _picture("axial", "RLAP", (wide, deep), voxels[d], roi[d], colour),
        _picture("coronal", "RLSI", (wide, rows), voxels[up, h], roi[up, h], colour),
        _picture("sagittal", "APSI", (deep, rows), voxels[up, :, w], roi[up, :, w], colour),
    )


def _centre(mask: np.ndarray) -> list[int]:
    """Per axis, the slice with ROI voxels that is nearest to the ROI's centre of mass."""
    if not mask.any():
        return [size // 2 for size in mask.shape]
    positions = mask.nonzero()
    return [int(axis[np.abs(axis - axis.mean()).argmin()]) for axis in positions]


def _picture(
    plane: str,
    sides: str,
    size: tuple[int, int],
    grey: np.ndarray,
    roi: np.ndarray,
    colour: Colour,
) -> Picture:
    brightness = Image.fromarray(np.clip(grey, 0, 1).astype(np.float32))
    scaled = np.asarray(brightness.resize(size, Image.Resampling.BILINEAR))
    inside = np.asarray(Image.fromarray(roi).resize(size, Image.Resampling.NEAREST))
    levels = np.rint(scaled * (GREYS - 1)).astype(np.uint8)
    levels[inside] += GREYS
    levels[inside & ~ndimage.binary_erosion(inside)] = 2 * GREYS
    png = Image.fromarray(levels)
    png.putpalette(_palette(colour))
    buffer = io.BytesIO()
    png.save(buffer, "PNG", optimize=True)
    uri = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
    return Picture(plane, sides, *size, uri)


def _palette(colour: Colour) -> bytes:
    greys = np.linspace(0, 255, GREYS)[:, None].repeat(3, axis=1)
    filled = (1 - FILL) * greys + FILL * np.array(colour)
    return np.rint(np.vstack([greys, filled, colour])).astype(np.uint8).tobytes()
