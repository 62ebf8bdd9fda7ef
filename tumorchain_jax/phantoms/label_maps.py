"""Label maps as sources of anatomy: read from a folder, completed by the parametric trunk.

A map rarely has all that a CT shows. What it lacks is drawn as the trunk of `body.py`, fitted to
the organs that both have, into the room that the map leaves; a voxel of the map is never
overwritten.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import nibabel as nib
import numpy as np
from jaxtyping import Bool, Float, UInt8
from scipy import ndimage

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.phantoms.body import (
    BODY_Y,
    HALF_DEPTH,
    HALF_WIDTH,
    TRUNK,
    Body,
    Ellipsoid,
    Space,
    above_diaphragm,
    paint_lungs,
    paint_ribs,
    place_organs,
)
from tumorchain_jax.phantoms.deformation import Box

VOXEL_MM = 2.5  # of a template
OUTLINE_MM = 5.0  # of the grid on which the depth below the skin is measured
PADDING_MM = 45.0  # around the body, for the depth of what is added to it
TOTAL_IDS = 117  # of TotalSegmentator v2 `total`
BODY = 200
"""From this id on a voxel is of the body without being an organ; BODY itself is free room."""
FEMALE_IDS, MALE_IDS = (210, 212), (22, 211)
HOLLOW = (4, 6, 15, 16, 18, 19, 20, 21)
LUNG_IDS, RIB_IDS = range(10, 15), range(92, 116)
# Organs by whose boxes the trunk is fitted; what a scan cuts off fits badly.
LANDMARKS = (1, 2, 3, 5, 21, 25, 51, 77, 78)
FEWEST_LANDMARKS = 3
# Of a body whose outline a map does not give: organs joined over gaps, and a layer around them.
CLOSING_MM, LAYER_MM = 60.0, 25.0
FAT_MM, WALL_MM = 8.0, 10.0
LOWEST_MM, HIGHEST_MM = -200.0, 300.0  # of the parametric trunk
# Muscles of buttocks and hips: mm below the skin, from this far under the top of the hip bones.
BUTTOCK_MM, BELOW_HIP_MM, MUSCLE_ID = 45.0, 25.0, 203
# Thoracic vertebrae T8 to T5 above those of the trunk.
UPPER_SPINE = tuple(
    part
    for n, z in enumerate((211, 237, 262, 286))
    for part in (
        Ellipsoid(36 + n, (0, 0, z), (15, 18, 18)),
        Ellipsoid(36 + n, (0, -40, z - 8), (7, 20, 13)),
    )
)


@dataclass(frozen=True)
class Template:
    """A whole trunk, from which patients are deformed.

    Attributes:
        labels: TotalSegmentator v2 ids; BODY and above for the rest of the body; 0 outside of it.
        depth: mm below the skin within a slice, negative outside, float16.
        inner: mm from the boundary of a hollow organ to within, in quarters of a mm; 0 elsewhere.
        origin: mm (x to the Right, y Anterior, z Superior) of voxel (0, 0, 0); VOXEL_MM apart.
        female: None where it is not known.
        boxes: of each label in mm; 0 is the whole body.
        voxel_mm: distance of neighbours.
    """

    labels: UInt8[np.ndarray, "X Y Z"]
    depth: Float[np.ndarray, "X Y Z"]
    inner: UInt8[np.ndarray, "X Y Z"]
    origin: Float[np.ndarray, "3"]
    female: bool | None
    boxes: dict[int, Box]
    voxel_mm: float = VOXEL_MM


def read_label_map(path: Path) -> tuple[UInt8[np.ndarray, "X Y Z"], np.ndarray]:
    """Read a label map onto a RAS grid of VOXEL_MM; return it with the mm of its first voxel.

    Raises:
        InputError: it is no label map of TotalSegmentator v2 ids.
    """
    hint = "give label maps of TotalSegmentator v2 `total` as .nii.gz"
    try:
        image = nib.as_closest_canonical(nib.load(path))
        voxels = np.asarray(image.dataobj)
    except Exception as error:  # nibabel's own and those of gzip, zlib and the file system
        raise InputError(str(path), "file", str(error), "a NIfTI file", hint) from None
    if voxels.ndim != 3 or not voxels.size:
        raise InputError(str(path), "shape", str(voxels.shape), "three dimensions", hint)
    linear = image.affine[:3, :3]
    spacing = np.linalg.norm(linear, axis=0)
    if np.abs(linear - np.diag(spacing)).max() > 0.05 * spacing.min():
        raise InputError(str(path), "affine", "an oblique grid", "axes along the patient's", hint)
    known = np.unique(voxels)
    if not np.isin(known, [*range(TOTAL_IDS + 1), *range(BODY, 256)]).all():
        strange = sorted(set(known.tolist()) - {*range(TOTAL_IDS + 1), *range(BODY, 256)})[:4]
        expected = f"whole numbers from 0 to {TOTAL_IDS}, or {BODY} to 255"
        raise InputError(str(path), "labels", str(strange), expected, hint)
    shared = [label for label in LANDMARKS if label in known]
    if len(shared) < FEWEST_LANDMARKS:
        expected = f"{FEWEST_LANDMARKS} or more of the organs {LANDMARKS}"
        raise InputError(str(path), "labels", f"only {shared} of them", expected, hint)
    size = np.maximum(1, np.round(np.array(voxels.shape) * spacing / VOXEL_MM).astype(int))
    index = [
        np.clip(np.round((np.arange(n) + 0.5) * VOXEL_MM / s - 0.5), 0, count - 1).astype(int)
        for n, s, count in zip(size, spacing, voxels.shape, strict=True)
    ]
    labels = _without_holes(voxels[np.ix_(*index)].astype(np.uint8))
    _check_sides(path, labels, hint)
    return labels, image.affine[:3, 3] + (VOXEL_MM - spacing) / 2


def trunk_outline(rng: np.random.Generator) -> tuple[UInt8[np.ndarray, "X Y Z"], np.ndarray]:
    """Draw the body of a parametric trunk, without organs; and the mm of its first voxel."""
    low, high = (
        np.array([-HALF_WIDTH, BODY_Y - HALF_DEPTH, LOWEST_MM]),
        np.array([HALF_WIDTH, BODY_Y + HALF_DEPTH, HIGHEST_MM]),
    )
    wide = rng.normal(1.0, 0.06, 2).clip(0.88, 1.12)
    power = rng.uniform(2.1, 2.8)
    x, y, z = (np.arange(a, b, VOXEL_MM) for a, b in zip(low, high, strict=True))
    side = np.abs(x) / (HALF_WIDTH * wide[0])
    front = np.abs(y - BODY_Y) / (HALF_DEPTH * wide[1])
    inside = side[:, None] ** power + front**power < 1
    return np.repeat(np.where(inside, np.uint8(BODY), np.uint8(0))[..., None], len(z), 2), low


def complete(labels: UInt8[np.ndarray, "X Y Z"], origin: np.ndarray, seed: int) -> Template:
    """Fill in what a label map lacks.

    Args:
        labels: as from `read_label_map`.
        origin: mm of its first voxel.
        seed: of the shapes that are filled in; the same seed gives the same template.
    """
    labels, origin = _padded(labels, origin)
    depth = _depth(labels)
    labels = np.where((labels == 0) & (depth > 0), np.uint8(BODY), labels)
    scale, offset = _fit(_boxes(labels, origin))
    own = np.unique(labels[(labels > 0) & (labels < BODY)])
    labels = _fill(
        np.random.default_rng(seed), labels, depth, (origin - offset) / scale, scale, own
    )
    _add_buttocks(labels, depth, _boxes(labels, origin), origin)
    present = set(own.tolist()) | set(np.unique(labels).tolist())
    return Template(
        labels,
        depth.astype(np.float16),
        _inner(labels),
        origin,
        True if present & {*FEMALE_IDS} else False if present & {*MALE_IDS} else None,
        _boxes(labels, origin),
    )


def _without_holes(labels: np.ndarray) -> np.ndarray:
    """Fill the holes that surface models leave in organs, where they belong to no other organ."""
    for label, box in enumerate(ndimage.find_objects(labels, TOTAL_IDS), 1):
        if box is None:
            continue
        part = labels[box]
        own = part == label
        closed = ndimage.binary_closing(np.pad(own, 2), iterations=2)[2:-2, 2:-2, 2:-2] | own
        for axis in range(3):
            slices = np.moveaxis(closed, axis, 0)
            for n, one in enumerate(slices):
                slices[n] = ndimage.binary_fill_holes(one)
        part[closed & np.isin(part, (0, *range(BODY, 256)))] = label
    return labels


def _check_sides(path: Path, labels: np.ndarray, hint: str) -> None:
    """Refuse ids of another order (v1), and mirrored maps: the liver lies right of the spleen."""
    boxes = _boxes(labels, np.zeros(3))
    if 5 in boxes and 1 in boxes and boxes[5][1][0] + boxes[5][0][0] < sum(boxes[1])[0]:
        found = "label 5 (liver) left of label 1 (spleen)"
        raise InputError(str(path), "labels", found, "the liver on the right", hint)


def _padded(labels: np.ndarray, origin: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Add empty room around the body in the slice, and let no part of it touch the border."""
    n = int(PADDING_MM / VOXEL_MM)
    return np.pad(labels, ((n, n), (n, n), (0, 0))), origin - (n * VOXEL_MM, n * VOXEL_MM, 0)


