"""What the page draws: a small copy of a scan and its organs, in the canonical frame."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tumorchain_jax.anatomy.organs import MERGE, ORGANS, display_name
from tumorchain_jax.report.pictures import organ_colour
from tumorchain_jax.report.windows import WINDOWS, level_hu, levels
from tumorchain_jax.scan.orientation import canonical
from tumorchain_jax.serve.ct.cases import Ready

MOST_VOXELS = 12_000_000
"""Of the copy: bytes that travel, once for the scan and once for its organs."""


@dataclass(frozen=True)
class ScanView:
    """A scan for the page.

    Attributes:
        info: sizes, organs and windows, as JSON.
        greys: uint8 `[D, H, W]`, levels of `report/windows.py`.
        labels: uint8 `[D, H, W]`, merged labels (Table 10); 0 where there is none.
    """

    info: dict[str, Any]
    greys: np.ndarray
    labels: np.ndarray


def scan_view(ready: Ready) -> ScanView:
    """Make the copy: every n-th voxel along each axis, so that it has at most `MOST_VOXELS`."""
    case = ready.case
    assert case.ct is not None, "a scan that was read has its voxels"
    ct = canonical(case.ct)
    steps = _steps(ct.shape)
    take = tuple(slice(step // 2, None, step) for step in steps)
    greys = levels(ct.voxels[take])
    labels = np.zeros(greys.shape, np.uint8)
    if case.labels is not None:
        labels = MERGE[canonical(case.labels).voxels[take]].astype(np.uint8)
    to_mm = ct.affine @ np.diag([*map(float, steps), 1.0])
    to_mm[:3, 3] += ct.affine[:3, :3] @ [step // 2 for step in steps]
    info = {
        "name": ready.name,
        "shape": greys.shape,
        "spacing_mm": [s * step for s, step in zip(ct.spacing, steps, strict=True)],
        "to_voxel": np.linalg.inv(to_mm).tolist(),
        "level_hu": level_hu().round(1).tolist(),
        "windows": {name: window._asdict() for name, window in WINDOWS.items()},
        "organs": _organs(labels, ready),
        "reduced": max(steps) > 1,
    }
    return ScanView(info, np.ascontiguousarray(greys), np.ascontiguousarray(labels))


def _steps(shape: tuple[int, int, int]) -> list[int]:
    """Take every second voxel, then every third, ..., of the axis that has most left."""
    steps = [1, 1, 1]
    while (
        np.prod([-(-size // step) for size, step in zip(shape, steps, strict=True)]) > MOST_VOXELS
    ):
        left = [size / step for size, step in zip(shape, steps, strict=True)]
        steps[int(np.argmax(left))] += 1
    return steps


def _organs(labels: np.ndarray, ready: Ready) -> list[dict[str, Any]]:
    """The organs that are there, each with the voxel where the page jumps to."""
    found = []
    statistics = ready.case.masks.statistics if ready.case.masks else {}
    for rank, label in enumerate(int(each) for each in np.unique(labels) if each):
        mask = labels == label
        at = [int(mask.sum(axis=tuple({0, 1, 2} - {axis})).argmax()) for axis in range(3)]
        measured = statistics.get(ORGANS[label])
        found.append(
            {
                "label": label,
                "organ": ORGANS[label],
                "name": display_name(label),
                "at": at,
                "colour": organ_colour(rank),
                "volume_ml": None if measured is None else round(measured.volume_ml, 1),
            }
        )
    return found
