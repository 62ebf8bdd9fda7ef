"""A small copy of a scan and its organs that a page can hold and scroll through.

Its frame is the canonical one: axes towards superior, posterior and the patient's left. Shape
letters: D, H, W of the copy.
"""

import base64
import io
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image

from tumorchain_jax.anatomy.organs import MERGE, ORGANS, display_name
from tumorchain_jax.report.pictures import Colour, organ_colour
from tumorchain_jax.report.windows import WINDOWS, level_hu, levels
from tumorchain_jax.scan.orientation import canonical
from tumorchain_jax.scan.volume import Volume

LESION = 255
"""Label of a lesion of known truth."""
QUALITY, TILE = 75, 8
"""Of the JPEG in which slices travel: its quality, and the side of its blocks."""


@dataclass(frozen=True)
class SmallScan:
    """The copy.

    Attributes:
        greys: levels of `windows.py`, each the mean of the voxels that it stands for.
        labels: merged labels (Table 10), `LESION`, or 0.
        spacing_mm: along D, H, W.
        to_mm: of voxels of the copy, to RAS+.
        reduced: whether it is coarser than the scan.
    """

    greys: UInt8[np.ndarray, "D H W"]
    labels: UInt8[np.ndarray, "D H W"]
    spacing_mm: tuple[float, ...]
    to_mm: Float[np.ndarray, "4 4"]
    reduced: bool

    def info(
        self, colours: Mapping[int, Colour] | None = None, volumes_ml: Mapping[str, float] = {}
    ) -> dict[str, Any]:
        """What `viewer.js` takes beside the voxels, as JSON.

        Args:
            colours: of merged labels; other organs have further colours.
            volumes_ml: by the organ's name in Table 10.
        """
        return {
            "shape": self.greys.shape,
            "spacing_mm": self.spacing_mm,
            "to_voxel": np.linalg.inv(self.to_mm).tolist(),
            "level_hu": level_hu().round(1).tolist(),
            "windows": {name: window._asdict() for name, window in WINDOWS.items()},
            "organs": self._organs(colours or {}, volumes_ml),
            "reduced": self.reduced,
        }

    def _organs(
        self, colours: Mapping[int, Colour], volumes_ml: Mapping[str, float]
    ) -> list[dict[str, Any]]:
        """The organs that are there, each with the voxel where it is largest."""
        found, free = [], len(colours)
        for label in (int(each) for each in np.unique(self.labels) if each):
            mask = self.labels == label
            at = [int(mask.sum(axis=tuple({0, 1, 2} - {axis})).argmax()) for axis in range(3)]
            colour = colours.get(label)
            if colour is None:
                colour, free = organ_colour(free), free + 1
            organ = "" if label == LESION else ORGANS[label]
            volume = volumes_ml.get(organ)
            found.append(
                {
                    "label": label,
                    "organ": organ,
                    "name": "true lesion" if label == LESION else display_name(label),
                    "at": at,
                    "colour": colour,
                    "volume_ml": None if volume is None else round(volume, 1),
                }
            )
        return found

    def grey_jpeg(self) -> bytes:
        """The slices side by side in rows, as `report.js` takes them apart.

        There are ceil(sqrt(D)) of them in a row; each is padded to whole blocks, so that none
        shows through in its neighbour.
        """
        D, H, W = self.greys.shape
        padding = ((0, 0), (0, -H % TILE), (0, -W % TILE))
        padded = np.pad(self.greys, padding, mode="edge")
        _, high, wide = padded.shape
        columns = int(np.ceil(np.sqrt(D)))
        rows = -(-D // columns)
        sheet = np.zeros((rows * columns, high, wide), np.uint8)
        sheet[:D] = padded
        sheet = sheet.reshape(rows, columns, high, wide).swapaxes(1, 2)
        picture = Image.fromarray(sheet.reshape(rows * high, columns * wide))
        buffer = io.BytesIO()
        picture.save(buffer, "JPEG", quality=QUALITY, optimize=True)
        return buffer.getvalue()

    def packed_labels(self) -> bytes:
        """The labels as a zlib stream."""
        return zlib.compress(self.labels.tobytes(), 9)


def small_scan(
    ct: Volume, labels: Volume | None, lesion: Volume | None, most_voxels: int
) -> SmallScan:
    """Make a copy of at most `most_voxels` voxels.

    Args:
        ct: HU.
        labels: TotalSegmentator v2 ids on the scan's voxels; None: no organs.
        lesion: nonzero in a lesion; None: no lesion.
    """
    ct = canonical(ct)
    steps = _steps(ct.shape, most_voxels)
    index = [_middles(size, step) for size, step in zip(ct.shape, steps, strict=True)]
    greys = np.zeros([len(each) for each in index], np.uint8)
    for number, slice_ in enumerate(index[0]):
        picture = Image.fromarray(levels(ct.voxels[slice_]))
        greys[number] = np.asarray(picture.reduce((steps[2], steps[1])))
    found = np.zeros(greys.shape, np.uint8)
    if labels is not None:
        found = MERGE[canonical(labels).voxels[np.ix_(*index)]].astype(np.uint8)
    if lesion is not None:
        found[canonical(lesion).voxels[np.ix_(*index)] != 0] = LESION
    to_mm = ct.affine @ np.diag([*map(float, steps), 1.0])
    to_mm[:3, 3] += ct.affine[:3, :3] @ [(step - 1) / 2 for step in steps]
    spacing = tuple(s * step for s, step in zip(ct.spacing, steps, strict=True))
    return SmallScan(greys, np.ascontiguousarray(found), spacing, to_mm, max(steps) > 1)


def embedded(small: SmallScan) -> tuple[str, str]:
    """The slices as a data URI, and the labels in base64."""
    greys, labels = small.grey_jpeg(), small.packed_labels()
    uri = f"data:image/jpeg;base64,{base64.b64encode(greys).decode()}"
    return uri, base64.b64encode(labels).decode()


def _steps(shape: Sequence[int], most_voxels: int) -> list[int]:
    """Take every second voxel, then every third, ..., of the axis that has most left."""
    steps = [1, 1, 1]
    while np.prod([-(-n // step) for n, step in zip(shape, steps, strict=True)]) > most_voxels:
        left = [size / step for size, step in zip(shape, steps, strict=True)]
        steps[int(np.argmax(left))] += 1
    return steps


def _middles(size: int, step: int) -> np.ndarray:
    """Index of the middle of each group of `step` voxels; of the last group, at most its end."""
    return np.minimum(np.arange(0, size, step) + step // 2, size - 1)
