"""Digital patients: CT scans from a seed, with lesions whose truth is known exactly.

Anatomy is a sketch of a trunk (`tumorchain_jax.scan.anatomy`); a lesion is a blob of stated size,
density, shape and border in one digestive organ. The same painter works on a real CT, under the
real mask of an organ. What is recorded about a lesion is measured on the voxels painted, after
clipping to the organ: never the intention.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import nibabel as nib
import numpy as np
from scipy import ndimage

from tumorchain_jax.errors import InputError
from tumorchain_jax.scan.anatomy import FAT_HU, Box, draw_space, draw_trunk
from tumorchain_jax.scan.segments import SEGMENTS, segment_at, segment_map
from tumorchain_jax.scan.volume import Volume

# Table 10 keeps TotalSegmentator's ids 1 to 22, so these are merged labels as well.
DIGESTIVE = {5: "liver", 7: "pancreas", 6: "stomach", 20: "colorectum", 15: "esophagus"}
HOLLOW = frozenset({6, 15, 20})
SIZES = ("small", "medium", "large")
DENSITIES = ("hypodense", "hyperdense")
SHAPES = ("round", "irregular")
BORDERS = ("well-defined", "ill-defined")

# Conspicuous on purpose: a model that sees the trunk in voxels of 4 x 4 x 9 mm must find them.
SIZE_LIMITS_MM = (30.0, 45.0, 60.0, 85.0)
CONTRAST_HU = {"hypodense": (-110.0, -80.0), "hyperdense": (140.0, 200.0)}
DARKEST_HU = -20.0  # of a lesion: darker would be fat
GAS_BELOW_HU = -200.0
# Width of the zone over which a lesion fades into its organ.
EDGE_MM = {"well-defined": 2.0, "ill-defined": 8.0}
LARGEST_MM = {5: 85.0, 7: 60.0, 6: 75.0, 20: 75.0, 15: 60.0}
FEWEST_VOXELS, KEPT_SHARE, SMALLEST_MM = 8, 0.5, 8.0
ILL_SHARE, SINGLE_SHARE = 0.8, 0.6


@dataclass(frozen=True)
class Lesion:
    """One lesion as painted.

    Attributes:
        organ: merged label (Table 10): 5, 6, 7, 15 or 20.
        segment: the part of the organ that its centroid is in or next to, as in `SEGMENTS`.
        diameter_mm: the longest diameter (largest caliper width over 200 directions).
        density: one of `DENSITIES`, against the organ's (for hollow organs its wall's) HU.
        shape: one of `SHAPES`.
        border: one of `BORDERS`.
        centre_mm: centroid, RAS+ mm.
        voxels: how many voxels it has.
    """

    organ: int
    segment: str
    diameter_mm: float
    density: str
    shape: str
    border: str
    centre_mm: tuple[float, float, float]
    voxels: int

    @property
    def size(self) -> str:
        """The word for its diameter: `SIZES`, parted at 45 and 60 mm."""
        return SIZES[int(np.digitize(self.diameter_mm, SIZE_LIMITS_MM[1:3]))]


@dataclass(frozen=True)
class Patient:
    """A CT, its organs, and the truth about its lesions.

    Attributes:
        ct: HU, float32 whole numbers.
        labels: uint8 TotalSegmentator v2 ids; a lesion's voxels keep their organ's id.
        lesions: all in one organ; empty for a healthy patient.
        seed: what everything was drawn from.
        synthetic: one sentence, what is made up.
        lesion_map: uint8; 0 outside, n in the n-th of `lesions`.
    """

    ct: Volume
    labels: Volume
    lesions: tuple[Lesion, ...]
    seed: int
    synthetic: str
    lesion_map: Volume


@dataclass(frozen=True)
class Plan:
    """The disease a patient is meant to have: lesions of one kind in one organ, largest first."""

    organ: int
    diameters_mm: tuple[float, ...]
    density: str
    shape: str
    border: str


def draw_plan(seed: int) -> Plan | None:
    """The disease that `make_patient(seed)` aims at, without making a voxel; None if healthy."""
    rng = np.random.default_rng([seed, 0])
    return _draw_disease(rng, tuple(DIGESTIVE)) if rng.random() < ILL_SHARE else None


def make_patient(seed: int) -> Patient:
    """A digital patient; the same seed gives the same bytes."""
    rng = np.random.default_rng([seed, 1])
    space, affine = draw_space(rng)
    sharp, labels, hu = draw_trunk(rng, space, affine.diagonal()[:3])
    # The scanner's in-plane blur; through-plane the voxels are thick already.
    image = ndimage.gaussian_filter(sharp, (0.5, 0.5, 0), truncate=3)
    lesion_map = np.zeros_like(labels)
    lesions: tuple[Lesion, ...] = ()
    source = f"digital patient {seed}"
    plan = draw_plan(seed)
    if plan is not None:
        own = labels == plan.organ
        # A mass may bulge into fat, never into a neighbour.
        room = own | ((labels == 0) & (sharp == FAT_HU))
        segments = segment_map(Volume(labels, affine, source), plan.organ)
        painter = _Painter(rng, image, own, room, affine, lesion_map, segments)
        lesions = painter.paint(plan, hu[plan.organ])
        labels[lesion_map > 0] = plan.organ
    image += rng.uniform(8, 20) * _noise(rng, image.shape)
    return Patient(
        Volume(np.rint(image).clip(-1024, 3071), affine, source),
        Volume(labels, affine, source),
        lesions,
        seed,
        "Everything is made up: anatomy, densities, noise and lesions are drawn from the seed.",
        Volume(lesion_map, affine, source),
    )


def paint_lesion(ct: Volume, labels: Volume, seed: int, organ: int | None = None) -> Patient:
    """A real CT with made-up lesions in one of its digestive organs.

    Voxels outside the organ's own mask stay as they are.

    Args:
        ct: HU.
        labels: TotalSegmentator v2 `total` ids on the same grid.
        seed: what the lesions are drawn from.
        organ: one of the digestive organs' ids; drawn from those present when None.

    Raises:
        InputError: the grids differ, or there is no digestive organ with room for a lesion.
    """
    if ct.shape != labels.shape or not np.allclose(ct.affine, labels.affine, atol=1e-3):
        raise InputError(
            labels.source, "grid", f"{labels.shape}", f"the CT's {ct.shape} and its affine",
            "give the mask of this very CT",
        )  # fmt: skip
    sizes = {name: np.count_nonzero(labels.voxels == o) for o, name in DIGESTIVE.items()}
    present = tuple(
        o for o, name in DIGESTIVE.items()
        if sizes[name] >= 10 * FEWEST_VOXELS and organ in (None, o)
    )  # fmt: skip
    if not present:
        wanted = (
            "one of them" if organ is None else DIGESTIVE.get(organ, f"one of them, not {organ}")
        )
        raise InputError(
            labels.source, "organ", ", ".join(f"{n} voxels of {o}" for o, n in sizes.items()),
            f"{10 * FEWEST_VOXELS} or more of {wanted}",
            "choose another organ, or a mask with TotalSegmentator v2 ids",
        )  # fmt: skip
    rng = np.random.default_rng([seed, 2])
    plan = _draw_disease(rng, present)
    own = labels.voxels == plan.organ
    image = ct.voxels.astype(np.float32)
    # Soft tissue alone: a mask of a hollow organ holds gas, and a coarse mask holds fat.
    soft = image[own & (image > 0) & (image < 250)]
    organ_hu = float(np.median(soft)) if soft.size else 40.0
    noise_hu = float(1.48 * np.median(np.abs(soft - organ_hu))) if soft.size else 15.0
    lesion_map = np.zeros(ct.shape, np.uint8)
    segments = segment_map(labels, plan.organ)
    painter = _Painter(rng, image, own, own, ct.affine, lesion_map, segments)
    lesions = painter.paint(plan, organ_hu, noise_hu)
    if not lesions:
        raise InputError(
            labels.source, "organ", f"{DIGESTIVE[plan.organ]} too thin for a lesion",
            f"room for {FEWEST_VOXELS} voxels", "choose another organ",
        )  # fmt: skip
    return Patient(
        Volume(image, ct.affine, ct.source),
        Volume(labels.voxels.astype(np.uint8), labels.affine, labels.source),
        lesions,
        seed,
        f"The CT and its organs are real ({Path(ct.source).name}); the lesions are made up.",
        Volume(lesion_map, ct.affine, labels.source),
    )


def write_patient(patient: Patient, folder: Path) -> tuple[Path, Path]:
    """Write ct.nii.gz (int16), labels.nii.gz, lesions.nii.gz and, last of all, truth.json.

    Each file appears whole or not at all. Returns the paths of the CT and of the labels.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = (
        ("ct.nii.gz", patient.ct, np.int16),
        ("labels.nii.gz", patient.labels, np.uint8),
        ("lesions.nii.gz", patient.lesion_map, np.uint8),
    )
    for name, volume, dtype in files:
        image = nib.Nifti1Image(np.rint(volume.voxels).astype(dtype), volume.affine)
        image.header.set_xyzt_units("mm")
        nib.save(image, folder / f".part-{name}")
        os.replace(folder / f".part-{name}", folder / name)
    truth = {
        "synthetic": patient.synthetic,
        "seed": patient.seed,
        "lesions": [asdict(lesion) | {"size": lesion.size} for lesion in patient.lesions],
    }
    (folder / ".part-truth.json").write_text(json.dumps(truth, indent=2) + "\n")
    os.replace(folder / ".part-truth.json", folder / "truth.json")
    return folder / "ct.nii.gz", folder / "labels.nii.gz"