def _depth(labels: np.ndarray) -> Float[np.ndarray, "X Y Z"]:
    """Measure the depth below the skin within each slice (mm, negative outside)."""
    step = round(OUTLINE_MM / VOXEL_MM)
    coarse = labels[::step, ::step, ::step] > 0
    if not (labels >= BODY).any():
        coarse = _outline(coarse)
    sampling = (OUTLINE_MM, OUTLINE_MM, 1e4)  # the ends of the scan are no skin
    coarse = np.stack([ndimage.binary_fill_holes(part) for part in np.moveaxis(coarse, 2, 0)], 2)
    within = ndimage.distance_transform_edt(coarse, sampling)
    outside = ndimage.distance_transform_edt(~coarse, sampling)
    signed = np.where(coarse, within - OUTLINE_MM / 2, OUTLINE_MM / 2 - outside)
    fine = ndimage.zoom(signed.clip(-200, 300), step, order=1, mode="nearest", grid_mode=True)
    short = [(0, max(0, n - m)) for n, m in zip(labels.shape, fine.shape, strict=True)]
    x, y, z = labels.shape
    return np.pad(fine.astype(np.float32), short, mode="edge")[:x, :y, :z]


def _outline(organs: Bool[np.ndarray, "X Y Z"]) -> Bool[np.ndarray, "X Y Z"]:
    """Guess the body of a map that has organs alone."""
    reach = CLOSING_MM / OUTLINE_MM
    away = ndimage.distance_transform_edt(~organs, (1, 1, 2))
    joined = ndimage.distance_transform_edt(away <= reach, (1, 1, 2)) > reach
    return ndimage.distance_transform_edt(~(joined | organs), (1, 1, 1e4)) <= LAYER_MM / OUTLINE_MM


