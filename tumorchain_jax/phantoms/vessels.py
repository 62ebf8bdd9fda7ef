"""Trees of vessels within an organ: a stem that divides twice, drawn as tapering lines."""

import numpy as np
from jaxtyping import Bool, Float

from tumorchain_jax.phantoms.body import VoxelBox

STEMS = (4, 8)
STEP = 0.5  # of the finest voxel


def paint_tree(
    rng: np.random.Generator,
    image: Float[np.ndarray, "X Y Z"],
    organ: Bool[np.ndarray, "X Y Z"],
    spacing: np.ndarray,
    branches: tuple[int, int],
    radii_mm: tuple[float, float],
    hu: float,
) -> None:
    """Paint a tree into the image, within the organ, in place.

    It starts at the organ's middle third on the side of the patient's midline, and ends at random
    voxels. A vessel thinner than a voxel fills it in part.

    Args:
        branches: fewest and most ends.
        radii_mm: of the root and of an end.
    """
    voxels = np.flatnonzero(organ)
    if len(voxels) < 500:
        return
    count = int(rng.integers(*branches))
    places = np.stack(np.unravel_index(rng.choice(voxels, count + STEMS[1]), organ.shape), -1)
    middle = np.array([organ.shape[0] / 2, organ.shape[1] / 2, places[:, 2].mean()])
    root = 0.6 * places.mean(0) + 0.4 * middle
    nodes = 0.5 * (places[: rng.integers(*STEMS)] + root)
    ends = places[STEMS[1] :]
    nearest = nodes[np.linalg.norm((ends[:, None] - nodes) * spacing, axis=-1).argmin(1)]
    forks = 0.5 * (nearest + ends) + rng.normal(0, 6, ends.shape) / spacing
    first, last = radii_mm
    middle_radius = (first * last) ** 0.5
    starts = np.concatenate([np.broadcast_to(root, nodes.shape), nearest, forks])
    stops = np.concatenate([nodes, forks, ends])
    sizes = len(nodes), len(forks), len(ends)
    thick = np.repeat([first, 0.5 * (first + middle_radius), middle_radius], sizes)
    thin = np.repeat([0.5 * (first + middle_radius), middle_radius, last], sizes)
    low = np.maximum(np.floor(np.minimum(starts, stops).min(0)).astype(int) - 2, 0)
    high = np.ceil(np.maximum(starts, stops).max(0)).astype(int) + 3
    i, j, k = (slice(int(a), int(b)) for a, b in zip(low, high, strict=True))
    box: VoxelBox = (i, j, k)
    filled = np.zeros(image[box].shape, np.float32)
    _draw_lines(filled, starts - low, stops - low, thick, thin, spacing)
    filled *= organ[box]
    image[box] += filled * (np.float32(hu) - image[box])


def _draw_lines(
    filled: np.ndarray,
    starts: np.ndarray,
    stops: np.ndarray,
    thick: np.ndarray,
    thin: np.ndarray,
    spacing: np.ndarray,
) -> None:
    """Raise `filled` to the share of a voxel that each line fills at its points."""
    lengths = np.linalg.norm((stops - starts) * spacing, axis=1)
    most = int(np.ceil(lengths.max() / (STEP * spacing.min()))) + 1
    t = np.linspace(0, 1, most)[:, None]
    points = (starts + t[..., None] * (stops - starts)).reshape(-1, 3)
    radius = (thick + t * (thin - thick)).reshape(-1, 1)
    side = np.prod(spacing[:2]) ** 0.5
    # Neighbours in the slice: a thick vessel fills them too.
    for dx, dy in ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)):
        index = np.rint(points).astype(int) + np.array([dx, dy, 0])
        inside = ((index >= 0) & (index < filled.shape)).all(1)
        away = np.linalg.norm((index - points)[:, :2], axis=1, keepdims=True) * side
        share = np.clip((radius - away) / side + 0.5, 0, 1)[:, 0] * np.minimum(
            1, np.pi * radius[:, 0] ** 2 / side**2
        )
        np.maximum.at(filled, tuple(index[inside].T), share[inside].astype(np.float32))