def _draw_disease(rng: np.random.Generator, organs: tuple[int, ...]) -> Plan:
    organ = organs[rng.integers(len(organs))]
    count = 1 if rng.random() < SINGLE_SHARE else int(rng.integers(2, 4))
    size = rng.integers(len(SIZES))
    diameters = rng.uniform(SIZE_LIMITS_MM[size], SIZE_LIMITS_MM[size + 1], count)
    diameters = np.sort(diameters.clip(max=LARGEST_MM[organ]))[::-1]
    density, shape, border = (w[rng.integers(2)] for w in (DENSITIES, SHAPES, BORDERS))
    return Plan(organ, tuple(diameters.tolist()), density, shape, border)


def _noise(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Unit noise, slightly smooth in the slice as reconstruction makes it; float32."""
    white = rng.standard_normal(shape, dtype=np.float32)
    # 0.645: what the filter leaves of the standard deviation.
    return ndimage.gaussian_filter(white, (0.5, 0.5, 0), truncate=3) / np.float32(0.645)


@dataclass(frozen=True)
class _Blob:
    """A lesion in its place: how much (0 to 1) of each voxel of `box` it fills, and its mask."""

    box: Box
    weight: np.ndarray
    mask: np.ndarray
    kept: float  # share of the intended voxels that clipping left


@dataclass(frozen=True)
class _Painter:
    """Paints lesions into `image` (HU) and `lesion_map`, in place.

    A lesion is seated in the organ, `own`, and stays in `room` (bool `[I, J, K]`). `segments` are
    the organ's.
    """

    rng: np.random.Generator
    image: np.ndarray
    own: np.ndarray
    room: np.ndarray
    affine: np.ndarray
    lesion_map: np.ndarray
    segments: np.ndarray

    def paint(self, plan: Plan, organ_hu: float, noise_hu: float = 0.0) -> tuple[Lesion, ...]:
        """Lesions as planned, fewer where there is no room for all."""
        contrast = self.rng.uniform(*CONTRAST_HU[plan.density])
        lesion_hu = max(organ_hu + contrast, min(DARKEST_HU, organ_hu - 35))
        own = self.own
        if plan.organ in HOLLOW:  # tumours grow from the wall
            own = own & ~ndimage.binary_erosion(own, iterations=2)
        seats = np.argwhere(own)
        lesions: list[Lesion] = []
        for diameter in plan.diameters_mm:
            blob = self._find_place(plan, diameter, seats)
            if blob is None:
                continue
            patch = self.image[blob.box]
            # Towards gas the surface is sharp whatever the border with the organ.
            weight = np.where(patch < GAS_BELOW_HU, blob.mask, blob.weight)
            texture = noise_hu * _noise(self.rng, patch.shape)
            patch += weight * (lesion_hu + texture - patch)
            self.lesion_map[blob.box][blob.mask] = len(lesions) + 1
            lesions.append(self._measure(plan, blob))
        return tuple(lesions)

    def _measure(self, plan: Plan, blob: _Blob) -> Lesion:
        index = np.argwhere(blob.mask) + [s.start for s in blob.box]
        points = index @ self.affine[:3, :3].T + self.affine[:3, 3]
        x, y, z = points.mean(0).tolist()
        width = longest_diameter(points, self.affine)
        words = plan.density, plan.shape, plan.border
        part = segment_at(self.segments, self.affine, (x, y, z))
        segment = SEGMENTS[plan.organ][part - 1]
        return Lesion(plan.organ, segment, width, *words, (x, y, z), len(points))

    def _find_place(self, plan: Plan, diameter: float, seats: np.ndarray) -> _Blob | None:
        """The first place with room, for a smaller and smaller lesion if need be."""
        while diameter >= SMALLEST_MM:
            for _ in range(6):
                seat = seats[self.rng.integers(len(seats))]
                blob = self._grow(plan, diameter, seat)
                if blob.kept >= KEPT_SHARE and np.count_nonzero(blob.mask) >= FEWEST_VOXELS:
                    return blob
            diameter *= 0.85
        return None

    def _grow(self, plan: Plan, diameter: float, seat: np.ndarray) -> _Blob:
        """A lesion around the voxel `seat`, cut to the room there."""
        edge = EDGE_MM[plan.border]
        spacing = np.linalg.norm(self.affine[:3, :3], axis=0)
        reach = np.ceil((diameter + edge) / 2 / spacing).astype(int)
        first = np.maximum(seat - reach, 0)
        last = np.minimum(seat + reach + 1, self.own.shape)
        i, j, k = (slice(a, b) for a, b in zip(first, last, strict=True))
        index = np.moveaxis(np.mgrid[i, j, k], 0, -1) - seat
        offset = index.astype(np.float32) @ self.affine[:3, :3].T.astype(np.float32)
        distance = np.linalg.norm(offset, axis=-1)
        direction = offset / np.maximum(distance, 1e-6)[..., None]
        radius = diameter / 2 * _radius(self.rng, plan.shape, direction)
        weight = np.clip(0.5 + (radius - distance) / edge, 0, 1).astype(np.float32)
        intended = (weight >= 0.5).sum()

        box = i, j, k
        near_another = ndimage.maximum_filter(self.lesion_map[box], 3) > 0
        weight[near_another | ~self.room[box]] = 0
        pieces, _ = ndimage.label(weight >= 0.5)
        at_seat = pieces[tuple(seat - first)]
        mask = (pieces == at_seat) & (at_seat > 0)
        # A piece cut off from the seat is another lesion: it is not painted.
        weight[~ndimage.binary_dilation(mask, iterations=2) | ((pieces > 0) & ~mask)] = 0
        return _Blob(box, weight, mask, float(mask.sum() / intended))


def _radius(rng: np.random.Generator, shape: str, direction: np.ndarray) -> np.ndarray:
    """How far (0 to 1) a lesion reaches along unit vectors `[..., 3]`."""
    if shape == "round":
        axes = rng.uniform(0.88, 1, 3).astype(np.float32)
        return 1 / np.linalg.norm(direction / axes, axis=-1).clip(min=1)
    lobes = rng.standard_normal((7, 3), dtype=np.float32)
    lobes /= np.linalg.norm(lobes, axis=1, keepdims=True)
    bumps = np.exp(6 * (direction @ lobes.T - 1)).sum(-1)
    return 0.5 + 0.5 * np.minimum(bumps, 1)


def longest_diameter(points: np.ndarray, affine: np.ndarray) -> float:
    """The largest caliper width (mm) over 200 directions of voxels centred at `points` `[n, 3]`."""
    n = np.arange(200) + 0.5
    # A Fibonacci spiral spreads the directions evenly over the half sphere.
    z, turn = n / 200, np.pi * (1 + 5**0.5) * n
    flat = np.sqrt(1 - z**2)
    directions = np.stack([flat * np.cos(turn), flat * np.sin(turn), z], -1)
    extent = np.ptp(points @ directions.T, axis=0)
    voxel = np.linalg.norm(directions @ affine[:3, :3], axis=1)
    return float((extent + voxel).max())
