"""Painted tumours: the truth told about them is what the voxels show."""

from collections.abc import Iterable

import numpy as np
import pytest
from scipy import ndimage

from tumorchain_jax.anatomy.organs import DIGESTIVE
from tumorchain_jax.anatomy.substructures import SEGMENTS
from tumorchain_jax.phantoms.lesion_shape import longest_diameter
from tumorchain_jax.phantoms.lesions import (
    BORDERS,
    CALCIFICATION,
    CONTRAST_HU,
    DARKEST_HU,
    DENSITIES,
    DEPTH_LIMITS_MM,
    DEPTHS,
    DILATATION,
    DUCT_HU,
    ENHANCEMENT,
    HOLLOW,
    LARGEST_MM,
    NONE,
    OTHERS,
    REACH_MM,
    RIM_SHARE,
    SHAPES,
    SIZE_LIMITS_MM,
    SIZES,
    SOLID_REACH_MM,
    THICK_AROUND_MM,
    THICK_HU,
    THICK_MM,
    THICKENING,
    Lesion,
    LesionPainter,
    Plan,
    draw_plan,
    noise,
)

LIVER, PANCREAS, STOMACH, COLON = 5, 7, 6, 20
AFFINE = np.diag([3.0, 3.0, 4.0, 1.0])
ORGAN_HU, GAS_HU, FAT_HU = 60.0, -700.0, -100.0


class Scene:
    """A ball of an organ in fat; of a hollow organ its inside is gas."""

    def __init__(self, hollow: bool = False, seed: int = 0, width_mm: float = 110.0):
        shape = (52, 52, 40)
        centre = np.array(shape) // 2
        steps = np.moveaxis(np.indices(shape), 0, -1) - centre
        from_centre = np.linalg.norm(steps * AFFINE.diagonal()[:3], axis=-1)
        self.own = from_centre <= width_mm / 2
        self.image = np.where(self.own, ORGAN_HU, FAT_HU).astype(np.float32)
        if hollow:
            self.image[from_centre < width_mm / 2 - 8] = GAS_HU
        self.before = self.image.copy()
        self.lesion_map = np.zeros(shape, np.uint8)
        # Two parts: below and above the middle.
        self.segments = np.where(np.arange(shape[2]) < centre[2], 1, 2) * self.own
        self.painter = LesionPainter(
            np.random.default_rng(seed), self.image, self.own, ~self.own, AFFINE,
            self.lesion_map, self.segments.astype(np.uint8),
        )  # fmt: skip
        self.spacing = self.painter.spacing

    def paint(self, plan: Plan, noise_hu: float = 0.0) -> tuple[Lesion, ...]:
        return self.painter.paint(plan, ORGAN_HU, noise_hu)

    @property
    def changed(self) -> np.ndarray:
        return self.image != self.before

    def depth_in(self, mask: np.ndarray) -> np.ndarray:
        return ndimage.distance_transform_edt(mask, self.spacing)


def plan(
    organ: int = LIVER,
    diameters_mm: tuple[float, ...] = (50.0,),
    density: str = "hypodense",
    shape: str = "round",
    border: str = "well-defined",
    other: str = NONE,
    depth: str = "fat",
) -> Plan:
    contrast_hu = float(np.mean(CONTRAST_HU[density]))
    return Plan(organ, diameters_mm, density, shape, border, other, depth, contrast_hu)


def painted(seeds: Iterable[int] = range(4), hollow: bool = False, **words) -> list[Scene]:
    """Scenes with a plan's lesions in them, each with `lesions`."""
    scenes = []
    for seed in seeds:
        scene = Scene(hollow, seed)
        scene.lesions = scene.paint(plan(**words))
        assert scene.lesions
        scenes.append(scene)
    return scenes


@pytest.mark.parametrize("density", DENSITIES)
def test_density_is_against_the_organ(density: str) -> None:
    for scene in painted(density=density):
        contrast = scene.image[scene.lesion_map > 0].mean() - ORGAN_HU
        assert (contrast if density == "hyperdense" else -contrast) > 40
        in_organ = (scene.lesion_map > 0) & scene.own
        assert scene.image[in_organ].min() >= DARKEST_HU
        assert scene.lesions[0].density == density


