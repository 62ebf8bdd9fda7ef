"""Substructures of the five digestive organs, from the label map alone by geometric rules.

Left, right, front and height are the patient's own (RAS+), whatever the axes of the volume. The
rules approximate anatomy well enough to ask where a lesion lies; a surgeon's borders follow vessels
that the map does not show.

| organ | rule |
|---|---|
| liver | Two upright planes meet in the inferior vena cava: the main one runs to the gallbladder, \
the other points 55° further back. Left of the first: left lobe; between them V and VIII; behind \
the second VI and VII. V and VI lie in the lower half of the liver's height, VII and VIII above. |
| pancreas | Along the organ, from its end furthest right and down to that furthest left and up: \
head to 32 %, neck to 48 %, body to 77 %, tail. |
| stomach | Along the organ, from its end furthest up, left and back to that furthest down, right \
and in front (1 mm up counts as 2): fundus to 23 %, body to 67 %, antrum. |
| colorectum | Above the iliac crests: transverse in front of the flank planes, behind them \
ascending on the right and descending on the left. Rectum: 60 mm or more below the crests, within \
40 mm of the midline, 30 mm or more behind the middle of the colon. The rest below the crests \
continues what it hangs on: cecum the ascending, transverse (which may sag) the transverse, \
sigmoid the descending colon or the rectum. |
| esophagus | Thirds of the height that is in view. |

- Without a vena cava the liver's planes meet at 40 % of its width from its left edge, half-way
  back; without a gallbladder the main plane points 50° forward of the patient's right.
- Along the organ: way from its start / (way from its start + way to its end), over cells of about
  6 mm in the organ. Piece by piece the closest to the largest is joined to it, straight across the
  gap.
- The middle of the colon is that of the box around what lies above the crests. There, and aside of
  the midline by 60 % of the way to where the colon is widest, a flank plane passes; further aside
  it lies 0.5 mm a mm more in front, further down 0.25. The midline is the spine's, else the
  colon's.
- What a cell of the colon hangs on: the part with the easiest way to it, where a step of d mm
  between depths a and b below the surface weighs d / (a b)^2, for loops of the colon touch. A piece
  that hangs on nothing is cecum in the right third of the colon's width, sigmoid elsewhere.
- Without hip bones in the map the crests, and with them cecum, sigmoid and rectum, count as out of
  view; without a spine either, the crests as half-way up the colon.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import ndimage
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components, dijkstra
from scipy.spatial import KDTree

from tumorchain_jax.anatomy.organs import COLORECTUM, ESOPHAGUS, LIVER, PANCREAS, STOMACH
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.scan.orientation import canonical, orientation, reorient
from tumorchain_jax.scan.volume import Volume

SEGMENTS: dict[int, tuple[str, ...]] = {
    LIVER: ("left lobe of the liver", *(f"liver segment {n}" for n in ("V", "VI", "VII", "VIII"))),
    PANCREAS: tuple(f"{part} of the pancreas" for part in ("head", "neck", "body", "tail")),
    STOMACH: ("gastric fundus", "gastric body", "gastric antrum"),
    COLORECTUM: (
        "cecum",
        "ascending colon",
        "transverse colon",
        "descending colon",
        "sigmoid colon",
        "rectum",
    ),
    ESOPHAGUS: tuple(f"{third} thoracic esophagus" for third in ("upper", "middle", "lower")),
}
"""Digestive organ -> its parts, named as in `SUB_ORGANS`; the n-th is number n in a map."""

_LEFT_LOBE, _V, _VI, _VII, _VIII = range(1, 6)
_CECUM, _ASCENDING, _TRANSVERSE, _DESCENDING, _SIGMOID, _RECTUM = range(1, 7)
# What a part of the colon continues as below the iliac crests.
_CONTINUES = np.array((0, 0, _CECUM, _TRANSVERSE, _SIGMOID, 0, _SIGMOID))
# TotalSegmentator ids of the landmarks.
_GALLBLADDER, _VENA_CAVA, _HIPS, _SPINE = (4,), (63,), (77, 78), range(25, 51)

_CELL_MM = 6.0
_PANCREAS_CUTS, _STOMACH_CUTS = (0.32, 0.48, 0.77), (0.23, 0.67)


def segment_map(labels: Volume, organ: int) -> np.ndarray:
    """Number each voxel of an organ by the part it lies in.

    Args:
        labels: TotalSegmentator v2 `total` ids; those of the landmarks above help where present.
        organ: one of the digestive organs, a key of `SEGMENTS`.

    Returns:
        uint8, the shape of `labels`: 0 outside the organ, n in the n-th of `SEGMENTS[organ]`.

    Raises:
        InputError: no voxel has the id, or the organ has no parts.
    """
    if organ not in SEGMENTS:
        raise InputError(
            "segment_map", "organ", str(organ), f"one of {sorted(SEGMENTS)}", "ask for another"
        )
    volume = canonical(labels)
    mask = volume.voxels == organ
    if not mask.any():
        raise InputError(
            labels.source, "organ", f"no voxel with id {organ}", "a digestive organ in the map",
            "ask for another organ, or give a map that shows it",
        )  # fmt: skip
    segments = np.zeros(mask.shape, np.uint8)
    segments[mask] = _RULES[organ](volume, np.argwhere(mask))
    own_axes = reorient(Volume(segments, volume.affine), orientation(labels.affine))
    return np.ascontiguousarray(own_axes.voxels)


def segment_at(
    segments: np.ndarray, affine: np.ndarray, point_mm: Sequence[float] | np.ndarray
) -> int:
    """Return the number of the part nearest to a point.

    Args:
        segments: of `segment_map`.
        affine: voxel index to RAS+ mm.
        point_mm: RAS+ mm, inside the organ or not.
    """
    index = np.argwhere(segments)
    away = _world(affine, index) - np.asarray(point_mm)
    return int(segments[tuple(index[np.square(away).sum(1).argmin()])])


def _world(affine: np.ndarray, index: np.ndarray) -> np.ndarray:
    return index @ affine[:3, :3].T + affine[:3, 3]


def _landmark(volume: Volume, ids: Iterable[int]) -> np.ndarray:
    """Return the RAS+ mm `[n, 3]` of all voxels with one of `ids`; n may be 0."""
    return _world(volume.affine, np.argwhere(np.isin(volume.voxels, list(ids))))


def _liver(volume: Volume, index: np.ndarray) -> np.ndarray:
    points = _world(volume.affine, index)
    low, high = points.min(0), points.max(0)
    turn = low + (high - low) * (0.4, 0.5, 0.5)
    cava = _landmark(volume, _VENA_CAVA)
    cava = cava[(cava[:, 2] >= low[2]) & (cava[:, 2] <= high[2])]
    if len(cava):
        turn[:2] = cava[:, :2].mean(0)
    main = np.deg2rad(50)
    gallbladder = _landmark(volume, _GALLBLADDER)
    if len(gallbladder):
        rightwards, forwards = gallbladder[:, :2].mean(0) - turn[:2]
        main = np.arctan2(forwards, rightwards)
    x, y, z = (points - turn).T

    def in_front_of(angle: float) -> np.ndarray:
        return np.cos(angle) * y > np.sin(angle) * x

    upper = z > 0
    right = np.where(
        in_front_of(main - np.deg2rad(55)), np.where(upper, _VIII, _V), np.where(upper, _VII, _VI)
    )
    return np.where(in_front_of(main), _LEFT_LOBE, right)


def _esophagus(volume: Volume, index: np.ndarray) -> np.ndarray:
    z = _world(volume.affine, index)[:, 2]
    down = (z.max() - z) / max(np.ptp(z), 1e-6)
    return 1 + np.digitize(down, (1 / 3, 2 / 3))


def _pancreas(volume: Volume, index: np.ndarray) -> np.ndarray:
    share = _share_of_way(_cells(volume, index), np.array((1, 0, -1)))
    return 1 + np.digitize(share, _PANCREAS_CUTS)


def _stomach(volume: Volume, index: np.ndarray) -> np.ndarray:
    share = _share_of_way(_cells(volume, index), np.array((-1, -1, 2)))
    return 1 + np.digitize(share, _STOMACH_CUTS)


def _colorectum(volume: Volume, index: np.ndarray) -> np.ndarray:
    cells = _cells(volume, index)
    x, y, z = cells.points.T
    crest, midline = _crest_and_midline(volume, cells.points)
    aside = np.abs(x - midline)
    abdominal = cells.points[z > crest] if (z > crest).any() else cells.points
    _, front, height = _middle(abdominal)
    forwards = (y - front) - 0.5 * (aside - 0.6 * aside.max()) + 0.25 * (z - height)
    part = np.where(forwards > 0, _TRANSVERSE, np.where(x > midline, _ASCENDING, _DESCENDING))
    part[z <= crest] = 0
    part[(z < crest - 60) & (aside < 40) & (y < front - 30)] = _RECTUM

    pelvic = part == 0
    source = _spread(cells, part)
    alone = np.where(x > x.max() - np.ptp(x) / 3, _CECUM, _SIGMOID)
    continued = np.where(source > 0, _CONTINUES[source], alone)
    return np.where(pelvic, continued, part)[cells.of_voxel]


def _crest_and_midline(volume: Volume, colon: np.ndarray) -> tuple[float, float]:
    """Locate the height of the iliac crests and the midline, RAS+ mm."""
    hips, spine = _landmark(volume, _HIPS), _landmark(volume, _SPINE)
    across, _, height = _middle(colon)
    if len(hips):
        height = hips[:, 2].max()
    elif len(spine):  # so the pelvis is out of view
        height = -np.inf
    return height, spine[:, 0].mean() if len(spine) else across


_RULES: dict[int, Callable[[Volume, np.ndarray], np.ndarray]] = {
    LIVER: _liver,
    PANCREAS: _pancreas,
    STOMACH: _stomach,
    COLORECTUM: _colorectum,
    ESOPHAGUS: _esophagus,
}


def _middle(points: np.ndarray) -> np.ndarray:
    """Return the middle of the box around points `[n, 3]`."""
    return (points.min(0) + points.max(0)) / 2


class _Cells(NamedTuple):
    """An organ on a coarse grid: C cells, those that hold any of its N voxels.

    Attributes:
        points: `[C, 3]` their centres, RAS+ mm.
        depth: `[C]` mm from the surface.
        pairs: `[P, 2]` neighbours, diagonal ones too.
        of_voxel: `[N]` each voxel's cell.
    """

    points: np.ndarray
    depth: np.ndarray
    pairs: np.ndarray
    of_voxel: np.ndarray


def _cells(volume: Volume, index: np.ndarray) -> _Cells:
    step = np.maximum(1, np.round(_CELL_MM / np.array(volume.spacing))).astype(int)
    corner = index.min(0)
    coarse = (index - corner) // step + 1
    shape = coarse.max(0) + 2
    flat, of_voxel = np.unique(np.ravel_multi_index(coarse.T, shape), return_inverse=True)
    grid = np.zeros(shape, bool)
    grid.flat[flat] = True
    depth = ndimage.distance_transform_edt(grid, sampling=step * volume.spacing).flat[flat]
    cells = np.stack(np.unravel_index(flat, shape), 1)
    points = _world(volume.affine, corner + (cells - 0.5) * step - 0.5)
    # Diagonal neighbours are the square root of 3 apart.
    pairs = KDTree(cells).query_pairs(1.8, output_type="ndarray")
    return _Cells(points, depth, pairs, of_voxel)


def _graph(cells: _Cells, pairs: np.ndarray, weight: np.ndarray) -> csr_array:
    count = len(cells.points)
    return coo_array((weight, tuple(pairs.T)), shape=(count, count)).tocsr()


def _length(cells: _Cells, pairs: np.ndarray) -> np.ndarray:
    return np.linalg.norm(cells.points[pairs[:, 0]] - cells.points[pairs[:, 1]], axis=1)


def _share_of_way(cells: _Cells, start: np.ndarray) -> np.ndarray:
    """Measure how far each voxel lies along the organ: 0 at its end towards `start`, 1 opposite."""
    pairs = _joined(cells)
    graph = _graph(cells, pairs, _length(cells, pairs))
    towards = cells.points @ start
    ends = [int(towards.argmax()), int(towards.argmin())]
    from_start, from_stop = dijkstra(graph, directed=False, indices=ends)
    share = from_start / np.maximum(from_start + from_stop, 1e-6)
    return share[cells.of_voxel]


def _joined(cells: _Cells) -> np.ndarray:
    """Add pairs that join all pieces to the largest, the closest piece first."""
    pairs = cells.pairs
    while True:
        count, piece = connected_components(_graph(cells, pairs, _length(cells, pairs)))
        if count == 1:
            return pairs
        largest = piece == np.bincount(piece).argmax()
        inside, outside = np.flatnonzero(largest), np.flatnonzero(~largest)
        gap, near = KDTree(cells.points[inside]).query(cells.points[outside])
        closest = gap.argmin()
        pairs = np.vstack([pairs, (inside[near[closest]], outside[closest])])


def _spread(cells: _Cells, part: np.ndarray) -> np.ndarray:
    """Give each cell the `part` `[C]` from which it is reached most easily; 0: none yet.

    Ways near the surface are hard, so that one loop of the colon is not entered from another.
    Cells that no part reaches stay 0.
    """
    sources = np.flatnonzero(part)
    if not len(sources):
        return part
    first, second = cells.pairs.T
    hardness = _length(cells, cells.pairs) / (cells.depth[first] * cells.depth[second]) ** 2
    graph = _graph(cells, cells.pairs, hardness)
    _, _, source = dijkstra(
        graph, directed=False, indices=sources, min_only=True, return_predecessors=True
    )
    return np.where(source >= 0, part[np.maximum(source, 0)], 0)
