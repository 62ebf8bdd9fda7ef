"""Things that a scan shows besides tissue: the table, clothes and wires, and metal in the body."""

import numpy as np
from jaxtyping import Bool, Float
from scipy import ndimage

from tumorchain_jax.anatomy.organs import LIVER
from tumorchain_jax.phantoms.anatomy import Anatomy

AORTA, HIPS, FEMURS, SPINE = 52, (77, 78), (75, 76), range(26, 37)
TABLE_SHARE, TABLE_HU, CLOTHES_SHARE, CLOTHES_HU = 0.7, (-300.0, 150.0), 0.4, (-900.0, -300.0)
WIRE_SHARE, WIRE_HU = 0.15, (200.0, 2500.0)
METAL_SHARE, METAL_HU = 0.12, (2000.0, 3000.0)
STREAK_HU, STREAK_WAVES = (80.0, 350.0), 14


def paint_surroundings(
    rng: np.random.Generator,
    image: Float[np.ndarray, "X Y Z"],
    body: Bool[np.ndarray, "X Y Z"],
    spacing: np.ndarray,
    prone: bool,
) -> None:
    """Paint a table below the patient, clothes on the skin and wires, outside the body, in place.

    Args:
        body: the voxels within the skin.
        prone: the patient lies on the belly.
    """
    if rng.random() < TABLE_SHARE:
        _table(rng, image, body, spacing, prone)
    if rng.random() < CLOTHES_SHARE:
        gap = 2 * int(rng.integers(1, 4)) + 1
        near = ndimage.maximum_filter(body, (gap, gap, 1))
        cloth = near & ~ndimage.maximum_filter(body, (gap - 2, gap - 2, 1)) & ~body
        folds = rng.random((*body.shape[:2], 1), dtype=np.float32) < rng.uniform(0.3, 0.9)
        image[cloth & folds] = rng.uniform(*CLOTHES_HU)
    if rng.random() < WIRE_SHARE:
        _wires(rng, image, body)


def _table(
    rng: np.random.Generator,
    image: np.ndarray,
    body: np.ndarray,
    spacing: np.ndarray,
    prone: bool,
) -> None:
    """Draw a curved plate, or two, that touches the lowest voxel of the body."""
    rows = np.flatnonzero(body.any(axis=(0, 2)))
    if not len(rows):
        return
    low, down = (rows[-1] + 1, 1) if prone else (rows[0] - 1, -1)
    x = np.linspace(-1, 1, image.shape[0])
    rise = rng.uniform(0, 40) / spacing[1]
    thickness = rng.uniform(10, 45) / spacing[1]
    width = rng.uniform(0.7, 1.0)
    for offset in (0.0, thickness)[: rng.integers(1, 3)]:
        y = np.rint(low + down * (offset - rise * x * x)).astype(int)
        shown = (np.abs(x) < width) & (y >= 0) & (y < image.shape[1])
        at = np.flatnonzero(shown), y[shown]
        image[at] = np.where(body[at], image[at], np.float32(rng.uniform(*TABLE_HU)))


def _wires(rng: np.random.Generator, image: np.ndarray, body: np.ndarray) -> None:
    """Draw tubes and wires that run along the body on its skin."""
    depth = image.shape[2]
    for _ in range(rng.integers(1, 4)):
        first, last = float(rng.uniform(0.2, 0.8)), float(rng.uniform(0.2, 0.8))
        x = np.linspace(first, last, depth) * (image.shape[0] - 1)
        columns = body[np.rint(x).astype(int), :, np.arange(depth)]
        top = columns.shape[1] - 1 - columns[:, ::-1].argmax(axis=1)
        shown = columns.any(axis=1) & (top + 1 < image.shape[1])
        z = np.flatnonzero(shown)
        image[np.rint(x[shown]).astype(int), top[shown] + 1, z] = rng.uniform(*WIRE_HU)


def paint_metal(
    rng: np.random.Generator, image: Float[np.ndarray, "X Y Z"], anatomy: Anatomy
) -> Float[np.ndarray, "X Y Z"] | None:
    """Paint a metal thing into some patients, in place.

    Returns:
        The streaks around it (HU), to be added after the scanner's blur; None without metal.
    """
    if rng.random() >= METAL_SHARE:
        return None
    labels, spacing = anatomy.labels, anatomy.affine.diagonal()[:3]
    # What is there of it, where, its radius (mm) and its length (mm) along the body.
    kinds = [
        (np.isin(labels, (*HIPS, *FEMURS)), (12.0, 24.0), (30.0, 90.0)),
        (np.isin(labels, SPINE), (2.5, 4.0), (20.0, 60.0)),
        (labels == LIVER, (1.5, 3.0), (3.0, 8.0)),
        (labels == AORTA, (1.5, 2.5), (30.0, 90.0)),
    ]
    seats, radii, lengths = kinds[rng.integers(len(kinds))]
    voxels = np.flatnonzero(seats)
    if not len(voxels):
        return None
    x, y, z = np.unravel_index(rng.choice(voxels), labels.shape)
    radius, length = rng.uniform(*radii), rng.uniform(*lengths)
    half = max(1, int(length / 2 / spacing[2]))
    slices = slice(max(0, int(z) - half), int(z) + half)
    dx, dy = ((np.arange(n) - at) * s for n, at, s in zip(labels.shape[:2], (x, y), spacing[:2],
              strict=True))  # fmt: skip
    far = np.hypot(dx[:, None], dy[None]).astype(np.float32)
    metal = far <= max(radius, spacing[:2].max() / 2)
    image[metal, slices] = rng.uniform(*METAL_HU)
    angle = np.arctan2(dy[None], dx[:, None])
    waves = rng.normal(0, 1, (STREAK_WAVES, 1, 1)) * np.cos(
        rng.integers(2, 24, (STREAK_WAVES, 1, 1)) * angle
        + rng.uniform(0, 2 * np.pi, (STREAK_WAVES, 1, 1))
    )
    fade = (radius / np.maximum(far, radius)) ** 0.8
    pattern = rng.uniform(*STREAK_HU) * waves.sum(0) / STREAK_WAVES**0.5 * fade
    streaks = np.zeros_like(image)
    streaks[:, :, slices] = pattern.astype(np.float32)[..., None]
    return streaks
