"""Measurements on a CT with masks of its organs and lesions: volumes, HU, diameters, places."""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool
from scipy import ndimage

from tumorchain_jax.anatomy.organs import COLORECTUM, LIVER, PANCREAS, SPLEEN, display_name
from tumorchain_jax.anatomy.substructures import SEGMENTS, segment_at, segment_map
from tumorchain_jax.phantoms.lesion_shape import longest_diameter
from tumorchain_jax.scan.orientation import canonical
from tumorchain_jax.scan.volume import Volume

KIDNEYS = (2, 3)
LESION_ORGANS = (LIVER, PANCREAS, *KIDNEYS, COLORECTUM)
"""Organs whose lesions the benchmark asks about."""
NEIGHBOURS = (1, 2, 3, 4, 5, 6, 7, 18, 19, 20, 52, 63)
"""Organs that a lesion may be next to (TotalSegmentator ids)."""
NAMES = {52: "aorta", 63: "inferior vena cava"}
VESSELS = (52, 63, 64)
"""Aorta, inferior vena cava, portal and splenic vein (TotalSegmentator ids)."""
FEWEST_VOXELS, REACH_MM = 300, 60.0
KIDNEY_SOLID_HU, LIVER_SOLID_HU, PANCREAS_SOLID_HU = 34.8, 25.0, 30.0
"""A lesion above these is solid; the kidney's limit is the benchmark's, the others are ours."""


@dataclass(frozen=True)
class Lesion:
    """A lesion as measured.

    Attributes:
        organ: TotalSegmentator id.
        kind: `cyst`, `tumor`, and in the pancreas `PDAC` (darker than it) or `PNET`; by HU alone.
        volume_cm3, diameter_cm: the latter the longest in any direction.
        hu: mean.
        slice_percent: the slice with most of it, counted from the feet, as a share of the slices.
        segment: part of the organ; "" in kidneys.
        neighbours: organ id -> mm to it, of organs within `REACH_MM`.
        vessel_degrees: the most that it surrounds a great vessel, in any slice.
    """

    organ: int
    kind: str
    volume_cm3: float
    diameter_cm: float
    hu: float
    slice_percent: float
    segment: str = ""
    neighbours: dict[int, float] = field(default_factory=dict)
    vessel_degrees: float = 0.0


@dataclass(frozen=True)
class Measured:
    """All that the questions ask about.

    Attributes:
        volumes_cm3: TotalSegmentator id -> volume with lesions, of organs that are there.
        hu: id -> mean HU without lesions.
        lesions: largest first.
    """

    volumes_cm3: dict[int, float]
    hu: dict[int, float]
    lesions: tuple[Lesion, ...]


def measure(ct: Volume, labels: Volume, lesions: Volume) -> Measured:
    """Measure organs and lesions.

    Args:
        ct: HU.
        labels: TotalSegmentator v2 ids on its grid; a lesion's voxels keep their organ's id.
        lesions: n in the n-th lesion, 0 elsewhere.
    """
    image, organs, marked = (canonical(each).voxels for each in (ct, labels, lesions))
    affine = canonical(ct).affine
    spacing = np.linalg.norm(affine[:3, :3], axis=0)
    cm3 = float(np.prod(spacing)) / 1000
    sizes = np.bincount(organs.ravel(), minlength=256)
    wanted = (SPLEEN, *LESION_ORGANS, *NEIGHBOURS)
    present = [organ for organ in sorted(set(wanted)) if sizes[organ] >= FEWEST_VOXELS]
    volumes = {organ: float(sizes[organ] * cm3) for organ in present}
    healthy = np.where(marked > 0, 0, organs)
    hu = {
        organ: float(ndimage.mean(image, healthy, organ))
        for organ in present
        if (healthy == organ).any()
    }
    upright = Volume(organs, affine, labels.source)
    segments = {
        organ: segment_map(upright, organ)
        for organ in (LIVER, PANCREAS, COLORECTUM)
        if organ in present
    }
    found = []
    for number, box in enumerate(ndimage.find_objects(marked.astype(np.int32)), 1):
        if box is None:
            continue
        mask = marked[box] == number
        organ = int(np.bincount(organs[box][mask], minlength=256)[list(LESION_ORGANS)].argmax())
        organ = LESION_ORGANS[organ]
        if organ not in hu:
            continue
        points = np.argwhere(mask) + [part.start for part in box]
        world = points @ affine[:3, :3].T + affine[:3, 3]
        mean = float(image[box][mask].mean())
        areas = np.bincount(points[:, 0])  # from the feet upwards
        segment = ""
        if organ in segments:
            nearest = segment_at(segments[organ], affine, world.mean(0))
            segment = SEGMENTS[organ][nearest - 1]
        found.append(
            Lesion(
                organ,
                _kind(organ, mean, hu[organ]),
                float(mask.sum() * cm3),
                longest_diameter(world, affine) / 10,
                mean,
                100 * (int(areas.argmax()) + 1) / len(marked),
                segment,
                _neighbours(organs, marked == number, box, spacing, organ),
                _surrounded(organs, marked == number, box),
            )
        )
    found.sort(key=lambda each: -each.volume_cm3)
    return Measured(volumes, hu, tuple(found))


def organ_name(organ: int) -> str:
    """Return how a question names an organ."""
    return NAMES.get(organ) or display_name(organ)


def _kind(organ: int, hu: float, organ_hu: float) -> str:
    if organ in KIDNEYS:
        return "tumor" if hu > KIDNEY_SOLID_HU else "cyst"
    if organ == LIVER:
        return "tumor" if hu > LIVER_SOLID_HU else "cyst"
    if organ == PANCREAS:
        if hu <= PANCREAS_SOLID_HU:
            return "cyst"
        return "PDAC" if hu < organ_hu else "PNET"
    return "tumor"


def _around(
    box: tuple[slice, ...], margin: np.ndarray, shape: tuple[int, ...]
) -> tuple[slice, ...]:
    return tuple(
        slice(max(0, part.start - int(m)), min(size, part.stop + int(m)))
        for part, m, size in zip(box, margin, shape, strict=True)
    )


def _neighbours(
    organs: np.ndarray,
    lesion: Bool[np.ndarray, "I J K"],
    box: tuple[slice, ...],
    spacing: np.ndarray,
    own: int,
) -> dict[int, float]:
    near = _around(box, np.ceil(REACH_MM / spacing), organs.shape)
    away = ndimage.distance_transform_edt(~lesion[near], spacing)
    close = np.where(away <= REACH_MM, organs[near], 0)
    others = [o for o in NEIGHBOURS if o != own and (close == o).any()]
    return {organ: float(away[close == organ].min()) for organ in others}


def _surrounded(
    organs: np.ndarray, lesion: Bool[np.ndarray, "I J K"], box: tuple[slice, ...]
) -> float:
    """Measure how many degrees of a vessel's outline a lesion touches, at most, in any slice."""
    near = _around(box, np.array((0, 25, 25)), organs.shape)
    disc = ndimage.generate_binary_structure(2, 1)[None]
    touching = ndimage.binary_dilation(lesion[near], disc)
    most = 0.0
    for vessel in VESSELS:
        mask = organs[near] == vessel
        rim = mask & ~ndimage.binary_erosion(mask, disc, border_value=1)
        outline, touched = rim.sum((1, 2)), (rim & touching).sum((1, 2))
        whole = outline >= 6
        if whole.any():
            most = max(most, float((360 * touched[whole] / outline[whole]).max()))
    return most
