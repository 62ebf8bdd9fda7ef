"""Slice policies: which slices of a CT a 2D model is shown, in which window, in which order.

A policy has a name and a version; whatever changes a picture or its words is a new version. Score
and policy belong together: centre slices miss many lesions, so a score says as much about the
policy as about the model.
"""

import hashlib
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from PIL import Image as Picture

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.llm.request import Image
from tumorchain_jax.scan.orientation import canonical
from tumorchain_jax.scan.volume import Volume

AXES = {"axial": 0, "coronal": 1, "sagittal": 2}
"""Of a canonical scan, see `scan/orientation.py`."""
_FROM_TO = {
    "sagittal": "from the patient's right to the left",
    "coronal": "from the front to the back",
    "axial": "from the top to the bottom",
}
LEAST_FOR_HEIGHTS = 8
"""Axial slices from which the height of an organ in the scan can be told."""


@dataclass(frozen=True)
class Cut:
    """One slice of a canonical scan.

    Attributes:
        plane: of `AXES`.
        index: along that axis.
        place: share of the scan before it, 0 to 1, in the direction of the captions.
    """

    plane: str
    index: int
    place: float


@dataclass(frozen=True)
class SlicePolicy:
    """What of a scan is sent.

    Attributes:
        name, version: of the policy.
        planes: plane and number of evenly spaced slices, in the order in which they are sent; each
            lies in the middle of its share of the scan.
        level, width: of the window in HU.
        longest: the most pixels along a side; pixels are square in millimetres.
    """

    name: str
    version: int
    planes: tuple[tuple[str, int], ...]
    level: float = 40.0
    width: float = 400.0
    longest: int = 512

    def __str__(self) -> str:
        """Name and version."""
        return f"{self.name} v{self.version}"

    @property
    def sha256(self) -> str:
        """Hash of everything that the policy says."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    @property
    def shows_heights(self) -> bool:
        """Whether it can be told how high in the scan something lies."""
        counts = dict(self.planes)
        from_above = counts.get("axial", 0) >= LEAST_FOR_HEIGHTS
        return from_above or "coronal" in counts or "sagittal" in counts

    def cuts(self, shape: Sequence[int]) -> list[Cut]:
        """Return the slices of a canonical scan of this shape, in their order."""
        cuts = []
        for plane, count in self.planes:
            size = shape[AXES[plane]]
            for number in range(count):
                place = (number + 0.5) / count
                before = int(place * size)
                # A canonical scan begins at the bottom, the front and the patient's right.
                index = size - 1 - before if plane == "axial" else before
                cuts.append(Cut(plane, index, place))
        return cuts

    def parts(self, ct: Volume) -> tuple[str | Image, ...]:
        """Return captions and pictures of a CT in HU, in their order, for a message."""
        scan = canonical(ct)
        cuts = self.cuts(scan.shape)
        parts: list[str | Image] = []
        for number, cut in enumerate(cuts, 1):
            picture, pixel_mm = self._picture(scan, cut)
            parts.append(
                f"Image {number} of {len(cuts)}: {cut.plane}, {100 * cut.place:.0f} % of the way "
                f"{_FROM_TO[cut.plane]} of the scan, pixels of {pixel_mm:.2f} mm."
            )
            parts.append(Image(picture))
        return tuple(parts)

    def _picture(self, ct: Volume, cut: Cut) -> tuple[bytes, float]:
        """Return an 8-bit PNG, and the side of its pixels in mm.

        The first row is the patient's front (axial) or top; the first column is the patient's
        right, or front (sagittal).
        """
        axis = AXES[cut.plane]
        hu = np.take(ct.voxels, cut.index, axis).astype(np.float64)
        hu = hu if cut.plane == "axial" else hu[::-1]
        grey = np.clip((hu - self.level) / self.width + 0.5, 0, 1)
        levels = np.rint(255 * np.nan_to_num(grey)).astype(np.uint8)
        down, across = (step for each, step in enumerate(ct.spacing) if each != axis)
        width_mm, height_mm = levels.shape[1] * across, levels.shape[0] * down
        pixel = max(min(across, down), max(width_mm, height_mm) / self.longest)
        size = max(1, round(width_mm / pixel)), max(1, round(height_mm / pixel))
        image = Picture.fromarray(np.ascontiguousarray(levels))
        if image.size != size:
            image = image.resize(size, Picture.Resampling.BILINEAR)
        file = io.BytesIO()
        image.save(file, "PNG")
        return file.getvalue(), pixel


POLICIES = {
    policy.name: policy
    for policy in (
        SlicePolicy("axial-16-even", 1, (("axial", 16),)),
        SlicePolicy("axial-center-1", 1, (("axial", 1),)),
        SlicePolicy("three-planes", 1, (("axial", 1), ("coronal", 1), ("sagittal", 1))),
    )
}


def find_policy(name: str) -> SlicePolicy:
    """Find a policy by name.

    Raises:
        InputError: there is none.
    """
    if name not in POLICIES:
        expected = f"one of {', '.join(POLICIES)}"
        raise InputError(
            "command line",
            "--slices",
            repr(name) if name else "none",
            expected,
            "name a slice policy",
        )
    return POLICIES[name]