def _boxes(labels: np.ndarray, origin: np.ndarray) -> dict[int, Box]:
    """Box of each organ in mm; of all together under 0."""
    found = enumerate(ndimage.find_objects(labels, BODY - 1), 1)
    places = {label: box for label, box in found if box is not None}
    places[0] = ndimage.find_objects((labels > 0).view(np.uint8))[0]
    return {
        label: (
            origin + VOXEL_MM * np.array([s.start for s in box]),
            origin + VOXEL_MM * np.array([s.stop - 1 for s in box]),
        )
        for label, box in places.items()
    }


@cache
def _trunk_boxes() -> dict[int, Box]:
    """Box of each landmark in the trunk of mean shape (canonical mm)."""
    boxes: dict[int, Box] = {}
    for organ in TRUNK:
        if isinstance(organ, Ellipsoid):
            centre, half = np.array(organ.centre), np.array(organ.half_axes)
            low, high = centre - half, centre + half
        else:
            points, radii = np.array(organ.points), np.array(organ.radii)[:, None]
            low, high = (points - radii).min(0), (points + radii).max(0)
        if organ.label in boxes:
            low, high = (
                np.minimum(low, boxes[organ.label][0]),
                np.maximum(high, boxes[organ.label][1]),
            )
        boxes[organ.label] = (low.astype(float), high.astype(float))
    return boxes


