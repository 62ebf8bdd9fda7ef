"""A label map made whole: what it lacks is drawn as the parametric trunk, fitted to the map.

Voxels of the map's own organs are never changed; filled organs take the room that is free.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float32, UInt8
from scipy import ndimage

from tumorchain_jax.phantoms.anatomy import Tissue
from tumorchain_jax.phantoms.body import (
    BODY_Y,
    HALF_DEPTH,
    HALF_WIDTH,
    Space,
    diaphragm,
)
from tumorchain_jax.phantoms.label_maps import (
    BODY,
    FIRST_OTHER,
    OTHER_BONE,
    OTHER_SOFT,
    VOXEL_MM,
    LabelMap,
)
from tumorchain_jax.phantoms.trunk_labels import (
    DEPTH_UNIT_MM,
    HOLLOW,
    PROSTATE,
    TISSUE_OF_LABEL,
    Wall,
    draw_organs,
    organ_boxes,
    soft_tissue,
)

Box = tuple[Float[np.ndarray, "3"], Float[np.ndarray, "3"]]
# Organs whose boxes fit the trunk to a map, and how much each axis is trusted to be as the trunk's.
LANDMARKS = (1, 2, 3, 5, 7, 19, 21, 25, 31, 35, 51, 77, 78)
LEAST_SCALE, MOST_SCALE = 0.8, 1.25
COARSE = 3  # the wall is measured on every third voxel along each axis
PADDING_MM = 40.0  # in the slice, for fat outside of the map's own skin
DIRECTIONS = 48  # of the convex outline of the organs in a slice
WALL_MM, MARGIN_MM = 11.0, 4.0  # muscle of the wall; room between it and the organs
LEAST_FAT_MM, MOST_FAT_MM = 6.0, 32.0  # below a skin that the map gives
PLAIN_FAT_MM = 14.0  # below one that it does not give
BOWEL, LUMEN_MM2 = (18, 20), 1500.0
LAYER_UNIT = 1 / 64  # of the depth of the fat of the skin, as uint8


@dataclass(frozen=True)
class Template:
    """A whole trunk on a RAS grid of VOXEL_MM, from which patients are deformed.

    Attributes:
        name: of the file it comes from.
        labels: TotalSegmentator v2 ids.
        tissue: `Tissue` of every voxel; FAT, MUSCLE and OUTSIDE stand where there is no label.
        layer: place in the fat of the skin, in LAYER_UNIT: 0 at its inner surface and within, 64
            (1) at the skin of the map, more outside; a fatter patient's skin is at a higher one.
        inner: depth of hollow organs' voxels below their surface, in DEPTH_UNIT_MM.
        boxes: least and largest corner of each organ, mm from the first voxel.
        body: the same of the body within the fat of the skin.
        volumes_ml: of each label.
        female: None where it is not known.
        filled: ids that the map lacks and the trunk gave.
    """

    name: str
    labels: UInt8[np.ndarray, "X Y Z"]
    tissue: UInt8[np.ndarray, "X Y Z"]
    layer: UInt8[np.ndarray, "X Y Z"]
    inner: UInt8[np.ndarray, "X Y Z"]
    boxes: dict[int, Box]
    body: Box
    volumes_ml: Float[np.ndarray, "200"]
    female: bool | None
    filled: frozenset[int]


def complete(source: LabelMap, seed: int = 0) -> Template:
    """Make a template of a label map; the same seed fills in the same organs."""
    rng = np.random.default_rng(seed)
    pad = int(PADDING_MM / VOXEL_MM)
    given = np.pad(_without_holes(source.labels), ((pad, pad), (pad, pad), (0, 0)))
    own = frozenset(np.unique(given[(given > 0) & (given < FIRST_OTHER)]).tolist())
    scale, offset = _fit(_boxes(given))
    low, step = offset, VOXEL_MM * scale
    axes = [a + s * np.arange(n) for a, s, n in zip(low, step, given.shape, strict=True)]
    grid = np.meshgrid(*(a.astype(np.float32) for a in axes), indexing="ij", sparse=True)
    x, y, z = (np.broadcast_to(u, given.shape) for u in grid)
    space = Space(x, y, z, low, step, 0.0)
    within, layer = _wall(given, scale, offset)
    wall = Wall(within, WALL_MM)
    room = (given == BODY) | (given == 0)
    labels = np.where(room, np.uint8(0), given)
    labels[labels >= FIRST_OTHER] = BODY  # taken, though no organ
    above = _above(rng, space, given)
    skip = own | {PROSTATE} if source.female else own
    draw_organs(rng, space, wall, above, labels, frozenset(skip))
    labels[labels == BODY] = 0
    tissue = np.where(labels > 0, TISSUE_OF_LABEL[labels], soft_tissue(space, wall))
    tissue[(labels == 0) & (given == OTHER_SOFT)] = Tissue.MUSCLE
    tissue[(labels == 0) & (given == OTHER_BONE)] = Tissue.BONE
    layer[(labels > 0) | (given >= OTHER_SOFT)] = 0
    volumes = np.bincount(labels.ravel(), minlength=FIRST_OTHER) * VOXEL_MM**3 / 1000
    return Template(
        source.name,
        labels,
        tissue,
        layer,
        _depth_within(labels),
        _boxes(labels),
        _corners(ndimage.find_objects((layer == 0).view(np.uint8))[0]),
        volumes,
        source.female,
        frozenset(np.unique(labels).tolist()) - own - {0},
    )


def _without_holes(labels: UInt8[np.ndarray, "X Y Z"]) -> UInt8[np.ndarray, "X Y Z"]:
    """Fill small holes in the bowel, which surface models leave in its lumen here and there."""
    labels = labels.copy()
    boxes = ndimage.find_objects(labels, max(BOWEL))
    for label in BOWEL:
        box = boxes[label - 1]
        if box is None:
            continue
        part = labels[box]
        own = part == label
        gap = ndimage.binary_closing(np.pad(own, 2), np.ones((1, 1, 5)))[2:-2, 2:-2, 2:-2]
        for k in range(own.shape[2]):
            holes, count = ndimage.label(ndimage.binary_fill_holes(own[:, :, k]) & ~own[:, :, k])
            small = np.bincount(holes.ravel(), minlength=count + 1) * VOXEL_MM**2 < LUMEN_MM2
            small[0] = False
            gap[:, :, k] |= small[holes]
        part[gap & ((part == 0) | (part >= FIRST_OTHER))] = label
    return labels


def _boxes(labels: UInt8[np.ndarray, "X Y Z"]) -> dict[int, Box]:
    """Return least and largest corner of each organ, in mm from the first voxel."""
    return {
        label: _corners(box)
        for label, box in enumerate(ndimage.find_objects(labels, FIRST_OTHER - 1), 1)
        if box is not None
    }


def _corners(box: tuple[slice, ...]) -> Box:
    first, last = [s.start for s in box], [s.stop - 1 for s in box]
    return VOXEL_MM * np.array(first, float), VOXEL_MM * np.array(last, float)


def _fit(boxes: dict[int, Box]) -> tuple[np.ndarray, np.ndarray]:
    """Fit each axis of the trunk to a map: scale and offset that lead to canonical mm.

    Least squares on the middles and ends of the organs that both have; with fewer than three of
    them, scales are 1.
    """
    trunk = organ_boxes()
    shared = [label for label in LANDMARKS if label in boxes] or [
        label for label in boxes if label in trunk
    ]
    scale, offset = np.ones(3), np.zeros(3)
    for axis in range(3):
        ours = np.array([(boxes[n][0][axis] + boxes[n][1][axis]) / 2 for n in shared])
        theirs = np.array([(trunk[n][0][axis] + trunk[n][1][axis]) / 2 for n in shared])
        if len(shared) > 2 and np.ptp(ours) > 0:
            slope = np.cov(ours, theirs)[0, 1] / ours.var(ddof=1)
            scale[axis] = np.clip(slope, 1 / MOST_SCALE, 1 / LEAST_SCALE)
        if shared:
            offset[axis] = theirs.mean() - scale[axis] * ours.mean()
    return scale, offset


def _wall(
    given: UInt8[np.ndarray, "X Y Z"], scale: np.ndarray, offset: np.ndarray
) -> tuple[Float32[np.ndarray, "X Y Z"], UInt8[np.ndarray, "X Y Z"]]:
    """Find the wall of the body around its organs.

    Its outer surface is the convex outline of each slice's organs, a margin and the muscle further
    out, but no nearer to the map's skin than LEAST_FAT_MM nor deeper than MOST_FAT_MM.

    Returns:
        Depth below that surface in mm (negative without), and `layer` of a template.
    """
    coarse = given[::COARSE, ::COARSE, ::COARSE]
    step = COARSE * VOXEL_MM
    nx, ny, nz = coarse.shape
    x = (step * np.arange(nx)).astype(np.float32)
    y = (step * np.arange(ny)).astype(np.float32)
    # The cavity of the fitted trunk, a little smaller, is within the wall in any case.
    centre = np.array([-offset[0] / scale[0], (BODY_Y - offset[1]) / scale[1]], np.float32)
    half = np.array([HALF_WIDTH - 45, HALF_DEPTH - 40]) / scale[:2]
    angles = 2 * np.pi * np.arange(DIRECTIONS) / DIRECTIONS
    towards = np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32)
    least = np.sqrt(((towards * half) ** 2).sum(1)).astype(np.float32)
    reach = np.tile(least[:, None], (1, nz))
    organs = (coarse > 0) & (coarse < FIRST_OTHER)
    for k in range(nz):
        i, j = np.nonzero(organs[:, :, k])
        if i.size:
            points = np.stack([x[i], y[j]], 1) - centre
            reach[:, k] = np.maximum(reach[:, k], (points @ towards.T).max(0))
    # No slice's wall lies within the organs of its own, but walls are smooth from slice to slice.
    reach = np.maximum(ndimage.maximum_filter1d(reach, 5, axis=1), reach)
    reach = ndimage.gaussian_filter(reach, (1, 3), mode=("wrap", "nearest"))
    depth = np.full(coarse.shape, np.inf, np.float32)
    for n, (u, v) in enumerate(towards):
        along = (u * (x - centre[0]))[:, None] + (v * (y - centre[1]))[None]
        np.minimum(depth, reach[n] - along[..., None], out=depth)
    depth += np.float32(WALL_MM + MARGIN_MM)
    skin = depth + np.float32(PLAIN_FAT_MM)
    if (coarse == BODY).any():
        skin = _skin_depth(coarse > 0, step)
        depth = np.minimum(np.maximum(depth, skin - MOST_FAT_MM), skin - LEAST_FAT_MM)
    fat = skin - depth
    layer = (-depth / fat).clip(0, 255 * LAYER_UNIT)
    return _fine(depth, given.shape), (_fine(layer, given.shape) / LAYER_UNIT).astype(np.uint8)


def _skin_depth(body: Bool[np.ndarray, "X Y Z"], step: float) -> Float32[np.ndarray, "X Y Z"]:
    """Measure the depth below the skin within each slice (mm, negative outside)."""
    signed = np.empty(body.shape, np.float32)
    for k in range(body.shape[2]):
        full = ndimage.binary_fill_holes(body[:, :, k])
        within = ndimage.distance_transform_edt(full) - 0.5
        outside = ndimage.distance_transform_edt(~full) - 0.5
        signed[:, :, k] = np.where(full, within, -outside) * step
    return ndimage.gaussian_filter(signed, (1, 1, 1.5), mode="nearest")


def _fine(field: np.ndarray, shape: tuple[int, int, int]) -> Float32[np.ndarray, "X Y Z"]:
    """Interpolate a coarse field to the grid of the template."""
    for axis, size in enumerate(shape):
        count = field.shape[axis]
        at = (np.arange(size) / COARSE).clip(0, count - 1)
        first = at.astype(int).clip(0, max(count - 2, 0))
        share = (at - first).astype(np.float32).reshape([-1 if a == axis else 1 for a in range(3)])
        second = np.minimum(first + 1, count - 1)
        field = field.take(first, axis) * (1 - share) + field.take(second, axis) * share
    return field.astype(np.float32)


def _above(
    rng: np.random.Generator, space: Space, given: UInt8[np.ndarray, "X Y Z"]
) -> Bool[np.ndarray, "X Y Z"]:
    """Find what lies above the diaphragm: the trunk's dome, moved to the map's liver and spleen."""
    dome = diaphragm(space)[:, :, :1] + 0 * space.z[:, :, :1]
    height = space.z[:1, :1]
    organs = (given == 1) | (given == 5)
    top = np.where(organs, height, -np.inf).max(2, keepdims=True)
    covered = (top > dome - 60).astype(np.float32)
    if covered.any():
        risen = np.where(covered > 0, top - dome, 0).astype(np.float32)
        width = (12, 12, 0)
        weight = ndimage.gaussian_filter(covered, width) + np.float32(1e-3)
        mean = risen.sum() / covered.sum()
        spread = (ndimage.gaussian_filter(risen, width) + np.float32(1e-3) * mean) / weight
        dome = np.maximum(dome + spread, top) + 4
        dome = np.maximum(ndimage.gaussian_filter(dome, (2, 2, 0)), top)
    else:
        dome = dome + np.float32(rng.uniform(-8, 8))
    return space.z > dome


def _depth_within(labels: UInt8[np.ndarray, "X Y Z"]) -> UInt8[np.ndarray, "X Y Z"]:
    """Measure how deep voxels of hollow organs lie below their surface, in DEPTH_UNIT_MM."""
    inner = np.zeros(labels.shape, np.uint8)
    for label, box in enumerate(ndimage.find_objects(labels, max(HOLLOW)), 1):
        if box is None or label not in HOLLOW:
            continue
        own = np.pad(labels[box] == label, 1)
        depth = VOXEL_MM * (ndimage.distance_transform_edt(own)[1:-1, 1:-1, 1:-1] - 0.5)
        own = own[1:-1, 1:-1, 1:-1]
        inner[box][own] = (depth[own] / DEPTH_UNIT_MM).clip(0, 255).astype(np.uint8)
    return inner
