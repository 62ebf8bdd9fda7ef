"""Deformations are smooth, invertible and do what was asked of them."""

import numpy as np
import pytest

from tumorchain_jax.phantoms.deformation import (
    LEAST_JACOBIAN,
    NODE_MM,
    Motion,
    draw_deformation,
    integrate,
    least_jacobian,
)

LOW, HIGH = np.array([-170.0, -100.0, -200.0]), np.array([170.0, 130.0, 180.0])
LIVER = Motion(np.array([70.0, 30.0, 80.0]), np.array([75.0, 70.0, 75.0]), np.zeros(3))


def determinants(mapped: list[np.ndarray], step: float) -> np.ndarray:
    """Jacobian determinant by finite differences between neighbouring points."""
    x, y, z = (n - 1 for n in mapped[0].shape)
    rows = [
        np.stack([np.diff(u, axis=axis)[:x, :y, :z] for u in mapped]) / step for axis in range(3)
    ]
    return np.linalg.det(np.moveaxis(np.stack(rows), (0, 1), (-2, -1)))


def axes(step: float) -> list[np.ndarray]:
    return [np.arange(a, b, step) for a, b in zip(LOW, HIGH, strict=True)]


@pytest.mark.parametrize("strength", [1.0, 6.0])
def test_deformation_never_folds(strength):
    for seed in range(4):
        rng = np.random.default_rng(seed)
        deformation = draw_deformation(rng, LOW, HIGH, [LIVER] * 3, strength)
        assert deformation.largest > 3
        assert determinants(deformation(axes(5.0)), 5.0).min() > 0.5 * LEAST_JACOBIAN


def test_deformation_too_strong_would_fold():
    velocity = 60 * np.random.default_rng(0).standard_normal((3, 12, 12, 12)).astype(np.float32)
    assert least_jacobian(integrate(velocity)) < LEAST_JACOBIAN


def test_least_jacobian_of_an_affine_map():
    nodes = np.stack(np.meshgrid(*[NODE_MM * np.arange(4.0)] * 3, indexing="ij"))
    matrix = np.array([[0.2, 0.1, 0], [-0.1, -0.3, 0.05], [0, 0.2, 0.1]])
    displacement = np.tensordot(matrix, nodes, 1).astype(np.float32)
    assert least_jacobian(displacement) == pytest.approx(np.linalg.det(matrix + np.eye(3)), 1e-4)
    assert least_jacobian(np.tensordot(np.diag([-1.5, 0, 0]), nodes, 1).astype(np.float32)) < 0


def test_integrate_a_shift_is_that_shift():
    velocity = np.full((3, 6, 6, 6), 4.0, np.float32)
    np.testing.assert_allclose(integrate(velocity), 4.0, rtol=1e-5)


def test_integrate_a_growth_is_exponential():
    nodes = np.stack(np.meshgrid(*[NODE_MM * (np.arange(21.0) - 10)] * 3, indexing="ij"))
    displacement = integrate((-0.2 * nodes).astype(np.float32))
    expected = (np.exp(-0.2) - 1) * nodes
    inner = (slice(None), *[slice(3, -3)] * 3)
    np.testing.assert_allclose(displacement[inner], expected[inner], atol=0.5)


def test_deformation_grows_an_organ():
    still = draw_deformation(np.random.default_rng(3), LOW, HIGH, [LIVER])
    grown = Motion(LIVER.centre, LIVER.half, np.full(3, 0.2))
    larger = draw_deformation(np.random.default_rng(3), LOW, HIGH, [grown])
    volumes = []
    for deformation in (still, larger):
        mapped = deformation(axes(5.0))
        inside = sum(
            ((u - c) / h) ** 2 for u, c, h in zip(mapped, LIVER.centre, LIVER.half, strict=True)
        )
        volumes.append(np.count_nonzero(inside < 1))
    assert 1.25 < volumes[1] / volumes[0] < np.exp(0.6) + 0.1


def test_deformation_same_seed_same_field():
    first, second = (
        draw_deformation(np.random.default_rng(1), LOW, HIGH, [LIVER]) for _ in range(2)
    )
    np.testing.assert_array_equal(first.displacement, second.displacement)
