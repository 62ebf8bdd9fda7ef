"""Smooth invertible deformations of a patient: organs one by one, and the whole.

A stationary velocity field on a coarse grid is integrated by scaling and squaring (Arsigny et al.,
MICCAI 2006). It is the sum of smooth noise and, around each organ, of the velocity of an affine
motion. The Jacobian determinant is checked; a field that comes near folding is weakened.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import ndimage

from tumorchain_jax.phantoms.body import smooth_field

NODE_MM = 14.0  # distance of the nodes of the coarse grid
SQUARINGS = 5
LEAST_JACOBIAN, WEAKER, TRIES = 0.2, 0.75, 16
# Smooth noise of the whole: knots every so many mm, standard deviation in mm.
WHOLE_MM = ((70.0, 5.0), (160.0, 9.0))
# Standard deviations of an organ's motion: log scale and shear of each axis, and shift in mm.
LOG_SCALE, SHEAR, SHIFT_MM = 0.06, 0.1, 6.0
# The motion of an organ fades between its box, a little enlarged, and this far from it.
FADES_MM = 10.0


@dataclass(frozen=True)
class Motion:
    """An organ that moves on its own.

    Attributes:
        centre: of its box (mm).
        half: half the size of its box (mm).
        log_growth: mean of the logarithm of its scale along each axis.
        spread: factor on the standard deviations of scale, shear and shift.
    """

    centre: Float[np.ndarray, "3"]
    half: Float[np.ndarray, "3"]
    log_growth: Float[np.ndarray, "3"]
    spread: float = 1.0


@dataclass(frozen=True)
class Deformation:
    """Displacement from a point of the patient to the point of the source that is seen there.

    Attributes:
        origin: mm of node (0, 0, 0); nodes are `NODE_MM` apart.
        displacement: mm; linear between the nodes, and constant beyond the border.
    """

    origin: Float[np.ndarray, "3"]
    displacement: Float[np.ndarray, "3 X Y Z"]

    @property
    def largest(self) -> float:
        """Return the largest displacement along an axis (mm)."""
        return float(np.abs(self.displacement).max())

    def __call__(self, axes: Sequence[Float[np.ndarray, " _"]]) -> list[np.ndarray]:
        """Map the points of a grid with coordinates `axes` (mm); three float32 `[I, J, K]`."""
        weights = [
            _linear_weights((axis - start) / NODE_MM, count)
            for axis, start, count in zip(
                axes, self.origin, self.displacement.shape[1:], strict=True
            )
        ]
        mapped = []
        for component, field in enumerate(self.displacement):
            for axis, weight in enumerate(weights):
                field = np.moveaxis(np.tensordot(weight, field, axes=(1, axis)), 0, axis)
            shape = [1, 1, 1]
            shape[component] = -1
            mapped.append(field + axes[component].astype(np.float32).reshape(shape))
        return mapped


def draw_deformation(
    rng: np.random.Generator,
    low: Float[np.ndarray, "3"],
    high: Float[np.ndarray, "3"],
    organs: Sequence[Motion],
    strength: float = 1.0,
) -> Deformation:
    """Draw a deformation of the box from `low` to `high` (mm) without folds.

    Args:
        rng: the same state draws the same deformation.
        low: least corner.
        high: largest corner.
        organs: those that move on their own, besides the whole.
        strength: factor on the velocity, before the check of the Jacobian.
    """
    nx, ny, nz = (int(n) for n in np.ceil((high - low) / NODE_MM) + 1)
    shape = nx, ny, nz
    spacing = np.full(3, NODE_MM)
    velocity = np.zeros((3, *shape), np.float32)
    for knot_mm, amplitude in WHOLE_MM:
        for field in velocity:
            field += np.float32(amplitude) * smooth_field(rng, shape, spacing, knot_mm)
    axes = [
        (a + NODE_MM * np.arange(n)).astype(np.float32) for a, n in zip(low, shape, strict=True)
    ]
    for organ in organs:
        _add_motion(rng, velocity, axes, organ)
    # Interpolated noise has kinks at its knots.
    velocity = ndimage.gaussian_filter(velocity, (0, 1, 1, 1), mode="nearest")
    velocity *= np.float32(strength)
    for _ in range(TRIES):
        displacement = integrate(velocity)
        if least_jacobian(displacement) >= LEAST_JACOBIAN:
            return Deformation(low, displacement)
        velocity *= np.float32(WEAKER)
    return Deformation(low, np.zeros_like(velocity))


def integrate(velocity: Float[np.ndarray, "3 X Y Z"]) -> Float[np.ndarray, "3 X Y Z"]:
    """Integrate a stationary velocity (mm) over a unit of time by scaling and squaring."""
    nodes = np.stack(np.meshgrid(*map(np.arange, velocity.shape[1:]), indexing="ij"))
    nodes = nodes.astype(np.float32)
    flow = velocity * np.float32(1 / (NODE_MM * 2**SQUARINGS))  # in nodes
    for _ in range(SQUARINGS):
        there = nodes + flow
        moved = [ndimage.map_coordinates(u, there, order=1, mode="nearest") for u in flow]
        flow = flow + np.stack(moved)
    return flow * np.float32(NODE_MM)


def least_jacobian(displacement: Float[np.ndarray, "3 X Y Z"]) -> float:
    """Return the least Jacobian determinant at the corners of every cell between nodes.

    Within a cell the displacement is trilinear, so that its derivatives at a corner are the
    differences along the three edges that meet there.
    """
    edges = [np.diff(displacement, axis=axis) * np.float32(1 / NODE_MM) for axis in (1, 2, 3)]
    ends = (slice(None, -1), slice(1, None))
    least = np.inf
    for a, b, c in np.ndindex(2, 2, 2):
        x, y, z = edges[0][:, :, ends[b], ends[c]], edges[1][:, ends[a], :, ends[c]], edges[2]
        z = z[:, ends[a], ends[b]]
        determinant = (
            (1 + x[0]) * ((1 + y[1]) * (1 + z[2]) - y[2] * z[1])
            - y[0] * (x[1] * (1 + z[2]) - x[2] * z[1])
            + z[0] * (x[1] * y[2] - x[2] * (1 + y[1]))
        )
        least = min(least, float(determinant.min()))
    return least


def _add_motion(
    rng: np.random.Generator, velocity: np.ndarray, axes: list[np.ndarray], organ: Motion
) -> None:
    """Add the velocity of an organ that grows, is sheared and moves, fading around it."""
    growth = organ.log_growth + organ.spread * LOG_SCALE * rng.standard_normal(3)
    # Against the motion: a deformation leads from the patient back to the source.
    matrix = organ.spread * SHEAR * rng.standard_normal((3, 3))
    matrix[np.diag_indices(3)] = -growth
    shift = organ.spread * SHIFT_MM * rng.standard_normal(3)
    reach = 1.2 * organ.half + FADES_MM
    # Beyond 1.5 times the reach the weight is below 1 %.
    box = tuple(
        slice(*np.searchsorted(axis, (c - 1.5 * r, c + 1.5 * r)))
        for axis, c, r in zip(axes, organ.centre, reach, strict=True)
    )
    near = [axis[s] - np.float32(c) for axis, s, c in zip(axes, box, organ.centre, strict=True)]
    offset = np.stack(np.meshgrid(*near, indexing="ij"))
    squares = ((offset / reach.astype(np.float32)[:, None, None, None]) ** 2).sum(0)
    moved = np.tensordot(matrix.astype(np.float32), offset, 1)
    moved += shift.astype(np.float32)[:, None, None, None]
    velocity[(slice(None), *box)] += np.exp(-(squares**2)) * moved


def _linear_weights(at: np.ndarray, count: int) -> Float[np.ndarray, "n nodes"]:
    """Weights that interpolate between nodes; beyond the border the node there."""
    at = np.clip(at, 0, count - 1)
    return np.maximum(0, 1 - np.abs(at[:, None] - np.arange(count))).astype(np.float32)
