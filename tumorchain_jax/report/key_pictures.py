"""Key pictures of a report as RGB arrays, for formats without a page, such as DICOM."""

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw, ImageFont

from tumorchain_jax.anatomy.organs import display_name
from tumorchain_jax.report.pictures import organ_colour
from tumorchain_jax.report.record import ReportRecord
from tumorchain_jax.report.scan_pictures import PLANES, Outlined, ScanPictures
from tumorchain_jax.report.windows import WINDOWS

MOST = 6
"""Pictures of a report: of the organs that the chain looked at first."""
NOTE = "AI result, not verified"
GAP, LINE, FONT = 8, 26, 16
SMALLEST = 384
"""Pixels of the longest side of a plane: a coarser scan is enlarged, so that captions fit."""
WHITE, GREY = (255, 255, 255), (170, 170, 170)
Rgb = UInt8[np.ndarray, "rows columns 3"]


def key_pictures(report: ReportRecord) -> list[Rgb]:
    """Draw the three planes through each organ that the chain looked at; middle slices without.

    The window is soft tissue; the organ's mask is outlined; a caption names the organ and says that
    the result is not verified. No text of the model, the user or the scan's header is in them.

    Returns:
        at most `MOST` pictures; none of a report that does not hold the scan.
    """
    pictures = ScanPictures.of(report)
    if pictures is None:
        return []
    mentions = [each for step in report.rounds for each in step.organs]
    labels = dict.fromkeys(each.label for each in mentions if each.outcome == "looked_at")
    if not labels:
        return [_picture(pictures, None, 0)]
    return [_picture(pictures, label, rank) for rank, label in enumerate([*labels][:MOST])]


def _picture(pictures: ScanPictures, label: int | None, rank: int) -> Rgb:
    organs, title = [], "No organ was looked at again: middle slices"
    if label is not None:
        organs, title = [Outlined(label, organ_colour(rank))], display_name(label).capitalize()
    at = pictures.best(label)
    planes = [pictures.rgb(axis, index, organs, WINDOWS["soft"]) for axis, index in enumerate(at)]
    times = -(-SMALLEST // max(max(plane.size) for plane in planes))
    planes = [plane.resize((times * plane.width, times * plane.height)) for plane in planes]
    width = sum(plane.width for plane in planes) + GAP * (len(planes) + 1)
    height = max(plane.height for plane in planes) + 2 * LINE
    whole = Image.new("RGB", (width, height))
    draw, font = ImageDraw.Draw(whole), ImageFont.load_default(FONT)
    draw.text((GAP, 3), title, organs[0].colour if organs else WHITE, font)
    right = width - GAP - draw.textlength(NOTE, font)
    draw.text((right, 3), NOTE, WHITE, font)
    left = GAP
    for plane, (name, sides) in zip(planes, PLANES, strict=True):
        whole.paste(plane, (left, LINE))
        caption = f"{name}: {sides[0]}-{sides[1]}, {sides[2]}-{sides[3]}"
        draw.text((left, LINE + plane.height + 3), caption, GREY, font)
        left += plane.width + GAP
    return np.array(whole)
