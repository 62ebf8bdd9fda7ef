"""Synthetic tumours painted into a CT, and their truth as measured on the painted voxels.

A lesion is a blob of stated size, density, shape and border in one digestive organ, with at most
one more trait (the paper's "others"). The same painter works on a digital patient and on a real CT
under the real mask of an organ.
"""

from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from tumorchain_jax.anatomy.organs import COLORECTUM, DIGESTIVE, ESOPHAGUS, STOMACH
from tumorchain_jax.anatomy.staging import Depth
from tumorchain_jax.anatomy.substructures import SEGMENTS, segment_at
from tumorchain_jax.phantoms.body import VoxelBox
from tumorchain_jax.phantoms.lesion_shape import draw_radius, longest_diameter

HOLLOW = frozenset({STOMACH, ESOPHAGUS, COLORECTUM})
SIZES = ("small", "medium", "large")
DENSITIES = ("hypodense", "hyperdense")
SHAPES = ("round", "irregular")
BORDERS = ("well-defined", "ill-defined")
NONE, CALCIFICATION, ENHANCEMENT, THICKENING, DILATATION = (
    "none", "calcification", "rim enhancement", "wall thickening", "ductal dilatation",
)  # fmt: skip
OTHERS = {
    organ: (NONE, CALCIFICATION, ENHANCEMENT, THICKENING if organ in HOLLOW else DILATATION)
    for organ in DIGESTIVE
}
"""Organ -> what its lesions may show besides (the paper's subtask others)."""

# Conspicuous on purpose: a model that sees the trunk in voxels of 4 x 4 x 6 mm must find them.
SIZE_LIMITS_MM = (45.0, 65.0, 85.0, 110.0)
CONTRAST_HU = {"hypodense": (-120.0, -90.0), "hyperdense": (100.0, 130.0)}
DARKEST_HU = -30.0  # of a lesion: darker would be fat
GAS_BELOW_HU = -200.0
# The zone over which a lesion fades into its organ: so wide, or this share of its diameter.
SHARP_EDGE_MM, VAGUE_EDGE_SHARE = 2.0, 0.4
LARGEST_MM = {5: 110.0, 7: 90.0, 6: 100.0, 20: 95.0, 15: 80.0}
FEWEST_VOXELS, SMALLEST_MM, IRREGULAR_GROWS = 8, 8.0, 1.25
# Of the intended voxels, what clipping to the room must leave.
LEFT_SHARE = {5: 0.5, 7: 0.5, 6: 0.4, 20: 0.4, 15: 0.35}
# How far beyond the organ a lesion may bulge into fat, and what that says of its depth.
# A wall that a tumour fills is thicker than it was: up to the first limit it is still the wall.
REACH_MM: dict[Depth, float] = {"wall": 7.0, "fat": 16.0, "surface": 32.0}
DEPTHS: tuple[Depth, ...] = tuple(REACH_MM)
DEPTH_LIMITS_MM = (8.5, 18.0)
SOLID_REACH_MM = 20.0

RIM_SHARE, RIM_HU = 0.25, 90.0  # of a lesion's depth; above its core and its organ
SPECK_HU, SPECK_MM, SPECKS, SPECK_VOXELS = 700.0, 4.0, 8, 600  # so many, and one for these voxels
DUCT_HU, DUCT_MM, DUCTS = 8.0, 5.5, 5
THICK_MM, THICK_AROUND_MM, THICK_HU = 12.0, 40.0, 45.0  # the last above the organ's own wall
DEAD_HU, STRAND_MM, STRAND_HU = 22.0, 8.0, -35.0  # necrosis; strands of a tumour in the fat


@dataclass(frozen=True)
class LesionStyle:
    """How lesions look; the defaults are those of the simple kind of patient.

    Attributes:
        size_limits_mm: diameters at which `medium` and `large` begin.
        fewest_voxels: a lesion of fewer is not painted.
        sharp_edge_mm: zone over which a well-defined lesion fades into its organ.
        rim_hu: of a rim above core and organ.
        speck_mm, specks: radius of a calcification, and how many there are at least.
        duct_mm: radius of a dilated duct.
        thick_mm, thick_hu: of a thickened wall; the HU above the wall's own.
    """

    size_limits_mm: tuple[float, float] = SIZE_LIMITS_MM[1:3]
    fewest_voxels: int = FEWEST_VOXELS
    sharp_edge_mm: float = SHARP_EDGE_MM
    rim_hu: float = RIM_HU
    speck_mm: float = SPECK_MM
    specks: int = SPECKS
    duct_mm: float = DUCT_MM
    thick_mm: float = THICK_MM
    thick_hu: float = THICK_HU


