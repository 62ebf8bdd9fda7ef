"""Nodes, metastases and benign look-alikes of realistic patients.

A node counts as enlarged from a short axis of 10 mm on, as in the RECIST 1.1 rule (Eisenhauer et
al., Eur J Cancer 2009); smaller ones are normal and decide no stage.
"""

import numpy as np

from tumorchain_jax.anatomy.organs import COLORECTUM, LIVER, SPLEEN
from tumorchain_jax.phantoms.body import around
from tumorchain_jax.phantoms.incidental import (
    AORTA,
    CALCIFICATION,
    CYST,
    KIDNEYS,
    LOOK_ALIKE,
    LUNGS,
    METASTASIS,
    NODE,
    NODE_COUNTS,
    NODE_ODDS,
    NODES_WITHIN_MM,
    IncidentalPainter,
    box_around,
)
from tumorchain_jax.phantoms.tissue import GAS, STOOL, VESSEL, TissueHU

NORMAL_NODE, HAEMANGIOMA, FATTY_AREA, DIVERTICULUM, ACCESSORY_SPLEEN, GALLSTONE, GRANULOMA = (
    "normal lymph node", "haemangioma", "fatty area", "diverticulum", "accessory spleen",
    "gallstone", "calcified granuloma",
)  # fmt: skip
CAVA, GALLBLADDER = 63, 4
LOBES = {LUNGS[0]: (10, 11), LUNGS[1]: (12, 13, 14)}
"""A lung, as findings name it by its lower lobe -> its lobes."""
ENLARGED_FROM_MM = 10.0
ENLARGED_MM, NORMAL_MM, NODE_LONGER, NODE_SHARE = (10.5, 25.0), (6.0, 9.0), (1.0, 1.8), 0.8
METASTASIS_MM, METASTASIS_SHARE, LUNG_HU = (5.0, 40.0), 0.22, (20.0, 70.0)
# A look-alike: share of the patients that have it, its sizes (mm), how many there are.
CYSTS, CYST_HU = (0.3, (5.0, 45.0), (1, 4)), (-3.0, 14.0)
HAEMANGIOMAS, HAEMANGIOMA_SHARE = (0.1, (6.0, 35.0), (1, 3)), 0.85  # of the contrast of its blood
FATTY_AREAS, FATTY_AREA_HU = (0.1, (8.0, 25.0), (1, 2)), (-45.0, -20.0)
DIVERTICULA, ACCESSORY_SPLEENS = (0.2, (4.0, 10.0), (2, 7)), (0.15, (8.0, 20.0), (1, 3))
GALLSTONES, GALLSTONE_HU = (0.15, (4.0, 18.0), (1, 4)), (70.0, 600.0)
PLAQUES, PLAQUE_HU = (0.4, (3.0, 9.0), (2, 9)), (250.0, 900.0)
GRANULOMAS, GRANULOMA_HU = (0.15, (4.0, 9.0), (1, 3)), (200.0, 700.0)
LEAST_VOXELS = 2

_Recipe = tuple[float, tuple[float, float], tuple[int, int]]


