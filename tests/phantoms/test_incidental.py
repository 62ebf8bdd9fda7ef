"""Nodes, metastases and look-alikes: each in its room, and counted as painted."""

from itertools import combinations

import numpy as np
import pytest
from scipy import ndimage

from tumorchain_jax.phantoms.incidental import (
    AORTA,
    CALCIFICATION,
    CHALK_HU,
    CHALK_MM,
    CYST,
    CYST_HU,
    CYST_MM,
    KIDNEYS,
    LIVER,
    LIVER_METASTASIS_HU,
    LIVER_METASTASIS_MM,
    LOOK_ALIKE,
    LUNG_METASTASIS_HU,
    LUNG_METASTASIS_MM,
    LUNGS,
    METASTASIS,
    NODE,
    NODE_COUNTS,
    NODE_HU,
    NODE_MM,
    NODES_WITHIN_MM,
    Finding,
    IncidentalPainter,
    box_around,
)
from tumorchain_jax.phantoms.patient import Patient

AFFINE = np.diag([3.0, 3.0, 4.0, 1.0])
AFFINE[:3, 3] = (-50.0, 20.0, 100.0)
SPACING = AFFINE.diagonal()[:3]
STOMACH, LIVER_HU = 6, 110.0
# Organ -> its cube, in fat.
CUBES = {
    STOMACH: np.s_[4:16, 4:16, 4:12], LIVER: np.s_[20:40, 20:40, 4:20],
    LUNGS[0]: np.s_[4:18, 24:40, 20:34], LUNGS[1]: np.s_[24:40, 4:18, 22:34],
    KIDNEYS[0]: np.s_[22:34, 4:14, 4:16], KIDNEYS[1]: np.s_[4:14, 22:36, 4:16],
    AORTA: np.s_[36:42, 36:42, 22:36],
}  # fmt: skip


def painter(seed: int, lesion: bool = True) -> IncidentalPainter:
    labels = np.zeros((44, 44, 38), np.uint8)
    for organ, cube in CUBES.items():
        labels[cube] = organ
    lesion_map = np.zeros_like(labels)
    if lesion:
        lesion_map[12:20, 8:12, 6:10] = 1
    image = np.where(labels > 0, 60.0, -100.0).astype(np.float32)
    rng = np.random.default_rng(seed)
    fat = (labels == 0) & (lesion_map == 0)
    return IncidentalPainter(rng, image, labels, fat, lesion_map, AFFINE)


def painted(seed: int) -> IncidentalPainter:
    p = painter(seed)
    p.nodes(STOMACH)
    p.metastases(STOMACH, LIVER_HU)
    p.look_alikes()
    return p


@pytest.fixture(scope="module")
def painters() -> list[IncidentalPainter]:
    return [painted(seed) for seed in range(30)]


Ball = tuple[IncidentalPainter, Finding, np.ndarray]


@pytest.fixture(scope="module")
def balls(painters: list[IncidentalPainter]) -> list[Ball]:
    """Each finding with the voxels of its kind that its centre and diameter claim."""
    x, y, z = (AFFINE[a, 3] + SPACING[a] * np.arange(n) for a, n in enumerate((44, 44, 38)))
    found = []
    for p in painters:
        for finding in p.findings:
            a, b, c = finding.centre_mm
            squares = (x[:, None, None] - a) ** 2 + (y[:, None] - b) ** 2 + (z - c) ** 2
            near = squares <= (finding.diameter_mm / 2 + 1e-6) ** 2
            found.append((p, finding, near & (p.other_map == finding.kind)))
    return found


LIMITS = {
    (NODE, "lymph node"): NODE_MM,
    (LOOK_ALIKE, CYST): CYST_MM,
    (LOOK_ALIKE, CALCIFICATION): CHALK_MM,
    (METASTASIS, LIVER): LIVER_METASTASIS_MM,
    (METASTASIS, LUNGS[0]): LUNG_METASTASIS_MM,
    (METASTASIS, LUNGS[1]): LUNG_METASTASIS_MM,
}


def test_each_finding_is_in_the_map_at_its_place_and_size(balls):
    assert len(balls) > 80
    for _, finding, ball in balls:
        key = finding.organ if finding.kind == METASTASIS else finding.name
        low, high = LIMITS[finding.kind, key]
        assert low <= finding.diameter_mm <= high
        assert np.count_nonzero(ball) >= 4


def test_map_shows_the_findings_and_nothing_else(painters, balls):
    for p in painters:
        claimed = np.zeros_like(p.labels)
        for _, finding, ball in (each for each in balls if each[0] is p):
            claimed[ball] = finding.kind
        np.testing.assert_array_equal(claimed, p.other_map)
        untouched = np.where(p.labels > 0, 60, -100)
        assert (p.image == untouched)[p.other_map == 0].all()


