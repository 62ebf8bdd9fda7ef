"""Pictures of the scan itself, in its own resolution, with outlines of masks and of the truth.

A picture is a grey JPEG of 8-bit levels (see `windows.py`), and a transparent PNG over it with the
outlines. Nothing is resampled in 3D: only the slices that are shown are read.
"""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from PIL import Image
from scipy import ndimage

from tumorchain_jax.anatomy.organs import MERGE
from tumorchain_jax.report.pictures import Colour, Picture
from tumorchain_jax.report.record import ReportRecord, View
from tumorchain_jax.report.windows import Window, levels, window_greys
from tumorchain_jax.scan.orientation import canonical
from tumorchain_jax.scan.volume import Volume

LESION_COLOUR: Colour = (255, 235, 0)
# Pictures have the scan's own pixels; one of more than this many a side is reduced to it.
LONGEST_PIXELS = 512
QUALITY = 80
TINT = 44
PLANES = (("axial", "RLAP"), ("coronal", "RLSI"), ("sagittal", "APSI"))
Slices = tuple[int, int, int]
Box = tuple[slice, slice, slice]


@dataclass(frozen=True)
class Cells:
    """ROI cells of one organ, to be tinted.

    Attributes:
        view: the volume that they were read from.
        inside: bool, the token grid.
    """

    view: View
    inside: np.ndarray


@dataclass(frozen=True)
class Outlined:
    """An organ of the label map, and the colour of its outline."""

    label: int
    colour: Colour