class RealisticFindings(IncidentalPainter):
    """Paints findings in the HU of the patient, in place; see `IncidentalPainter`."""

    def __init__(
        self,
        rng: np.random.Generator,
        image: np.ndarray,
        labels: np.ndarray,
        fat: np.ndarray,
        lesion_map: np.ndarray,
        affine: np.ndarray,
        hu: TissueHU,
    ):
        super().__init__(rng, image, labels, fat, lesion_map, affine, LEAST_VOXELS)
        self.hu = hu
        self.node_hu = float(NODE_SHARE * hu.mean[SPLEEN]) + float(rng.normal(0, 8))

    def nodes(self, organ: int) -> None:
        """Paint enlarged nodes into the fat around an organ."""
        count = int(self.rng.choice(NODE_COUNTS, p=NODE_ODDS))
        self._nodes(NODE, "lymph node", organ, ENLARGED_MM, count)

    def normal_nodes(self) -> None:
        """Paint nodes of normal size along the great vessels."""
        for vessel in (AORTA, CAVA):
            self._nodes(LOOK_ALIKE, NORMAL_NODE, vessel, NORMAL_MM, int(self.rng.integers(0, 4)))

    def _nodes(
        self, kind: int, name: str, organ: int, limits: tuple[float, float], count: int
    ) -> None:
        own = self.labels == organ
        if not count or not own.any():
            return
        seats = self._fat_near(own, NODES_WITHIN_MM)
        for _ in range(count):
            longer = float(self.rng.uniform(*NODE_LONGER))
            self._ball(kind, name, organ, self.fat, seats, limits, self.node_hu, longer)

    def metastases(self, organ: int, liver_hu: float) -> None:
        """Paint metastases of a tumour in `organ`: in the liver, in the lungs, or in both."""
        if organ != LIVER and self.rng.random() < METASTASIS_SHARE:
            darkest = max(20.0, liver_hu - 80)
            hu = self.rng.uniform(darkest, liver_hu - 20) if liver_hu > 45 else liver_hu + 35
            room = self.labels == LIVER
            self._spread(LIVER, room, hu, (2, 7))
        if self.rng.random() < METASTASIS_SHARE:
            for lung, lobes in LOBES.items():
                room = np.isin(self.labels, lobes)
                self._spread(lung, room, float(self.rng.uniform(*LUNG_HU)), (1, 6))

    def _spread(self, organ: int, room: np.ndarray, hu: float, counts: tuple[int, int]) -> None:
        """Paint metastases of a log-uniform size, each its own."""
        seats = np.argwhere(room)
        for _ in range(self.rng.integers(*counts)):
            size = float(np.exp(self.rng.uniform(*np.log(METASTASIS_MM))))
            limits = size, size
            self._ball(METASTASIS, "metastasis", organ, room, seats, limits, hu)

    def look_alikes(self) -> None:
        """Paint what looks like a tumour, a node or a metastasis and is none."""
        labels, mean, draw = self.labels, self.hu.mean, self.rng.uniform
        liver = labels == LIVER
        for site in (*KIDNEYS, LIVER):
            self._maybe(CYSTS, CYST, site, labels == site, draw(*CYST_HU))
        blood = mean[LIVER] + HAEMANGIOMA_SHARE * (mean[VESSEL] - mean[LIVER])
        self._maybe(HAEMANGIOMAS, HAEMANGIOMA, LIVER, liver, float(blood))
        fatty = float(mean[LIVER]) + draw(*FATTY_AREA_HU)
        self._maybe(FATTY_AREAS, FATTY_AREA, LIVER, liver, fatty)
        near_colon = self._near(labels == COLORECTUM, 6.0)
        content = float(mean[GAS if self.rng.random() < 0.6 else STOOL])
        self._maybe(DIVERTICULA, DIVERTICULUM, COLORECTUM, near_colon, content)
        near_spleen = self._near(labels == SPLEEN, 18.0)
        self._maybe(ACCESSORY_SPLEENS, ACCESSORY_SPLEEN, SPLEEN, near_spleen, float(mean[SPLEEN]))
        stones = labels == GALLBLADDER
        self._maybe(GALLSTONES, GALLSTONE, GALLBLADDER, stones, draw(*GALLSTONE_HU))
        self._maybe(PLAQUES, CALCIFICATION, AORTA, labels == AORTA, draw(*PLAQUE_HU))
        for lung, lobes in LOBES.items():
            room = np.isin(labels, lobes)
            self._maybe(GRANULOMAS, GRANULOMA, lung, room, draw(*GRANULOMA_HU))

    def _near(self, own: np.ndarray, reach_mm: float) -> np.ndarray:
        """Return the fat near an organ as a mask."""
        near = np.zeros_like(own)
        if own.any():
            box = box_around(own, reach_mm, self.spacing)
            near[box] = around(own[box], reach_mm, self.spacing) & self.fat[box]
        return near

    def _fat_near(self, own: np.ndarray, reach_mm: float) -> np.ndarray:
        return np.argwhere(self._near(own, reach_mm))

    def _maybe(self, recipe: _Recipe, name: str, organ: int, room: np.ndarray, hu: float) -> None:
        share, limits, counts = recipe
        if self.rng.random() < share and room.any():
            self._several(LOOK_ALIKE, name, organ, room, limits, hu, counts)