SIMPLE_STYLE = LesionStyle()


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
        other: one of `OTHERS`.
        depth: how far it reaches beyond its organ; None in solid organs.
        centre_mm: centroid, RAS+ mm.
        voxels: how many voxels it has.
        contrast_hu: mean HU of the voxels that it fills (where it fades, of its darkest or
            brightest) less its organ's, before necrosis and `other`.
        size_limits_mm: diameters at which it would be medium and large.
    """

    organ: int
    segment: str
    diameter_mm: float
    density: str
    shape: str
    border: str
    other: str
    depth: Depth | None
    centre_mm: tuple[float, float, float]
    voxels: int
    contrast_hu: float = 0.0
    size_limits_mm: tuple[float, float] = SIMPLE_STYLE.size_limits_mm

    @property
    def size(self) -> str:
        """One of `SIZES`."""
        return SIZES[int(np.digitize(self.diameter_mm, self.size_limits_mm))]


@dataclass(frozen=True)
class Plan:
    """The planned disease of a patient: lesions of one kind in one organ, largest first.

    Attributes:
        contrast_hu: of the lesions against their organ; negative where they are hypodense.
        dead_share: of a lesion's depth, the inner part that is necrotic.
        strands: whether the fat around is infiltrated.
    """

    organ: int
    diameters_mm: tuple[float, ...]
    density: str
    shape: str
    border: str
    other: str
    depth: Depth
    contrast_hu: float
    dead_share: float = 0.0
    strands: bool = False


def draw_plan(rng: np.random.Generator, organs: tuple[int, ...]) -> Plan:
    """Draw a disease of one of `organs`: one to three lesions."""
    organ = int(rng.choice(organs))
    count = int(rng.choice((1, 2, 3), p=(0.4, 0.3, 0.3)))
    size = rng.integers(len(SIZES))
    diameters = rng.uniform(SIZE_LIMITS_MM[size], SIZE_LIMITS_MM[size + 1], count)
    diameters = np.sort(diameters.clip(max=LARGEST_MM[organ]))[::-1]
    density, shape, border = (str(rng.choice(words)) for words in (DENSITIES, SHAPES, BORDERS))
    other, depth = str(rng.choice(OTHERS[organ])), DEPTHS[rng.integers(len(DEPTHS))]
    contrast = float(rng.uniform(*CONTRAST_HU[density]))
    return Plan(organ, tuple(diameters.tolist()), density, shape, border, other, depth, contrast)


def noise(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw unit noise, slightly smooth in the slice as reconstruction makes it; float32."""
    white = rng.standard_normal(shape, dtype=np.float32)
    # 0.645: what the filter leaves of the standard deviation.
    return ndimage.gaussian_filter(white, (0.5, 0.5, 0), truncate=3) / np.float32(0.645)


@dataclass(frozen=True)
class _Blob:
    """A lesion in place: the share (0 to 1) of each voxel of `box` that it fills, and its mask."""

    box: VoxelBox
    weight: np.ndarray
    mask: np.ndarray
    left: float  # share of the intended voxels that clipping left

    @property
    def core(self) -> np.ndarray:
        """The voxels that it fills most, bool."""
        return self.mask & (self.weight >= min(0.95, self.weight[self.mask].max()))