def _fit(boxes: dict[int, Box]) -> tuple[np.ndarray, np.ndarray]:
    """Fit scale and offset of each axis, from the trunk's mm to the map's, by least squares."""
    shared = [label for label in LANDMARKS if label in boxes]
    if not shared:
        return np.ones(3), np.zeros(3)
    theirs = np.concatenate([np.stack(_trunk_boxes()[label]) for label in shared])
    ours = np.concatenate([np.stack(boxes[label]) for label in shared])
    scale, offset = np.ones(3), np.zeros(3)
    for axis in range(3):
        design = np.stack([theirs[:, axis], np.ones(len(theirs))], 1)
        scale[axis], offset[axis] = np.linalg.lstsq(design, ours[:, axis], rcond=None)[0]
    return scale.clip(0.7, 1.5), offset


def _fill(
    rng: np.random.Generator,
    labels: np.ndarray,
    depth: np.ndarray,
    first: np.ndarray,
    scale: np.ndarray,
    own: np.ndarray,
) -> UInt8[np.ndarray, "X Y Z"]:
    """Draw into the free room of the body all that is not among the map's own labels."""
    step = VOXEL_MM / scale
    axes = [a + s * np.arange(n) for a, s, n in zip(first, step, labels.shape, strict=True)]
    x, y, z = np.meshgrid(*(a.astype(np.float32) for a in axes), indexing="ij")
    space = Space(x, y, z, first, step, 0.0)
    body = Body("portal venous", cirrhosis=False, swelling=False)
    drawn = np.where(labels == BODY, np.uint8(0), labels)
    free = (drawn == 0) & (depth > FAT_MM)
    drawn[(labels == 0)] = BODY  # nothing is drawn outside of the body
    if not set(RIB_IDS) & set(own.tolist()):
        paint_ribs(drawn, space, depth - FAT_MM - WALL_MM / 2, free)
    above = above_diaphragm(rng, space)
    if {5, 51} & set(own.tolist()):
        above &= _over(labels, (1, 5), 2)
    missing = tuple(organ for organ in (*TRUNK, *UPPER_SPINE) if organ.label not in own)
    for _ in place_organs(rng, space, depth, FAT_MM, WALL_MM, above, drawn, body, missing):
        pass
    if not set(LUNG_IDS) & set(own.tolist()):
        paint_lungs(drawn, space, above & (depth > FAT_MM + WALL_MM))
    drawn[labels == 0] = 0
    drawn[(drawn == 0) & (labels > 0)] = BODY
    return drawn


def _add_buttocks(
    labels: np.ndarray, depth: np.ndarray, boxes: dict[int, Box], origin: np.ndarray
) -> None:
    """Label the muscles around the hip bones, behind their front, in place."""
    hips = [boxes[label] for label in (77, 78) if label in boxes]
    if hips:
        top = int((max(box[1][2] for box in hips) - BELOW_HIP_MM - origin[2]) / VOXEL_MM)
        front = int((max(box[1][1] for box in hips) - origin[1]) / VOXEL_MM)
        part = labels[:, :front, : max(top, 0)]
        below = depth[:, :front, : max(top, 0)]
        part[(part == BODY) & (below > FAT_MM) & (below < BUTTOCK_MM)] = MUSCLE_ID


def _over(labels: np.ndarray, ids: tuple[int, ...], axis: int) -> Bool[np.ndarray, "X Y Z"]:
    """Voxels that have none of the organs above them."""
    organ = np.isin(labels, ids)
    return ~np.flip(np.logical_or.accumulate(np.flip(organ, axis), axis), axis)


def _inner(labels: np.ndarray) -> UInt8[np.ndarray, "X Y Z"]:
    """Measure the distance of hollow organs' voxels from their own boundary."""
    inner = np.zeros(labels.shape, np.uint8)
    for label, box in enumerate(ndimage.find_objects(labels, max(HOLLOW)), 1):
        if box is None or label not in HOLLOW:
            continue
        own = np.pad(labels[box] == label, 1)
        distance = ndimage.distance_transform_edt(own, VOXEL_MM)[1:-1, 1:-1, 1:-1] - VOXEL_MM / 2
        np.copyto(
            inner[box], (4 * distance).clip(0, 255), casting="unsafe", where=own[1:-1, 1:-1, 1:-1]
        )
    return inner