HU = {"lymph node": NODE_HU, CYST: CYST_HU, CALCIFICATION: CHALK_HU}


def test_findings_of_a_kind_are_of_its_density(balls):
    for p, finding, ball in balls:
        in_liver = finding.organ == LIVER
        metastasis = LIVER_HU + LIVER_METASTASIS_HU if in_liver else LUNG_METASTASIS_HU
        assert (p.image[ball] == HU.get(finding.name, metastasis)).all()


def test_all_but_nodes_lie_in_their_organ(balls):
    for p, finding, ball in balls:
        assert (p.labels[ball] == (0 if finding.kind == NODE else finding.organ)).all()


def test_nothing_is_painted_over_the_tumour(painters):
    for p in painters:
        assert not p.other_map[p.lesion_map > 0].any()


def test_nodes_are_in_the_fat_near_their_organ(painters):
    counts = []
    for p in painters:
        nodes = [f for f in p.findings if f.kind == NODE]
        counts.append(len(nodes))
        assert {f.organ for f in nodes} <= {STOMACH}
        assert (p.labels[p.other_map == NODE] == 0).all()
        away = ndimage.distance_transform_edt(p.labels != STOMACH, SPACING)
        for node in nodes:
            centre = np.rint((np.array(node.centre_mm) - AFFINE[:3, 3]) / SPACING).astype(int)
            assert 0 < away[tuple(centre)] <= NODES_WITHIN_MM * 3**0.5
    assert set(counts) <= set(range(max(NODE_COUNTS) + 1))
    assert counts.count(0) > 5
    assert max(counts) >= 4


def test_metastases_are_in_the_liver_and_the_lungs(painters):
    sites = []
    for p in painters:
        found = [f for f in p.findings if f.kind == METASTASIS]
        assert {f.organ for f in found} <= {LIVER, *LUNGS}
        sites.append(frozenset(LIVER if f.organ == LIVER else LUNGS[0] for f in found))
    assert {frozenset(), frozenset({LIVER}), frozenset({LUNGS[0]})} <= set(sites)
    assert 0.3 < np.mean([bool(site) for site in sites]) < 0.7


def test_tumour_of_the_liver_has_no_metastasis_there():
    organs = set()
    for seed in range(20):
        p = painter(seed)
        p.metastases(LIVER, LIVER_HU)
        organs |= {f.organ for f in p.findings}
    assert organs == set(LUNGS)


def test_look_alikes_are_cysts_and_vascular_chalk(painters):
    findings = [f for p in painters for f in p.findings if f.kind == LOOK_ALIKE]
    places = {(finding.name, finding.organ) for finding in findings}
    assert places == {*((CYST, o) for o in (*KIDNEYS, LIVER)), (CALCIFICATION, AORTA)}


def test_findings_never_overlap(painters):
    for p in painters:
        for one, other in combinations(p.findings, 2):
            apart = np.subtract(one.centre_mm, other.centre_mm)
            assert np.linalg.norm(apart) > 0.3 * min(one.diameter_mm, other.diameter_mm)


def test_organs_out_of_view_have_none():
    for seed in range(8):
        p = painter(seed, lesion=False)
        p.labels[...] = 0
        p.fat[...] = False
        p.labels[CUBES[STOMACH]] = STOMACH
        p.nodes(STOMACH)
        p.metastases(STOMACH, LIVER_HU)
        p.look_alikes()
        assert p.findings == []
        assert not p.other_map.any()


def test_box_around_a_mask_has_a_margin():
    mask = np.zeros((20, 20, 20), bool)
    mask[1:3, 8:10, 18] = True
    box = box_around(mask, 10.0, np.array((2.0, 5.0, 4.0)))
    assert [(s.start, s.stop) for s in box] == [(0, 8), (6, 12), (15, 22)]


def test_those_of_patients_are_in_their_maps(patients: list[Patient]):
    kinds = set()
    for p in patients:
        shown = set(np.unique(p.other_map.voxels).tolist()) - {0}
        assert shown == {f.kind for f in p.findings}
        kinds |= shown
        assert not p.other_map.voxels[p.lesion_map.voxels > 0].any()
        to_voxel = np.linalg.inv(p.ct.affine)
        for finding in p.findings:
            index = to_voxel[:3, :3] @ finding.centre_mm + to_voxel[:3, 3]
            label = p.labels.voxels[tuple(np.rint(index).astype(int))]
            assert label == (0 if finding.kind == NODE else finding.organ)
    assert kinds == {METASTASIS, NODE, LOOK_ALIKE}