class LesionPainter:
    """Paints lesions into `image` (HU) and `lesion_map`, in place.

    A lesion is seated in the organ, `own`, and may bulge into `fat` (both bool `[I, J, K]`) as far
    as its plan says. `segments` are the organ's. All arrays are of the organ's surroundings alone.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        image: np.ndarray,
        own: np.ndarray,
        fat: np.ndarray,
        affine: np.ndarray,
        lesion_map: np.ndarray,
        segments: np.ndarray,
        style: LesionStyle = SIMPLE_STYLE,
    ):
        self.rng, self.image, self.own, self.fat = rng, image, own, fat
        self.affine, self.lesion_map, self.segments = affine, lesion_map, segments
        self.style = style
        self.spacing = np.linalg.norm(affine[:3, :3], axis=0)
        self.outside_mm = ndimage.distance_transform_edt(~own, self.spacing)

    def paint(self, plan: Plan, organ_hu: float, noise_hu: float = 0.0) -> tuple[Lesion, ...]:
        """Paint the planned lesions, fewer where there is no room for all; measure each."""
        lesion_hu = max(organ_hu + plan.contrast_hu, DARKEST_HU)
        reach = REACH_MM[plan.depth] if plan.organ in HOLLOW else SOLID_REACH_MM
        room = self.own | (self.fat & (self.outside_mm <= reach))
        own = self.own
        if plan.organ in HOLLOW:  # tumours grow from the wall
            own = own & ~ndimage.binary_erosion(own, iterations=2)
        # The largest in any part of the organ with the same odds, however small the part.
        parts = self.segments[own]
        seats = np.argwhere(own)
        first_seats = seats[parts == self.rng.choice(np.unique(parts))]
        blobs: list[_Blob] = []
        for planned in plan.diameters_mm:
            # Lobes reach far, but there is little between them.
            diameter = planned * (IRREGULAR_GROWS if plan.shape == "irregular" else 1)
            blob = self._find_place(plan, diameter, seats if blobs else first_seats, room)
            if blob is None:
                continue
            self._fill(blob, lesion_hu, noise_hu)
            self.lesion_map[blob.box][blob.mask] = len(blobs) + 1
            blobs.append(blob)
        contrasts = [float(self.image[b.box][b.core].mean()) - organ_hu for b in blobs]
        for blob in blobs:
            self._necrose(blob, plan.dead_share, noise_hu)
        if plan.strands:
            self._strand()
        shown = _TRAITS[plan.other](self, blobs, organ_hu, lesion_hu) if blobs else False
        other = plan.other if shown else NONE
        return tuple(
            self._measure(plan, blob, other, contrast)
            for blob, contrast in zip(blobs, contrasts, strict=True)
        )

    def _fill(self, blob: _Blob, hu: float, noise_hu: float) -> None:
        patch = self.image[blob.box]
        # Towards gas the surface is sharp whatever the border with the organ.
        weight = np.where(patch < GAS_BELOW_HU, blob.mask, blob.weight)
        patch += weight * (hu + noise_hu * noise(self.rng, patch.shape) - patch)

    def _necrose(self, blob: _Blob, share: float, noise_hu: float) -> None:
        """Paint a dark core: the voxels deeper than the rest of the lesion's depth."""
        if not share:
            return
        depth = _depth(blob, self.spacing)
        dead = blob.mask & (depth > (1 - share) * depth.max())
        hu = DEAD_HU + noise_hu * noise(self.rng, dead.shape)
        patch = self.image[blob.box]
        patch[dead] = np.minimum(patch, hu)[dead]

    def _strand(self) -> None:
        """Paint streaks into the fat around the lesions."""
        size = [2 * int(np.ceil(STRAND_MM / s)) + 1 for s in self.spacing]
        near = ndimage.maximum_filter(self.lesion_map, size) > 0
        near &= self.fat & (self.lesion_map == 0)
        near &= noise(self.rng, near.shape) > 0
        self.image[near] = STRAND_HU

    def _measure(self, plan: Plan, blob: _Blob, other: str, contrast_hu: float) -> Lesion:
        index = np.argwhere(blob.mask) + [s.start for s in blob.box]
        points = index @ self.affine[:3, :3].T + self.affine[:3, 3]
        x, y, z = points.mean(0).tolist()
        part = segment_at(self.segments, self.affine, (x, y, z))
        beyond = float(self.outside_mm[blob.box][blob.mask].max())
        depth = DEPTHS[int(np.digitize(beyond, DEPTH_LIMITS_MM))]
        return Lesion(
            plan.organ,
            SEGMENTS[plan.organ][part - 1],
            longest_diameter(points, self.affine),
            plan.density,
            plan.shape,
            plan.border,
            other,
            depth if plan.organ in HOLLOW else None,
            (x, y, z),
            len(points),
            contrast_hu,
            self.style.size_limits_mm,
        )

    def _find_place(
        self, plan: Plan, diameter: float, seats: np.ndarray, room: np.ndarray
    ) -> _Blob | None:
        """Find a place with room, for a smaller lesion if need be."""
        while diameter >= SMALLEST_MM:
            for _ in range(6):
                seat = seats[self.rng.integers(len(seats))]
                blob = self._grow(plan, diameter, seat, room)
                enough = blob.left >= LEFT_SHARE[plan.organ]
                if enough and np.count_nonzero(blob.mask) >= self.style.fewest_voxels:
                    return blob
            diameter *= 0.85
        return None

    def _grow(self, plan: Plan, diameter: float, seat: np.ndarray, room: np.ndarray) -> _Blob:
        """Shape a lesion around the voxel `seat`, clipped to the room there."""
        sharp = plan.border == "well-defined"
        edge = self.style.sharp_edge_mm if sharp else VAGUE_EDGE_SHARE * diameter
        box, offset = self._around(seat, (diameter + edge) / 2)
        distance = np.linalg.norm(offset, axis=-1)
        direction = offset / np.maximum(distance, 1e-6)[..., None]
        radius = diameter / 2 * draw_radius(self.rng, plan.shape, direction)
        weight = np.clip(0.5 + (radius - distance) / edge, 0, 1).astype(np.float32)
        intended = (weight >= 0.5).sum()

        near_another = ndimage.maximum_filter(self.lesion_map[box], 3) > 0
        weight[near_another | ~room[box]] = 0
        pieces, _ = ndimage.label(weight >= 0.5)
        at_seat = pieces[tuple(seat - [s.start for s in box])]
        mask = (pieces == at_seat) & (at_seat > 0)
        # A piece cut off from the seat is another lesion: it is not painted.
        margin = [2 * int(np.ceil(max(edge, 4) / s)) + 1 for s in self.spacing]
        weight[~ndimage.maximum_filter(mask, margin) | ((pieces > 0) & ~mask)] = 0
        return _Blob(box, weight, mask, float(mask.sum() / intended))

    def _around(self, seat: np.ndarray, reach_mm: float) -> tuple[VoxelBox, np.ndarray]:
        """Return the box within reach of a voxel, and the way from it to each (mm, `[..., 3]`)."""
        reach = np.ceil(reach_mm / self.spacing).astype(int)
        first = np.maximum(seat - reach, 0)
        last = np.minimum(seat + reach + 1, self.own.shape)
        i, j, k = (slice(a, b) for a, b in zip(first, last, strict=True))
        index = np.moveaxis(np.mgrid[i, j, k], 0, -1) - seat
        return (i, j, k), index.astype(np.float32) @ self.affine[:3, :3].T.astype(np.float32)

    # One painter for each of `OTHERS`; it returns whether any voxel was painted.

    def _nothing(self, blobs: list[_Blob], organ_hu: float, lesion_hu: float) -> bool:
        return False

    def _calcify(self, blobs: list[_Blob], organ_hu: float, lesion_hu: float) -> bool:
        for blob in blobs:
            seats = np.argwhere(blob.mask) + [s.start for s in blob.box]
            for seat in self.rng.choice(seats, self.style.specks + len(seats) // SPECK_VOXELS):
                box, offset = self._around(seat, self.style.speck_mm)
                speck = np.linalg.norm(offset, axis=-1) <= self.style.speck_mm
                speck &= self.lesion_map[box] > 0
                self.image[box][speck] = SPECK_HU
        return True

    def _enhance(self, blobs: list[_Blob], organ_hu: float, lesion_hu: float) -> bool:
        painted = False
        for blob in blobs:
            depth = _depth(blob, self.spacing)
            rim = blob.mask & (depth <= RIM_SHARE * depth.max())
            self.image[blob.box][rim] = max(organ_hu, lesion_hu) + self.style.rim_hu
            painted |= bool(rim.any())
        return painted

    def _thicken(self, blobs: list[_Blob], organ_hu: float, lesion_hu: float) -> bool:
        tumour = self.lesion_map > 0
        from_tumour = ndimage.distance_transform_edt(~tumour, self.spacing)
        deep = ndimage.distance_transform_edt(self.own, self.spacing)
        wall = self.own & ~tumour & (deep < self.style.thick_mm) & (from_tumour < THICK_AROUND_MM)
        self.image[wall] = organ_hu + self.style.thick_hu
        return bool(wall.any())

    def _dilate(self, blobs: list[_Blob], organ_hu: float, lesion_hu: float) -> bool:
        """Paint ducts from the largest lesion to the farthest places deep in the organ."""
        deep = ndimage.distance_transform_edt(self.own, self.spacing)
        ends = np.argwhere(deep > 0.5 * deep.max()) * self.spacing
        blob = max(blobs, key=lambda each: np.count_nonzero(each.mask))
        start = (np.argwhere(blob.mask).mean(0) + [s.start for s in blob.box]) * self.spacing
        far = ends[np.argsort(np.linalg.norm(ends - start, axis=1))[-len(ends) // 2 :]]
        duct = np.zeros_like(self.own)
        for end in self.rng.choice(far, DUCTS):
            points = np.linspace(start, end, 2 + int(np.linalg.norm(end - start) / 2))
            index = np.rint(points / self.spacing).astype(int)
            duct[tuple(index.T)] = True
        thick = ndimage.distance_transform_edt(~duct, self.spacing) <= self.style.duct_mm
        thick &= self.own & (self.lesion_map == 0)
        self.image[thick] = DUCT_HU
        return bool(np.count_nonzero(thick) >= FEWEST_VOXELS)


_TRAITS = {
    NONE: LesionPainter._nothing,
    CALCIFICATION: LesionPainter._calcify,
    ENHANCEMENT: LesionPainter._enhance,
    THICKENING: LesionPainter._thicken,
    DILATATION: LesionPainter._dilate,
}


def _depth(blob: _Blob, spacing: np.ndarray) -> np.ndarray:
    """Measure how deep (mm) each voxel of a lesion lies in it."""
    padded = ndimage.distance_transform_edt(np.pad(blob.mask, 1), spacing)
    return padded[1:-1, 1:-1, 1:-1]
