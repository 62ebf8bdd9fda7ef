"""What the page draws: a small copy of a scan and its organs."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tumorchain_jax.report.small_scan import small_scan
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
    """Make the copy."""
    case = ready.case
    assert case.ct is not None, "a scan that was read has its voxels"
    small = small_scan(case.ct, case.labels, None, MOST_VOXELS)
    statistics = case.masks.statistics if case.masks else {}
    info = small.info(volumes_ml={name: each.volume_ml for name, each in statistics.items()})
    return ScanView({"name": ready.name, **info}, small.greys, small.labels)
