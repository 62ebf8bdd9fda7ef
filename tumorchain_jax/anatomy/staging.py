"""T, N and M of a tumour from what an image shows, by the tables of the 8th edition (AJCC/UICC).

Where the tables ask for what a scan cannot show (mucosa or submucosa, nodes that are not enlarged),
the stated reading is ours. For digital patients and for checking answers: **not for clinical use**.
"""

from bisect import bisect_left
from dataclasses import dataclass
from typing import Literal

from tumorchain_jax.anatomy.organs import COLORECTUM, ESOPHAGUS, LIVER, PANCREAS, STOMACH

Depth = Literal["inner wall", "wall", "fat", "surface", "neighbour"]
"""How far the tumour of a hollow organ reaches: within the inner half of its wall, within the wall,
into the fat around it, to the surface that covers it, into another organ."""


@dataclass(frozen=True)
class Extent:
    """The findings that decide the stage.

    Attributes:
        organ: merged label of a digestive organ.
        diameters_mm: of each tumour in it, at least one.
        depth: of the deepest, in hollow organs; elsewhere only `neighbour` counts.
        small_vessel, large_vessel: whether a vessel within the organ is invaded, and whether a main
            one is (portal or hepatic vein; celiac axis, superior mesenteric or hepatic artery).
        nodes: how many regional nodes are enlarged.
        metastases: other organs with metastases, by merged label.
        peritoneum: whether the peritoneum has metastases.
    """

    organ: int
    diameters_mm: tuple[float, ...]
    depth: Depth = "wall"
    small_vessel: bool = False
    large_vessel: bool = False
    nodes: int = 0
    metastases: frozenset[int] = frozenset()
    peritoneum: bool = False


_DEPTHS: dict[int, dict[Depth, str]] = {
    STOMACH: {
        "inner wall": "T1b", "wall": "T2", "fat": "T3", "surface": "T4a", "neighbour": "T4b",
    },
    ESOPHAGUS: {
        "inner wall": "T1b", "wall": "T2", "fat": "T3", "surface": "T4a", "neighbour": "T4b",
    },
    COLORECTUM: {
        "inner wall": "T1", "wall": "T2", "fat": "T3", "surface": "T4a", "neighbour": "T4b",
    },
}  # fmt: skip
# The largest number of nodes for each category but the last.
_NODES: dict[int, tuple[tuple[int, ...], tuple[str, ...]]] = {
    LIVER: ((0,), ("N0", "N1")),
    PANCREAS: ((0, 3), ("N0", "N1", "N2")),
    STOMACH: ((0, 2, 6, 15), ("N0", "N1", "N2", "N3a", "N3b")),
    ESOPHAGUS: ((0, 2, 6), ("N0", "N1", "N2", "N3")),
    COLORECTUM: ((0, 1, 3, 6), ("N0", "N1a", "N1b", "N2a", "N2b")),
}


def stage(extent: Extent) -> tuple[str, str, str]:
    """Return the T, N and M categories."""
    return t_category(extent), n_category(extent), m_category(extent)


def t_category(extent: Extent) -> str:
    """Return the T category, such as `T2` or `T4b`.

    Raises:
        KeyError: not a digestive organ.
    """
    if extent.organ == PANCREAS:
        return _pancreas(extent)
    if extent.organ == LIVER:
        return _liver(extent)
    return _DEPTHS[extent.organ][extent.depth]


def n_category(extent: Extent) -> str:
    """Return the N category, such as `N1` or `N2a`."""
    limits, names = _NODES[extent.organ]
    return names[bisect_left(limits, extent.nodes)]


def m_category(extent: Extent) -> str:
    """Return the M category; colorectum: `M1a` one site, `M1b` more, `M1c` the peritoneum."""
    if extent.organ != COLORECTUM:
        return "M1" if extent.metastases or extent.peritoneum else "M0"
    if extent.peritoneum:
        return "M1c"
    return ("M0", "M1a", "M1b")[min(len(extent.metastases), 2)]


def _pancreas(extent: Extent) -> str:
    if extent.large_vessel:
        return "T4"
    # T1b ends below 1 cm, the others at their limit.
    largest = max(extent.diameters_mm)
    if 5 < largest < 10:
        return "T1b"
    return ("T1a", "T1c", "T2", "T3")[bisect_left((5, 20, 40), largest)]


def _liver(extent: Extent) -> str:
    if extent.large_vessel or extent.depth == "neighbour":
        return "T4"
    largest = max(extent.diameters_mm)
    if len(extent.diameters_mm) > 1:
        return "T3" if largest > 50 else "T2"
    if largest <= 20:
        return "T1a"
    return "T2" if extent.small_vessel else "T1b"
