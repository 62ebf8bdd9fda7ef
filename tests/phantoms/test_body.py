"""The sketch of a trunk: its shapes, its fields of view, and what disease does to it."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import ndimage

from tumorchain_jax.anatomy.organs import TOTALSEGMENTATOR
from tumorchain_jax.phantoms import body
from tumorchain_jax.phantoms.body import (
    FAT_HU,
    HU,
    PHASES,
    SLICES_MM,
    STRAND_HU,
    TRUNK,
    Body,
    Space,
    around,
    draw_space,
    draw_trunk,
    ellipsoid_depth,
    smooth_field,
    tube_depth,
)

HEALTHY = Body("portal venous", cirrhosis=False, swelling=False)
SPACING = np.array((4.0, 4.0, 6.0))
LIVER, PANCREAS, SPLEEN = 5, 7, 1


def straight_space() -> Space:
    """The whole trunk, unbent, in coarse voxels."""
    low, high = np.array((-175.0, -105.0, -190.0)), np.array((175.0, 140.0, 190.0))
    axes = [
        (a + s * np.arange(int((b - a) / s))).astype(np.float32)
        for a, b, s in zip(low, high, SPACING, strict=True)
    ]
    shape = tuple(map(len, axes))
    x, y, z = (np.broadcast_to(u, shape) for u in np.meshgrid(*axes, indexing="ij", sparse=True))
    return Space(x, y, z, low, SPACING, 0.0)


def trunk(body: Body, seed: int = 0) -> tuple[np.ndarray, np.ndarray, dict[int, float]]:
    return draw_trunk(np.random.default_rng(seed), straight_space(), SPACING, body)


@pytest.fixture(scope="module")
def healthy() -> tuple[np.ndarray, np.ndarray, dict[int, float]]:
    return trunk(HEALTHY)


def test_every_part_has_a_name_and_hu() -> None:
    for part in TRUNK:
        name = TOTALSEGMENTATOR[part.label]
        assert part.label in HU or name.startswith("vertebrae_")


def test_contrast_follows_the_phase() -> None:
    arterial, portal, delayed = (replace(HEALTHY, phase=phase) for phase in PHASES)
    aorta, cava, liver = 52, 63, LIVER
    assert arterial.hu(aorta)[0] > portal.hu(aorta)[0] + 100 > delayed.hu(aorta)[0]
    assert arterial.hu(cava)[0] < delayed.hu(cava)[0] < portal.hu(cava)[0]
    assert arterial.hu(liver)[0] < delayed.hu(liver)[0] < portal.hu(liver)[0]
    gallbladder, vertebra = 4, 29
    for label in (gallbladder, vertebra):
        assert arterial.hu(label) == portal.hu(label) == delayed.hu(label)


def test_slices_and_fields_of_view_vary(monkeypatch: pytest.MonkeyPatch) -> None:
    # Bending takes long and changes neither.
    monkeypatch.setattr(body, "smooth_field", lambda rng, *args: np.float32(0))
    spaces = [draw_space(np.random.default_rng(seed)) for seed in range(800)]
    thickness = np.array([affine[2, 2] for _, affine in spaces])
    assert set(thickness) == set(SLICES_MM)
    assert (min(SLICES_MM), max(SLICES_MM)) == (1.0, 5.0)
    bottom = np.array([space.origin[2] for space, _ in spaces])
    top = bottom + [space.step[2] * space.z.shape[2] for space, _ in spaces]
    for cut, limits in ((bottom > -160, (-130, -60)), (top < 168, (110, 168))):
        assert 0.2 < cut.mean() < 0.3
        ends = bottom[cut] if limits[0] < 0 else top[cut]
        assert limits[0] <= ends.min() < ends.max() < limits[1]
    width = [affine[0, 0] for _, affine in spaces]
    assert 2.8 <= min(width) < max(width) <= 3.5
    for space, affine in spaces[:5]:
        shape = space.x.shape[0], space.y.shape[1], space.z.shape[2]
        covered = np.array(shape) * space.step
        assert (covered[:2] >= (2 * body.HALF_WIDTH, 2 * body.HALF_DEPTH)).all()
        # The patient's own size is in the affine, not in the canonical coordinates.
        size = affine.diagonal()[:3] / space.step
        np.testing.assert_array_less(np.abs(size - 1), 0.13 + 1e-9)


def test_space_is_bent_but_never_far() -> None:
    space, _ = draw_space(np.random.default_rng(9))
    shape = space.x.shape
    for axis, u in enumerate((space.x, space.y, space.z)):
        straight = space.origin[axis] + space.step[axis] * np.arange(shape[axis])
        bend = u - np.expand_dims(straight, [a for a in range(3) if a != axis])
        assert 2 < np.abs(bend).max() <= space.bend + 1e-3
        steps = np.diff(u, axis=axis)
        assert (steps > 0).all(), "no place is folded over another"


def test_smooth_field_is_smooth_and_of_unit_size() -> None:
    rng = np.random.default_rng(0)
    fields = [smooth_field(rng, (40, 30, 20), np.array((2.0, 2.0, 3.0)), 20.0) for _ in range(20)]
    field = np.stack(fields)
    assert field.shape == (20, 40, 30, 20)
    assert field.dtype == np.float32
    assert abs(field.mean()) < 0.1
    assert 0.3 < field.std() < 1.0
    # A knot is ten voxels away: neighbours differ by a tenth of what knots do.
    assert np.abs(np.diff(field, axis=1)).mean() < 0.25 * field.std()
    assert not np.array_equal(fields[0], fields[1])


def test_an_ellipsoid_is_as_deep_as_its_equation_says() -> None:
    space = straight_space()
    centre, half = np.array((20.0, 10.0, -30.0)), np.array((30.0, 40.0, 50.0))
    box, depth = ellipsoid_depth(space, centre, half)
    squares = sum(
        ((u - c) / h) ** 2
        for u, c, h in zip((space.x, space.y, space.z), centre, half, strict=True)
    )
    inside = np.zeros(space.x.shape, bool)
    inside[box] = depth > 0
    np.testing.assert_array_equal(inside, squares < 1)
    assert depth.max() == pytest.approx(30, abs=3)


def test_a_tube_is_as_deep_as_the_way_to_its_line_says() -> None:
    space = straight_space()
    points, radii = np.array([(-40.0, 0.0, 0.0), (40.0, 0.0, 0.0)]), np.array([10.0, 30.0])
    box, depth = tube_depth(space, points, radii)
    x, y, z = (u[box] for u in (space.x, space.y, space.z))
    aside = np.hypot(y, z)
    middle = np.abs(x) < 40
    expected = 20 + x / 4 - aside
    np.testing.assert_allclose(depth[middle], expected[middle], atol=1e-3)
    ball = x >= 40
    np.testing.assert_allclose(depth[ball], (30 - np.hypot(aside, x - 40))[ball], atol=1e-3)
    outside = np.ones(space.x.shape, bool)
    outside[box] = False
    far = np.hypot(space.y, space.z) - 30
    assert (far[outside & (np.abs(space.x) < 40)] > 0).all()


def test_what_lies_around_a_mask() -> None:
    mask = np.zeros((21, 21, 21), bool)
    mask[10, 10, 10] = True
    near = around(mask, 4.0, np.array((1.0, 2.0, 4.0)))
    first, last = np.argwhere(near).min(0), np.argwhere(near).max(0)
    np.testing.assert_array_equal(first, (7, 9, 10))
    np.testing.assert_array_equal(last, (13, 11, 10))
    assert near.sum() == 7 * 3


def test_organs_keep_to_their_room(healthy: tuple[np.ndarray, np.ndarray, dict]) -> None:
    image, labels, hu = healthy
    assert labels.dtype == np.uint8
    assert image.dtype == np.float32
    assert {part.label for part in TRUNK} - set(np.unique(labels)) == set()
    assert set(hu) == {part.label for part in TRUNK}
    z = straight_space().z
    lungs, liver = np.isin(labels, (11, 14)), labels == LIVER
    assert z[lungs].mean() > z[liver].mean() + 50
    assert image[lungs].max() < -600
    assert (image[labels == 0].round() % 1 == 0).all()
    for label in (LIVER, SPLEEN, 2, 3):
        assert image[labels == label].mean() == pytest.approx(hu[label], abs=10)


def test_the_same_draw_gives_the_same_trunk(healthy: tuple[np.ndarray, np.ndarray, dict]) -> None:
    again = trunk(HEALTHY)
    np.testing.assert_array_equal(healthy[0], again[0])
    np.testing.assert_array_equal(healthy[1], again[1])
    assert healthy[2] == again[2]
    assert not np.array_equal(healthy[1], trunk(HEALTHY, 1)[1])


def test_cirrhosis_shrinks_the_liver_and_enlarges_the_spleen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def own_rng(rng: np.random.Generator, *args: object) -> np.ndarray:
        return smooth_field(np.random.default_rng(0), *args)

    # The nodules are drawn apart, so that all else is the same.
    monkeypatch.setattr(body, "smooth_field", own_rng)
    before, after = (trunk(replace(HEALTHY, cirrhosis=ill)) for ill in (False, True))
    ratio = {o: (after[1] == o).sum() / (before[1] == o).sum() for o in (LIVER, SPLEEN, 2, 3)}
    assert 0.5 < ratio[LIVER] < 0.9
    assert ratio[SPLEEN] > 1.8
    assert ratio[2] == pytest.approx(1, abs=0.05)
    assert ratio[3] == pytest.approx(1, abs=0.05)
    uneven = [image[labels == LIVER].std() for image, labels, _ in (before, after)]
    assert uneven[1] > uneven[0] + 4


def test_swelling_thickens_and_darkens_the_pancreas_and_clouds_the_fat(
    healthy: tuple[np.ndarray, np.ndarray, dict],
) -> None:
    image, labels, hu = trunk(replace(HEALTHY, swelling=True))
    before, normal, normal_hu = healthy
    swollen, slim = labels == PANCREAS, normal == PANCREAS
    assert swollen[slim].mean() > 0.95
    assert swollen.sum() > 1.3 * slim.sum()
    assert hu[PANCREAS] == normal_hu[PANCREAS] + body.SWELLING_HU
    assert image[swollen].mean() < before[slim].mean() - 15
    streaks = image == STRAND_HU
    assert streaks.sum() > 100
    assert not labels[streaks].any()
    assert not (before == STRAND_HU).any()
    from_pancreas = ndimage.distance_transform_edt(~swollen, SPACING)
    reach = np.sqrt(3) * body.STRAND_MM + SPACING.max()
    assert from_pancreas[streaks].max() < reach
    assert (image[(labels == 0) & (from_pancreas < 4.1) & (from_pancreas > 0)] != FAT_HU).all()