def test_round_lesion_fills_its_ball_and_an_irregular_one_does_not() -> None:
    fill = {}
    for shape in SHAPES:
        lesions = [s.lesions[0] for s in painted(range(5), shape=shape, diameters_mm=(45.0,))]
        voxel = float(np.prod(AFFINE.diagonal()[:3]))
        fill[shape] = np.mean([n.voxels * voxel * 6 / np.pi / n.diameter_mm**3 for n in lesions])
        assert {lesion.shape for lesion in lesions} == {shape}
    assert fill["round"] > fill["irregular"] + 0.15


def test_ill_defined_border_fades_and_a_well_defined_one_is_sharp() -> None:
    halo = {}
    for border in BORDERS:
        scenes = painted(range(4), border=border)
        changed = [np.count_nonzero(s.changed) / s.lesions[0].voxels for s in scenes]
        halo[border] = np.mean(changed)
        assert {s.lesions[0].border for s in scenes} == {border}
    assert halo["ill-defined"] > halo["well-defined"] + 0.3


def test_lesion_is_sharp_towards_gas() -> None:
    for scene in painted(hollow=True, organ=STOMACH, border="ill-defined", density="hyperdense"):
        gas = (scene.before == GAS_HU) & (scene.lesion_map == 0)
        assert (scene.image[gas] == GAS_HU).all()
        filled = (scene.before == GAS_HU) & (scene.lesion_map > 0)
        assert (scene.image[filled] > ORGAN_HU).all()


@pytest.mark.parametrize(("organ", "hollow"), [(LIVER, False), (STOMACH, True)])
@pytest.mark.parametrize("depth", DEPTHS)
def test_depth_is_how_far_a_lesion_of_a_hollow_organ_reaches(
    organ: int, hollow: bool, depth: str
) -> None:
    told = []
    for scene in painted(range(5), hollow, organ=organ, depth=depth):
        beyond = scene.depth_in(~scene.own)[scene.lesion_map > 0].max()
        expected = DEPTHS[int(np.digitize(beyond, DEPTH_LIMITS_MM))] if hollow else None
        assert scene.lesions[0].depth == expected
        told.append(expected)
        assert beyond <= (REACH_MM[depth] if hollow else SOLID_REACH_MM)
    assert not hollow or told.count(depth) >= 3, "what is planned is mostly what comes of it"


def test_tumours_of_hollow_organs_grow_from_the_wall() -> None:
    for scene in painted(hollow=True, organ=COLON, diameters_mm=(32.0,)):
        assert scene.depth_in(scene.own)[scene.lesion_map > 0].min() < 8


def test_truth_is_as_measured() -> None:
    for scene in painted(range(6), diameters_mm=(50.0, 40.0, 31.0), shape="irregular"):
        assert scene.lesion_map.max() == len(scene.lesions)
        for number, lesion in enumerate(scene.lesions, 1):
            mask = scene.lesion_map == number
            index = np.argwhere(mask)
            assert lesion.voxels == len(index) >= 8
            assert ndimage.label(mask)[1] == 1
            np.testing.assert_allclose(lesion.centre_mm, index.mean(0) * scene.spacing, atol=1e-6)
            assert lesion.diameter_mm == longest_diameter(index * scene.spacing, AFFINE)
            part = 2 if index[:, 2].mean() >= 20 else 1
            if abs(index[:, 2].mean() - 19.5) > 1:
                assert lesion.segment == SEGMENTS[LIVER][part - 1]


def test_largest_lesion_lies_in_any_part_with_the_same_odds() -> None:
    """Seats are drawn part by part: a part that holds a tenth of the organ has half the tumours."""
    upper = 0
    for seed in range(30):
        scene = Scene(seed=seed, width_mm=90.0)
        low = np.flatnonzero(scene.own.any(axis=(0, 1)))[-4]
        segments = np.where(np.arange(40) >= low, 2, 1) * scene.own
        assert (segments == 2).sum() < 0.1 * scene.own.sum()
        scene.painter.segments = segments.astype(np.uint8)
        lesion = scene.paint(plan(diameters_mm=(30.0,)))[0]
        upper += lesion.centre_mm[2] > (low - 3) * scene.spacing[2]
    assert 6 < upper < 24


