"""A contact sheet of a scan and its organ masks: one picture that shows whether they are right."""

import io

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from tumorchain_jax import NOTICE
from tumorchain_jax.anatomy.organs import MERGE, display_name
from tumorchain_jax.report.pictures import organ_colour
from tumorchain_jax.report.scan_pictures import Outlined, ScanPictures
from tumorchain_jax.report.windows import WINDOWS
from tumorchain_jax.scan.volume import Volume

COUNTS = (6, 3, 3)
"""Axial, coronal and sagittal slices, at even distances within the organs."""
SIDE, GAP, LINE, FONT, KEY = 320, 6, 18, 13, 8


def contact_sheet(ct: Volume, labels: Volume) -> Image.Image:
    """Draw slices of all three planes with every organ's outline, and the colours' meaning.

    Args:
        ct: HU.
        labels: TotalSegmentator v2 ids on its voxels.
    """
    pictures = ScanPictures(ct, labels)
    present = [label for label in np.unique(MERGE[labels.voxels]).tolist() if label]
    organs = [Outlined(label, organ_colour(rank)) for rank, label in enumerate(present)]
    tiles = [
        _tile(pictures.rgb(axis, index, organs, WINDOWS["soft"]))
        for axis, count in enumerate(COUNTS)
        for index in _indices(pictures.shape[axis], count)
    ]
    across = COUNTS[0]
    down = -(-len(tiles) // across)
    rows = -(-len(organs) // across)
    width = across * (SIDE + GAP) + GAP
    height = down * (SIDE + GAP) + GAP + (rows + 1) * LINE + GAP
    sheet = Image.new("RGB", (width, height))
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(FONT)
    for number, tile in enumerate(tiles):
        row, column = divmod(number, across)
        sheet.paste(tile, (GAP + column * (SIDE + GAP), GAP + row * (SIDE + GAP)))
    top = down * (SIDE + GAP) + GAP
    for number, organ in enumerate(organs):
        row, column = divmod(number, across)
        left, at = GAP + column * (SIDE + GAP), top + row * LINE
        draw.rectangle((left, at + 4, left + KEY, at + 4 + KEY), organ.colour)
        draw.text((left + 2 * KEY, at), display_name(organ.label), organ.colour, font)
    draw.text((GAP, top + rows * LINE), NOTICE, (170, 170, 170), font)
    return sheet


def png(picture: Image.Image) -> bytes:
    """Return a picture as a PNG file."""
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return buffer.getvalue()


def _indices(size: int, count: int) -> list[int]:
    """Slices at even distances, neither the first nor the last."""
    return [round((number + 1) * (size - 1) / (count + 1)) for number in range(count)]


def _tile(picture: Image.Image) -> Image.Image:
    """A picture in the middle of a square."""
    scale = SIDE / max(picture.size)
    size = max(1, round(picture.width * scale)), max(1, round(picture.height * scale))
    tile = Image.new("RGB", (SIDE, SIDE))
    tile.paste(picture.resize(size), ((SIDE - size[0]) // 2, (SIDE - size[1]) // 2))
    return tile