class ScanPictures:
    """Slices of a scan along its own axes, in radiological view.

    Args:
        ct: HU.
        labels: TotalSegmentator v2 ids on the scan's voxels; None: no mask is outlined.
        lesion: nonzero in a lesion of known truth, on the scan's voxels; None: no lesion.
    """

    def __init__(self, ct: Volume, labels: Volume | None = None, lesion: Volume | None = None):
        # Canonical axes run to superior, posterior and the patient's left.
        self._ct = canonical(ct)
        self._labels = None if labels is None else canonical(labels).voxels
        self._lesion = None if lesion is None else canonical(lesion).voxels != 0
        size = np.multiply(self._ct.shape, self._ct.spacing)
        pixel_mm = max(min(self._ct.spacing[1:]), size.max() / LONGEST_PIXELS)
        self._pixels = np.maximum(np.rint(size / pixel_mm), 1).astype(int).tolist()
        self._size_mm = size.tolist()

    @classmethod
    def of(cls, report: ReportRecord) -> "ScanPictures | None":
        """Return the pictures of a report's scan; None if the report does not hold the scan."""
        return None if report.ct is None else cls(report.ct, report.labels, report.lesion)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Slices from inferior to superior, from anterior to posterior, from right to left."""
        return self._ct.shape

    @cached_property
    def _organ_boxes(self) -> list[Box | None]:
        """Box of each TotalSegmentator id, from 1."""
        return [] if self._labels is None else ndimage.find_objects(self._labels)

    @cached_property
    def _lesion_box(self) -> Box | None:
        if self._lesion is None or not self._lesion.any():
            return None
        return ndimage.find_objects(self._lesion.view(np.uint8))[0]

    @cached_property
    def _lesion_organ(self) -> int:
        """Merged label that has most of the lesion's voxels; 0 if none has any."""
        if self._labels is None or self._lesion is None or self._lesion_box is None:
            return 0
        labels, lesion = self._labels[self._lesion_box], self._lesion[self._lesion_box]
        counts = np.bincount(MERGE[labels[lesion]], minlength=2)
        counts[0] = 0
        return int(counts.argmax())

    @property
    def has_lesion(self) -> bool:
        """Whether there is a lesion of known truth to outline."""
        return self._lesion_box is not None

    def best(self, label: int | None) -> Slices:
        """Return the axial, coronal and sagittal slice in which an organ is largest.

        For the organ with most of the lesion: in which the lesion is largest. Without an organ:
        the lesion's, and without a lesion the middle slices.

        Args:
            label: merged label; None for no organ.
        """
        box = None if label is None else self._organ_box(label)
        organ = None
        if box is not None:
            assert self._labels is not None
            organ = MERGE[self._labels[box]] == label
        lesion, around = self._lesion, self._lesion_box
        if lesion is not None and around and (organ is None or label == self._lesion_organ):
            return _largest(lesion[around], around)
        if organ is not None and box is not None:
            return _largest(organ, box)
        d, h, w = (size // 2 for size in self.shape)
        return d, h, w

    def planes(
        self, at: Slices, organs: Sequence[Outlined], cells: Cells | None = None
    ) -> tuple[Picture, ...]:
        """Draw the axial, coronal and sagittal slices `at`."""
        return tuple(self.picture(axis, index, organs, cells) for axis, index in enumerate(at))

    def picture(
        self, axis: int, index: int, organs: Sequence[Outlined], cells: Cells | None = None
    ) -> Picture:
        """Draw one slice.

        Args:
            axis: 0 axial, 1 coronal, 2 sagittal.
            index: of the slice along it.
            organs: whose masks are outlined.
            cells: are tinted with the first organ's colour.
        """
        grey, overlay = self._drawn(axis, index, organs, cells)
        name, sides = PLANES[axis]
        outlines = ""
        if overlay is not None:
            alpha = overlay.info["transparency"]
            outlines = _uri(overlay, "png", optimize=True, transparency=alpha)
        uri = _uri(grey, "jpeg", quality=QUALITY)
        width_mm = self._size_mm[2 if axis < 2 else 1]
        return Picture(name, sides, *grey.size, uri, outlines, width_mm, hu=True)

    def rgb(self, axis: int, index: int, organs: Sequence[Outlined], window: Window) -> Image.Image:
        """Draw one slice in a window, with the organs' outlines, for a file without layers."""
        grey, overlay = self._drawn(axis, index, organs, None)
        greys = np.rint(255 * window_greys(window)).astype(int).tolist()
        picture = grey.point(greys).convert("RGB")
        if overlay is not None:
            layer = overlay.convert("RGBA")
            picture.paste(layer, mask=layer)
        return picture

    def _drawn(
        self, axis: int, index: int, organs: Sequence[Outlined], cells: Cells | None
    ) -> tuple[Image.Image, Image.Image | None]:
        """Draw the levels of one slice, and its outlines."""
        high, wide = (each for each in range(3) if each != axis)
        size = self._pixels[wide], self._pixels[high]
        # Rows run down: posterior is down already, superior must be flipped up.
        flip = slice(None, None, -1) if high == 0 else slice(None)
        hu = _slice(self._ct.voxels, axis, index)[flip]
        grey = Image.fromarray(levels(hu)).resize(size, Image.Resampling.BILINEAR)
        return grey, self._overlay(axis, index, flip, size, organs, cells)

    def _overlay(
        self,
        axis: int,
        index: int,
        flip: slice,
        size: tuple[int, int],
        organs: Sequence[Outlined],
        cells: Cells | None,
    ) -> Image.Image | None:
        """Draw outlines on a transparent picture; None if there are none."""
        masks = []
        if self._labels is not None:
            merged = MERGE[_slice(self._labels, axis, index)[flip]]
            masks = [(merged == each.label, each.colour) for each in organs]
        if self._lesion is not None:
            masks.append((_slice(self._lesion, axis, index)[flip], LESION_COLOUR))
        tint = organs[0].colour if organs else LESION_COLOUR
        palette, alpha = [(0, 0, 0), tint], [0, TINT]
        drawn = np.zeros(size[::-1], np.uint8)
        if cells is not None:
            drawn[_resized(self._tinted(axis, index, cells)[flip], size)] = 1
        thick = max(1, round(max(size) / 256))
        for mask, colour in masks:
            inside = _resized(mask, size)
            drawn[inside & ~ndimage.binary_erosion(inside, iterations=thick)] = len(palette)
            palette.append(colour)
            alpha.append(255)
        if not drawn.any():
            return None
        picture = Image.fromarray(drawn)
        picture.putpalette(np.array(palette, np.uint8).tobytes())
        picture.info["transparency"] = bytes(alpha)
        return picture

    def _tinted(self, axis: int, index: int, cells: Cells) -> np.ndarray:
        """Find the pixels of a slice that lie in ROI cells."""
        shape = list(self.shape)
        shape[axis] = 1
        voxels = np.indices(shape).reshape(3, -1)
        voxels[axis] = index
        to_grid = np.linalg.inv(cells.view.transform.to_world) @ self._ct.affine
        points = to_grid[:3, :3] @ voxels + to_grid[:3, 3:]
        ratio = np.divide(cells.inside.shape, cells.view.transform.grid)[:, None]
        found = np.floor((points + 0.5) * ratio).astype(int)
        limit = np.array(cells.inside.shape)[:, None]
        there = ((found >= 0) & (found < limit)).all(axis=0)
        inside = np.zeros(there.shape, bool)
        inside[there] = cells.inside[tuple(found[:, there])]
        return inside.reshape([size for number, size in enumerate(shape) if number != axis])

    def _organ_box(self, label: int) -> Box | None:
        """The box of all ids of a merged label that are in the scan."""
        ids = np.flatnonzero(label == MERGE) - 1
        boxes = [self._organ_boxes[each] for each in ids if 0 <= each < len(self._organ_boxes)]
        there = [box for box in boxes if box is not None]
        if not there:
            return None
        axes = zip(*there, strict=True)
        d, h, w = (slice(min(s.start for s in a), max(s.stop for s in a)) for a in axes)
        return d, h, w


def _slice(voxels: np.ndarray, axis: int, index: int) -> np.ndarray:
    # `take` would copy the whole volume where its axes are reordered.
    return np.moveaxis(voxels, axis, 0)[index]


def _largest(mask: np.ndarray, box: Box) -> Slices:
    """Per axis, the slice with the most voxels of a mask that was cut out of a box."""
    sums = (mask.sum(axis=tuple({0, 1, 2} - {axis})) for axis in range(3))
    d, h, w = (int(each.argmax()) + cut.start for each, cut in zip(sums, box, strict=True))
    return d, h, w


def _resized(mask: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    return np.asarray(Image.fromarray(mask).resize(size, Image.Resampling.NEAREST))


def _uri(picture: Image.Image, kind: str, **options: object) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, kind.upper(), **options)
    return f"data:image/{kind};base64," + base64.b64encode(buffer.getvalue()).decode()