def test_lesions_keep_apart() -> None:
    several = 0
    for scene in painted(range(5), diameters_mm=(50.0, 45.0, 40.0), border="ill-defined"):
        several += len(scene.lesions) > 1
        for number in range(1, len(scene.lesions) + 1):
            near = ndimage.binary_dilation(scene.lesion_map == number, np.ones((3, 3, 3)))
            assert set(scene.lesion_map[near].tolist()) <= {0, number}
    assert several == 5


def test_where_there_is_no_room_there_are_fewer_or_none() -> None:
    tight = Scene(width_mm=24.0)
    tight.painter.fat[...] = False
    (lesion,) = tight.paint(plan(diameters_mm=(60.0, 55.0, 50.0)))
    assert lesion.diameter_mm < 30
    speck = Scene(width_mm=5.0)
    speck.painter.fat[...] = False
    assert 0 < np.count_nonzero(speck.own) < 8
    assert speck.paint(plan(diameters_mm=(30.0, 30.0))) == ()
    assert not speck.changed.any()
    assert not speck.lesion_map.any()


# ---------------------------------------------------------------- what else a lesion shows


def test_without_a_trait_the_organ_around_stays_as_it_was() -> None:
    for scene in painted(border="well-defined"):
        assert scene.lesions[0].other == NONE
        near = ndimage.binary_dilation(scene.lesion_map > 0)
        assert not scene.changed[~near].any()


def test_calcification_is_bright_and_inside_the_lesions() -> None:
    for scene in painted(other=CALCIFICATION, diameters_mm=(50.0, 40.0)):
        bright = scene.image > 500
        assert (scene.lesion_map[bright] > 0).all()
        for number, lesion in enumerate(scene.lesions, 1):
            assert lesion.other == CALCIFICATION
            specks = np.count_nonzero(bright & (scene.lesion_map == number))
            assert 8 <= specks < 0.5 * lesion.voxels


def test_rim_is_brighter_than_the_core() -> None:
    for scene in painted(other=ENHANCEMENT, density="hypodense", diameters_mm=(60.0,)):
        assert scene.lesions[0].other == ENHANCEMENT
        lesion = scene.lesion_map > 0
        depth = scene.depth_in(lesion)
        limit = RIM_SHARE * depth.max()
        rim, core = lesion & (depth <= limit), lesion & (depth > limit + 1)
        assert core.sum() > 50
        assert scene.image[rim].mean() > scene.image[core].mean() + 80
        assert scene.image[core].mean() < ORGAN_HU - 40 < ORGAN_HU + 40 < scene.image[rim].mean()


def test_wall_thickening_fills_the_lumen_near_the_tumour() -> None:
    for scene in painted(hollow=True, organ=STOMACH, other=THICKENING, diameters_mm=(35.0,)):
        assert scene.lesions[0].other == THICKENING
        lumen = (scene.before == GAS_HU) & (scene.lesion_map == 0)
        filled = lumen & scene.changed
        assert filled.sum() > 30
        assert (scene.image[filled] == ORGAN_HU + THICK_HU).all()
        from_tumour = scene.depth_in(scene.lesion_map == 0)
        deep = scene.depth_in(scene.own)
        assert from_tumour[filled].max() < THICK_AROUND_MM
        assert deep[filled].max() < THICK_MM
        near = lumen & (from_tumour < THICK_AROUND_MM) & (deep < THICK_MM)
        np.testing.assert_array_equal(filled, near)


def test_ducts_are_dark_and_lead_from_the_tumour_through_the_organ() -> None:
    for scene in painted(organ=PANCREAS, other=DILATATION, diameters_mm=(35.0,)):
        assert scene.lesions[0].other == DILATATION
        duct = scene.image == DUCT_HU
        assert duct.sum() >= 8
        assert scene.own[duct].all()
        assert not scene.lesion_map[duct].any()
        pieces, _ = ndimage.label(duct | (scene.lesion_map > 0), np.ones((3, 3, 3)))
        assert len(np.unique(pieces[duct])) == 1, "every duct reaches the tumour"
        assert scene.depth_in(scene.lesion_map == 0)[duct].max() > 20


