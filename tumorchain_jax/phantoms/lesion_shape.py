"""The form of a lesion: how far it reaches in each direction, and how long it is."""

import numpy as np


def draw_radius(rng: np.random.Generator, shape: str, direction: np.ndarray) -> np.ndarray:
    """Draw how far (0 to 1) a lesion reaches along unit vectors `[..., 3]`."""
    if shape == "round":
        axes = rng.uniform(0.88, 1, 3).astype(np.float32)
        return 1 / np.linalg.norm(direction / axes, axis=-1).clip(min=1)
    lobes = rng.standard_normal((8, 3), dtype=np.float32)
    lobes /= np.linalg.norm(lobes, axis=1, keepdims=True)
    bumps = np.exp(12 * (direction @ lobes.T - 1)).max(-1)
    return 0.4 + 0.6 * bumps


def longest_diameter(points: np.ndarray, affine: np.ndarray) -> float:
    """Measure the largest caliper width (mm) over 200 directions of voxels at `points` `[n, 3]`."""
    n = np.arange(200) + 0.5
    # A Fibonacci spiral spreads the directions evenly over the half sphere.
    z, turn = n / 200, np.pi * (1 + 5**0.5) * n
    flat = np.sqrt(1 - z**2)
    directions = np.stack([flat * np.cos(turn), flat * np.sin(turn), z], -1)
    extent = np.ptp(points @ directions.T, axis=0)
    voxel = np.linalg.norm(directions @ affine[:3, :3], axis=1)
    return float((extent + voxel).max())
