"""Findings besides the tumour: enlarged nodes, metastases, and benign look-alikes."""

from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from tumorchain_jax.anatomy.organs import LIVER
from tumorchain_jax.phantoms.body import VoxelBox, around

METASTASIS, NODE, LOOK_ALIKE = 1, 2, 3
"""Values of a patient's `other_map`; 0 is none of them."""

LUNGS, KIDNEYS, AORTA = (11, 14), (2, 3), 52
CYST, CALCIFICATION = "cyst", "vascular calcification"
NODE_HU, CYST_HU, CHALK_HU = 85.0, 4.0, 700.0
NODE_MM, CYST_MM, CHALK_MM = (18.0, 28.0), (12.0, 20.0), (7.0, 10.0)
LIVER_METASTASIS_MM, LUNG_METASTASIS_MM = (20.0, 34.0), (18.0, 32.0)
LIVER_METASTASIS_HU, LUNG_METASTASIS_HU = -75.0, 50.0
NODES_WITHIN_MM = 20.0
NODE_COUNTS, NODE_ODDS = (0, 1, 2, 3, 5, 6, 8, 9), (0.42, 0.08, 0.13, 0.07, 0.1, 0.06, 0.07, 0.07)
WHOLE_SHARE, LEAST_VOXELS, TRIES = 0.7, 4, 12


@dataclass(frozen=True)
class Finding:
    """A finding as painted.

    Attributes:
        kind: METASTASIS, NODE or LOOK_ALIKE.
        name: `lymph node`, `metastasis`, or the name of a benign finding.
        organ: TotalSegmentator id of the organ it is in; for a node, of the one it belongs to.
        diameter_mm: intended; of a node the short axis.
        centre_mm: RAS+ mm.
    """

    kind: int
    name: str
    organ: int
    diameter_mm: float
    centre_mm: tuple[float, float, float]


class IncidentalPainter:
    """Paints balls into `image` (HU) and `other_map`, in place, never over a lesion.

    Args:
        labels: TotalSegmentator ids; fat is the voxels of `fat`.
        least_voxels: a finding of fewer is not painted.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        image: np.ndarray,
        labels: np.ndarray,
        fat: np.ndarray,
        lesion_map: np.ndarray,
        affine: np.ndarray,
        least_voxels: int = LEAST_VOXELS,
    ):
        self.rng, self.image, self.labels, self.fat = rng, image, labels, fat
        self.affine, self.lesion_map, self.least_voxels = affine, lesion_map, least_voxels
        self.spacing = np.linalg.norm(affine[:3, :3], axis=0)
        self.other_map = np.zeros_like(labels)
        self.findings: list[Finding] = []

    def nodes(self, organ: int) -> None:
        """Paint enlarged nodes into the fat around an organ."""
        count = int(self.rng.choice(NODE_COUNTS, p=NODE_ODDS))
        own = self.labels == organ
        box = box_around(own, NODES_WITHIN_MM, self.spacing)
        near = np.zeros_like(own)
        near[box] = around(own[box], NODES_WITHIN_MM, self.spacing)
        seats = np.argwhere(near & self.fat)
        for _ in range(count):
            self._ball(NODE, "lymph node", organ, self.fat, seats, NODE_MM, NODE_HU)

    def metastases(self, organ: int, liver_hu: float) -> None:
        """Paint metastases of a tumour in `organ`: in the liver, in the lungs, or in both."""
        if organ != LIVER and self.rng.random() < 0.25:
            room, hu = self.labels == LIVER, liver_hu + LIVER_METASTASIS_HU
            self._several(METASTASIS, "metastasis", LIVER, room, LIVER_METASTASIS_MM, hu, (3, 6))
        if self.rng.random() < 0.25:
            for lung in LUNGS:
                room, hu = self.labels == lung, LUNG_METASTASIS_HU
                limits = LUNG_METASTASIS_MM
                self._several(METASTASIS, "metastasis", lung, room, limits, hu, (2, 5))

    def look_alikes(self) -> None:
        """Paint cysts of the kidneys and, more rarely, of the liver; calcification of the aorta."""
        sites = [kidney for kidney in KIDNEYS if self.rng.random() < 0.3]
        sites += [LIVER] if self.rng.random() < 0.15 else []
        for site in sites:
            room = self.labels == site
            self._several(LOOK_ALIKE, CYST, site, room, CYST_MM, CYST_HU, (1, 3))
        if self.rng.random() < 0.3:
            room = self.labels == AORTA
            self._several(LOOK_ALIKE, CALCIFICATION, AORTA, room, CHALK_MM, CHALK_HU, (2, 6))

    def _several(
        self,
        kind: int,
        name: str,
        organ: int,
        room: np.ndarray,
        limits: tuple[float, float],
        hu: float,
        counts: tuple[int, int],
    ) -> None:
        seats = np.argwhere(room)
        for _ in range(self.rng.integers(*counts)):
            self._ball(kind, name, organ, room, seats, limits, hu)

    def _ball(
        self,
        kind: int,
        name: str,
        organ: int,
        room: np.ndarray,
        seats: np.ndarray,
        limits: tuple[float, float],
        hu: float,
        longer: float = 1.0,
    ) -> None:
        """Paint a ball somewhere in `room`, if there is a place for it.

        Args:
            longer: how many times longer than `limits` it is along a random axis.
        """
        diameter = float(self.rng.uniform(*limits))
        axis = self.rng.standard_normal(3) if longer > 1 else np.ones(3)
        axis /= np.linalg.norm(axis)
        for _ in range(TRIES if len(seats) else 0):
            seat = seats[self.rng.integers(len(seats))]
            reach = np.ceil(diameter / 2 * longer / self.spacing).astype(int)
            first, last = np.maximum(seat - reach, 0), seat + reach + 1
            i, j, k = (slice(a, b) for a, b in zip(first, last, strict=True))
            away = (np.moveaxis(np.mgrid[i, j, k], 0, -1) - seat) * self.spacing
            away -= (away @ axis)[..., None] * axis * (1 - 1 / longer)
            inner = tuple(slice(0, n) for n in room[i, j, k].shape)
            whole = np.linalg.norm(away, axis=-1) <= diameter / 2
            taken = (self.lesion_map[i, j, k] > 0) | (self.other_map[i, j, k] > 0)
            # Two that touch would look like one.
            ball = whole[inner] & room[i, j, k] & ~ndimage.maximum_filter(taken, 3)
            if np.count_nonzero(ball) >= max(
                self.least_voxels, WHOLE_SHARE * np.count_nonzero(whole)
            ):
                self.image[i, j, k][ball] = hu
                self.other_map[i, j, k][ball] = kind
                x, y, z = (self.affine[:3, :3] @ seat + self.affine[:3, 3]).tolist()
                self.findings.append(Finding(kind, name, organ, diameter, (x, y, z)))
                return


def box_around(mask: np.ndarray, margin_mm: float, spacing: np.ndarray) -> VoxelBox:
    """Return the box around a mask that has a voxel, with a margin."""
    index = np.argwhere(mask)
    margin = np.ceil(margin_mm / spacing).astype(int)
    first, last = np.maximum(index.min(0) - margin, 0), index.max(0) + margin + 1
    i, j, k = (slice(a, b) for a, b in zip(first, last, strict=True))
    return i, j, k