def test_trait_without_room_is_not_told() -> None:
    for organ, trait in ((STOMACH, THICKENING), (PANCREAS, DILATATION)):
        small = Scene(width_mm=14.0)
        lesions = small.paint(plan(organ, (60.0,), other=trait))
        assert (small.lesion_map[small.own] > 0).all()
        assert {lesion.other for lesion in lesions} == {NONE}


# ---------------------------------------------------------------- plans and words


def test_every_organ_has_its_traits() -> None:
    assert set(OTHERS) == set(DIGESTIVE) == set(SEGMENTS) == set(LARGEST_MM)
    for organ, traits in OTHERS.items():
        assert traits[0] == NONE
        assert (THICKENING in traits) == (organ in HOLLOW)
        assert (DILATATION in traits) == (organ not in HOLLOW)


def test_plans_differ_in_organ_size_count_and_kind() -> None:
    rng = np.random.default_rng(0)
    plans = [draw_plan(rng, DIGESTIVE) for _ in range(1500)]
    for organ in DIGESTIVE:
        of_organ = [p for p in plans if p.organ == organ]
        assert 0.16 < len(of_organ) / len(plans) < 0.24
        for trait in OTHERS[organ]:
            assert 0.15 < np.mean([p.other == trait for p in of_organ]) < 0.35
        assert max(p.diameters_mm[0] for p in of_organ) <= LARGEST_MM[organ]
    for field, words in (("density", DENSITIES), ("shape", SHAPES), ("border", BORDERS)):
        for word in words:
            assert 0.45 < np.mean([getattr(p, field) == word for p in plans]) < 0.55
    for depth in DEPTHS:
        assert 0.28 < np.mean([p.depth == depth for p in plans]) < 0.39
    for count, share in ((1, 0.4), (2, 0.3), (3, 0.3)):
        assert abs(np.mean([len(p.diameters_mm) == count for p in plans]) - share) < 0.05
    diameters = [d for p in plans for d in p.diameters_mm]
    assert SIZE_LIMITS_MM[0] <= min(diameters) < SIZE_LIMITS_MM[0] + 1
    most = min(SIZE_LIMITS_MM[-1], max(LARGEST_MM.values()))
    assert most - 2 < max(diameters) <= most
    assert all(list(p.diameters_mm) == sorted(p.diameters_mm, reverse=True) for p in plans)


def test_plan_is_of_an_organ_that_is_there() -> None:
    rng = np.random.default_rng(1)
    assert {draw_plan(rng, (6, 20)).organ for _ in range(30)} == {6, 20}


def test_size_words_part_at_the_inner_limits() -> None:
    _, small, medium, _ = SIZE_LIMITS_MM
    words = [
        Lesion(5, "", d, "", "", "", NONE, None, (0.0, 0.0, 0.0), 9).size
        for d in (small - 0.1, small, medium - 0.1, medium)
    ]
    assert words == [SIZES[0], SIZES[1], SIZES[1], SIZES[2]]


def test_longest_diameter_of_a_ball_and_a_rod() -> None:
    affine = np.diag([1.0, 1.0, 2.0, 1.0])
    grid = np.argwhere(np.ones((41, 41, 21))) * (1, 1, 2)
    ball = grid[np.linalg.norm(grid - (20, 20, 20), axis=1) <= 15]
    assert longest_diameter(ball, affine) == pytest.approx(31, abs=1)
    rod = np.stack([np.arange(30), np.arange(30), np.zeros(30)], axis=-1)
    assert longest_diameter(rod, affine) == pytest.approx(30 * 2**0.5, rel=0.02)


def test_noise_is_of_unit_size_and_smooth_in_the_slice() -> None:
    field = noise(np.random.default_rng(0), (60, 60, 20))
    assert field.dtype == np.float32
    assert field.std() == pytest.approx(1, abs=0.05)
    across, along = (np.corrcoef(a.ravel(), b.ravel())[0, 1] for a, b in (
        (field[1:], field[:-1]), (field[..., 1:], field[..., :-1]),
    ))  # fmt: skip
    assert across > 0.15
    assert abs(along) < 0.02
