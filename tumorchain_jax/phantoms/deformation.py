"""Smooth deformations that fold nothing: organs one by one, and the whole patient.

A stationary velocity field is drawn on a coarse grid, from smooth noise and from an affine
velocity around each organ (polyaffine: Arsigny et al., JMIV 2009), and integrated by scaling and
squaring (Arsigny et al., MICCAI 2006). The Jacobian is checked; a draw that comes near folding is
made weaker.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import ndimage

from tumorchain_jax.phantoms.body import smooth_field

STEP_MM = 12.0  # of the coarse grid
SQUARINGS = 5
LEAST_JACOBIAN, WEAKER, TRIES = 0.2, 0.7, 12
# Smooth noise: mm between its knots, and standard deviation (mm).
NOISE_MM = ((60.0, 4.0), (150.0, 8.0))
# Of an organ: logarithm of its scale along each axis, turn (radians), and shift (mm).
SCALE, TURN, SHIFT_MM = 0.09, 0.08, 5.0
MARGIN_MM = 12.0  # around an organ, within which its own motion fades

Box = tuple[np.ndarray, np.ndarray]
"""Least and largest corner in mm."""


@dataclass(frozen=True)
class Deformation:
    """A displacement of space, on a coarse grid; beyond it, that of its border.

    Attributes:
        origin: mm of the first node.
        displacement: mm, `[3, X, Y, Z]`, every STEP_MM.
    """

    origin: Float[np.ndarray, "3"]
    displacement: Float[np.ndarray, "3 X Y Z"]

    @property
    def largest(self) -> float:
        """The largest displacement along an axis (mm)."""
        return float(np.abs(self.displacement).max())

    def along_axes(
        self, axes: Sequence[Float[np.ndarray, " _"]]
    ) -> list[Float[np.ndarray, "I J K"]]:
        """Map the points of a grid, given by its coordinates (mm) along each axis; float32."""
        weights = [
            _linear_weights((axis - start) / STEP_MM, count)
            for axis, start, count in zip(
                axes, self.origin, self.displacement.shape[1:], strict=True
            )
        ]
        mapped = []
        for along, part in enumerate(self.displacement):
            for axis, w in enumerate(weights):
                part = np.moveaxis(np.tensordot(w, part, axes=(1, axis)), 0, axis)
            shape = [1, 1, 1]
            shape[along] = -1
            mapped.append(part + axes[along].astype(np.float32).reshape(shape))
        return mapped


def draw_deformation(
    rng: np.random.Generator, box: Box, organs: Sequence[Box], strength: float = 1.0
) -> Deformation:
    """Draw a deformation of a space that holds some organs.

    Args:
        rng: the same state gives the same deformation.
        box: of the space.
        organs: boxes of those that move on their own.
        strength: factor of all that is drawn, before the check of the Jacobian.
    """
    low, high = box
    shape = tuple(int(n) for n in np.ceil((high - low) / STEP_MM) + 1)
    spacing = np.full(3, STEP_MM)
    velocity = np.zeros((3, *shape), np.float32)
    for knot_mm, amplitude in NOISE_MM:
        for axis in range(3):
            velocity[axis] += np.float32(amplitude) * smooth_field(rng, shape, spacing, knot_mm)
    at = np.stack(
        np.meshgrid(
            *(a + STEP_MM * np.arange(n) for a, n in zip(low, shape, strict=True)), indexing="ij"
        )
    ).astype(np.float32)
    for organ in organs:
        velocity += _organ_velocity(rng, at, organ)
    # Linear interpolation of noise has edges; the organs' velocities are smooth already.
    velocity = ndimage.gaussian_filter(velocity, (0, 1, 1, 1), mode="nearest")
    velocity *= np.float32(strength)
    for _ in range(TRIES):
        displacement = _integrate(velocity)
        if jacobian(displacement, STEP_MM).min() > LEAST_JACOBIAN:
            return Deformation(np.asarray(low, np.float64), displacement)
        velocity *= np.float32(WEAKER)
    return Deformation(np.asarray(low, np.float64), np.zeros_like(velocity))


def jacobian(displacement: Float[np.ndarray, "3 X Y Z"], step_mm: float) -> np.ndarray:
    """Jacobian determinant of a deformation, `[X, Y, Z]`; 1 keeps volumes, below 0 space folds."""
    matrix = np.stack(
        [np.stack(np.gradient(part, step_mm), axis=-1) for part in displacement], axis=-2
    )
    return np.linalg.det(matrix + np.eye(3))


def _organ_velocity(rng: np.random.Generator, at: np.ndarray, organ: Box) -> np.ndarray:
    """Draw how an organ grows, turns and moves, fading around it; `[3, X, Y, Z]`."""
    centre = ((organ[0] + organ[1]) / 2).astype(np.float32)
    reach = ((organ[1] - organ[0]) / 2 + MARGIN_MM).astype(np.float32)
    x, y, z = TURN * rng.standard_normal(3)
    turn = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    matrix = turn + np.diag(SCALE * rng.standard_normal(3))
    shift = SHIFT_MM * rng.standard_normal(3)
    offset = at - centre[:, None, None, None]
    weight = np.exp(-((offset / reach[:, None, None, None]) ** 2).sum(0))
    moved = np.tensordot(matrix.astype(np.float32), offset, 1)
    return weight * (moved + shift.astype(np.float32)[:, None, None, None])


def _integrate(velocity: np.ndarray) -> np.ndarray:
    """Displacement of the flow along a velocity for a unit of time."""
    nodes = np.stack(np.meshgrid(*map(np.arange, velocity.shape[1:]), indexing="ij"))
    flow = velocity / np.float32(STEP_MM * 2**SQUARINGS)  # in nodes
    for _ in range(SQUARINGS):
        here = nodes + flow
        flow = flow + np.stack(
            [ndimage.map_coordinates(part, here, order=1, mode="nearest") for part in flow]
        )
    return (flow * np.float32(STEP_MM)).astype(np.float32)


def _linear_weights(at: np.ndarray, count: int) -> np.ndarray:
    """Weights float32 `[n, count]` that interpolate between nodes; beyond them the border's."""
    at = np.clip(at, 0, count - 1)
    return np.maximum(0, 1 - np.abs(at[:, None] - np.arange(count))).astype(np.float32)
