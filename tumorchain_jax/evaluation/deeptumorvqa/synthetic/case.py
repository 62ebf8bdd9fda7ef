"""A digital patient with more findings: lesions of liver, pancreas, kidneys and colon, a large
spleen, a fatty liver or pancreas, so that every subtype has something to ask about.

Everything is synthetic, and measured on the voxels afterwards; the plan is never the truth.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool
from scipy import ndimage

from tumorchain_jax.anatomy.organs import COLORECTUM, LIVER, PANCREAS, SPLEEN
from tumorchain_jax.evaluation.deeptumorvqa.ruler.measure import KIDNEYS, LESION_ORGANS, VESSELS
from tumorchain_jax.phantoms.incidental import CYST, LOOK_ALIKE, METASTASIS
from tumorchain_jax.phantoms.lesions import noise
from tumorchain_jax.phantoms.patient import Patient, make_patient
from tumorchain_jax.phantoms.realistic_findings import HAEMANGIOMA
from tumorchain_jax.phantoms.settings import SIMPLE_PATIENTS, PatientSettings
from tumorchain_jax.scan.volume import Volume

STREAM = 20
"""Second number of the seed, so that draws do not repeat those of the patient."""
LIVER_CHANGES, FATTY_PANCREAS, LARGE_SPLEEN = 0.75, 0.4, 0.35
LIVER_HU, BRIGHT_LIVER, PANCREAS_RATIO, SPLEEN_CM3 = (
    (25.0, 75.0),
    (1.02, 1.2),
    (0.45, 0.95),
    (320.0, 1100.0),
)
LIVER_LESIONS, PANCREAS_LESION, KIDNEY_LESIONS, COLON_LESION = 0.5, 0.65, 0.35, 0.25
NEAR_VESSEL = 0.6
CYST_HU, PANCREAS_CYST_HU, KIDNEY_TUMOUR_HU = (-3.0, 14.0), (2.0, 26.0), (60.0, 130.0)
FEWEST_VOXELS, LEAST_LEFT, TRIES = 8, 0.6, 12


@dataclass(frozen=True)
class Case:
    """A CT with organs and lesions.

    Attributes:
        ct: HU, whole numbers.
        labels: uint8 TotalSegmentator v2 ids; a lesion's voxels keep their organ's id.
        lesions: uint8, n in the n-th lesion.
        seed: of everything drawn.
        synthetic: says so.
    """

    ct: Volume
    labels: Volume
    lesions: Volume
    seed: int
    synthetic: str


def make_case(seed: int, settings: PatientSettings = SIMPLE_PATIENTS) -> Case:
    """Make a case; the same seed and settings give the same voxels.

    Raises:
        InputError: the settings name a folder that cannot be used.
    """
    patient = make_patient(seed, settings)
    painter = _Painter(np.random.default_rng([seed, STREAM]), patient)
    painter.paint()
    source, affine = f"digital patient {seed}", patient.ct.affine
    return Case(
        Volume(np.rint(painter.image).clip(-1024, 3071), affine, source),
        Volume(painter.labels, affine, source),
        Volume(painter.marked, affine, source),
        seed,
        "Everything is made up: anatomy, densities, noise, lesions, questions and answers.",
    )


class _Painter:
    """Changes a patient's image and labels in place, and numbers its lesions in `marked`."""

    def __init__(self, rng: np.random.Generator, patient: Patient):
        self.rng, self.affine = rng, patient.ct.affine
        self.image = patient.ct.voxels.astype(np.float32)
        self.labels = patient.labels.voxels.copy()
        self.spacing = np.array(patient.ct.spacing)
        self.marked = np.zeros_like(self.labels)
        self.taken = (patient.lesion_map.voxels > 0) | (patient.other_map.voxels > 0)
        self._take_over(patient)
        healthy = (self.labels == LIVER) & ~self.taken
        self.noise_hu = float(self.image[healthy].std()) if healthy.any() else 12.0

    def _take_over(self, patient: Patient) -> None:
        """Number the lesions that the patient has already."""
        for number, lesion in enumerate(patient.lesions, 1):
            if lesion.organ in LESION_ORGANS:
                self._number(patient.lesion_map.voxels == number)
        wanted = {(METASTASIS, "metastasis"), (LOOK_ALIKE, CYST), (LOOK_ALIKE, HAEMANGIOMA)}
        to_index = np.linalg.inv(self.affine)
        for kind in (METASTASIS, LOOK_ALIKE):
            parts, _ = ndimage.label(patient.other_map.voxels == kind, np.ones((3, 3, 3)))
            for finding in patient.findings:
                if (finding.kind, finding.name) in wanted and finding.organ in LESION_ORGANS:
                    index = np.rint(to_index[:3, :3] @ finding.centre_mm + to_index[:3, 3])
                    part = parts[tuple(index.astype(int))]
                    if finding.kind == kind and part:
                        self._number(parts == part)

    def _number(self, mask: Bool[np.ndarray, "I J K"]) -> None:
        if np.count_nonzero(mask) >= FEWEST_VOXELS and not self.marked[mask].any():
            self.marked[mask] = self.marked.max() + 1

    def paint(self) -> None:
        """Draw and paint everything."""
        rng = self.rng
        if rng.random() < LARGE_SPLEEN:
            self._grow_spleen(float(rng.uniform(*SPLEEN_CM3)))
        spleen = self._mean(SPLEEN)
        if rng.random() < LIVER_CHANGES:
            bright = rng.random() < 0.35 and spleen > 0
            hu = spleen * rng.uniform(*BRIGHT_LIVER) if bright else rng.uniform(*LIVER_HU)
            self._shift(LIVER, float(hu))
        if rng.random() < FATTY_PANCREAS and spleen:
            self._shift(PANCREAS, spleen * float(rng.uniform(*PANCREAS_RATIO)))
        if rng.random() < LIVER_LESIONS:
            self._liver(int(rng.integers(1, 7)))
        if rng.random() < PANCREAS_LESION and not self._has_lesion(PANCREAS):
            self._pancreas()
        for kidney in KIDNEYS:
            if rng.random() < KIDNEY_LESIONS:
                self._kidney(kidney)
        if rng.random() < COLON_LESION and not self._has_lesion(COLORECTUM):
            self._ball(self.labels == COLORECTUM, COLORECTUM, self._size(20.0, 50.0), 75.0)

    def _has_lesion(self, organ: int) -> bool:
        return bool((self.marked[self.labels == organ] > 0).any())

    def _mean(self, organ: int) -> float:
        own = (self.labels == organ) & ~self.taken
        return float(self.image[own].mean()) if own.any() else 0.0

    def _size(self, least: float, most: float) -> float:
        return float(np.exp(self.rng.uniform(np.log(least), np.log(most))))

    def _shift(self, organ: int, hu: float) -> None:
        """Give an organ without lesions another mean, as fat in it would."""
        own = self.labels == organ
        if own.any() and not self.taken[own].any():
            self.image[own] += hu - self.image[own].mean()

    def _grow_spleen(self, cm3: float) -> None:
        own = self.labels == SPLEEN
        voxels = int(cm3 * 1000 / self.spacing.prod()) - np.count_nonzero(own)
        if voxels <= 0 or not own.any():
            return
        soft = (self.image > -200) & (self.image < 200)
        room = ((self.labels == 0) | (self.labels == 18)) & soft & ~self.taken
        away = np.where(room, ndimage.distance_transform_edt(~own, self.spacing), np.inf)
        order = np.argsort(away, axis=None)[:voxels]
        added = np.zeros(own.size, bool)
        added[order[np.isfinite(away.ravel()[order])]] = True
        new = added.reshape(own.shape)
        self._fill(new, self._mean(SPLEEN))
        self.labels[new] = SPLEEN

    def _liver(self, count: int) -> None:
        mean = self._mean(LIVER)
        cysts = self.rng.random() < 0.35
        offset = float(self.rng.choice((-45.0, -30.0, 4.0, 40.0)))
        room = self.labels == LIVER
        if self.rng.random() < 0.4 and room.any():  # all in one region
            seats = np.argwhere(room)
            seat = seats[self.rng.integers(len(seats))]
            near = np.linalg.norm((seats - seat) * self.spacing, axis=1) < 60
            room = np.zeros_like(room)
            room[tuple(seats[near].T)] = True
        for _ in range(count):
            hu = self.rng.uniform(*CYST_HU) if cysts else max(mean + offset, 38.0)
            self._ball(room, LIVER, self._size(9.0, 45.0), float(hu))

    def _pancreas(self) -> None:
        mean, draw = self._mean(PANCREAS), self.rng.random()
        own = self.labels == PANCREAS
        if not own.any():
            return
        near = ndimage.distance_transform_edt(~own, self.spacing) < 8
        room = own | (near & (self.labels == 0) & (self.image < 0))
        if draw < 0.35:
            self._ball(
                room, PANCREAS, self._size(9.0, 40.0), float(self.rng.uniform(*PANCREAS_CYST_HU))
            )
            return
        hu = max(mean - 40.0, 40.0) if draw < 0.75 else mean + 45.0
        if self.rng.random() < NEAR_VESSEL:
            self._around_vessel(own, hu)
        else:
            self._ball(room, PANCREAS, self._size(10.0, 50.0), hu)

    def _around_vessel(self, own: Bool[np.ndarray, "I J K"], hu: float) -> None:
        """Paint a tumour between the pancreas and the nearest great vessel, or around it."""
        vessel = np.isin(self.labels, VESSELS)
        if not vessel.any():
            return
        away, index = ndimage.distance_transform_edt(~vessel, self.spacing, return_indices=True)
        seats = np.argwhere(own)
        start = seats[away[own].argmin()]
        end = index[(slice(None), *start)]
        share = self.rng.uniform(0, 1.6)
        centre = np.rint(start + share * (end - start)).astype(int)
        gap = float(away[tuple(start)])
        size = 2 * (gap * max(share, 0.3) + self.rng.uniform(6, 20))
        room = (own | ((self.labels == 0) & (self.image < 0))) & ~vessel
        self._ball(room, PANCREAS, size, hu, centre, least_left=0.2)

    def _kidney(self, kidney: int) -> None:
        room = self.labels == kidney
        mean = self._mean(kidney)
        for _ in range(int(self.rng.integers(1, 4))):
            if self.rng.random() < 0.5:
                self._ball(room, kidney, self._size(8.0, 30.0), float(self.rng.uniform(*CYST_HU)))
            else:
                hu = float(self.rng.uniform(*KIDNEY_TUMOUR_HU))
                hu += 40 if abs(hu - mean) < 20 else 0
                self._ball(room, kidney, self._size(10.0, 40.0), hu)

    def _ball(
        self,
        room: Bool[np.ndarray, "I J K"],
        organ: int,
        diameter: float,
        hu: float,
        centre: np.ndarray | None = None,
        least_left: float = LEAST_LEFT,
    ) -> None:
        """Paint an ellipsoid into `room`, away from all others, if there is a place for it."""
        seats = np.argwhere(room & (self.labels == organ))
        for _ in range(TRIES if len(seats) else 0):
            seat = seats[self.rng.integers(len(seats))] if centre is None else centre
            half = diameter / 2 * self.rng.uniform(0.8, 1.0, 3)
            reach = np.ceil(half / self.spacing).astype(int)
            first, last = np.maximum(seat - reach, 0), np.minimum(seat + reach + 1, room.shape)
            box = tuple(slice(int(a), int(b)) for a, b in zip(first, last, strict=True))
            away = (np.moveaxis(np.mgrid[box], 0, -1) - seat) * self.spacing / half
            whole = np.linalg.norm(away, axis=-1) <= 1
            free = room[box] & ~ndimage.maximum_filter(self.taken[box], 3)
            parts, count = ndimage.label(whole & free)
            if not count:
                continue
            largest = 1 + int(np.bincount(parts.ravel())[1:].argmax())
            shape = parts == largest
            size = np.count_nonzero(shape)
            if size >= max(FEWEST_VOXELS, least_left * np.count_nonzero(whole)):
                mask = np.zeros_like(room)
                mask[box] = shape
                self._fill(mask, hu)
                self.labels[mask] = organ
                self.taken |= mask
                self._number(mask)
                return

    def _fill(self, mask: Bool[np.ndarray, "I J K"], hu: float) -> None:
        self.image[mask] = hu + self.noise_hu * noise(self.rng, mask.shape)[mask]
