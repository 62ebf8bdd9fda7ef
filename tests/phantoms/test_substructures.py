"""Parts of organs: against the sketch that phantoms are drawn from, and on a real mask."""

from itertools import permutations, product
from pathlib import Path
from typing import NamedTuple

import nibabel as nib
import numpy as np
import pytest
from scipy.spatial import KDTree

from tumorchain_jax.anatomy.organs import DIGESTIVE, SUB_ORGANS
from tumorchain_jax.anatomy.substructures import (
    COLORECTUM,
    ESOPHAGUS,
    LIVER,
    PANCREAS,
    SEGMENTS,
    STOMACH,
    segment_at,
    segment_map,
)
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.phantoms.body import PHASES, TRUNK, Body, Space, Tube, draw_space, draw_trunk
from tumorchain_jax.phantoms.patient import Patient
from tumorchain_jax.scan.orientation import reorient
from tumorchain_jax.scan.volume import Volume

# These fields of view show the whole trunk.
SEEDS = (1, 6, 7, 8, 9, 14)
HEALTHY = Body(PHASES[1], cirrhosis=False, swelling=False)
TUBES = {part.label: part for part in TRUNK if isinstance(part, Tube) and part.label in SEGMENTS}
# The part of each control point of the sketch, and the agreement asked of the worst phantom.
PART_OF_POINT = {
    PANCREAS: ((1, 1, 2, 3, 4), 0.8),
    STOMACH: ((1, 2, 2, 3, 3), 0.75),
    COLORECTUM: ((1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 6), 0.88),
}


class Trunk(NamedTuple):
    labels: Volume
    space: Space


@pytest.fixture(scope="module")
def trunks() -> list[Trunk]:
    """Healthy phantoms, with the coordinates in which their sketch is written."""
    made = []
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        space, affine = draw_space(rng)
        _, labels, _ = draw_trunk(rng, space, affine.diagonal()[:3], HEALTHY)
        made.append(Trunk(Volume(labels, affine), space))
    return made


@pytest.fixture(scope="module")
def real(shared_data: Path) -> Volume:
    """Abdomen and pelvis at 3 mm; the top of liver, stomach and colon is out of view."""
    path = shared_data / "ct-totalsegmentator" / "example_seg_fast_force_split.nii.gz"
    image = nib.load(path)
    return Volume(np.asarray(image.dataobj).astype(np.uint8), image.affine, path.name)


def sketched(trunk: Trunk, organ: int) -> tuple[np.ndarray, np.ndarray]:
    """Of each voxel of a tube: how far (in control points) along it, and the nearest one's part."""
    points = np.array(TUBES[organ].points, float)
    along = np.arange(0, len(points) - 0.99, 0.05)
    line = np.stack([np.interp(along, np.arange(len(points)), u) for u in points.T], 1)
    mask = trunk.labels.voxels == organ
    grid = (trunk.space.x, trunk.space.y, trunk.space.z)
    voxels = np.stack([np.broadcast_to(u, mask.shape)[mask] for u in grid], 1)
    position = along[KDTree(line).query(voxels)[1]]
    return position, np.array(PART_OF_POINT[organ][0])[np.rint(position).astype(int)]


def centres(labels: Volume, organ: int) -> dict[str, np.ndarray]:
    """Name of each part found -> its centroid, RAS+ mm."""
    segments = segment_map(labels, organ)
    found = {}
    for number, name in enumerate(SEGMENTS[organ], start=1):
        if (segments == number).any():
            index = np.argwhere(segments == number).mean(0)
            found[name] = labels.affine[:3, :3] @ index + labels.affine[:3, 3]
    return found


def without(labels: Volume, *ids: int) -> Volume:
    return Volume(np.where(np.isin(labels.voxels, ids), 0, labels.voxels), labels.affine)


def agreement(one: np.ndarray, other: np.ndarray) -> float:
    """Share of the voxels in both maps that lie in the same part."""
    both = (one > 0) & (other > 0)
    return float((one == other)[both].mean())


def test_parts_bear_the_names_of_the_organ_table():
    assert set(SEGMENTS) == set(DIGESTIVE)
    for organ, names in SEGMENTS.items():
        assert len(set(names)) == len(names)
        assert set(names) <= set(SUB_ORGANS[organ])


@pytest.mark.parametrize("organ", SEGMENTS)
def test_every_voxel_lies_in_one_part_and_every_part_is_found(trunks: list[Trunk], organ: int):
    labels = trunks[0].labels
    segments = segment_map(labels, organ)
    assert segments.dtype == np.uint8
    np.testing.assert_array_equal(segments > 0, labels.voxels == organ)
    assert set(np.unique(segments)) == set(range(len(SEGMENTS[organ]) + 1))


def test_an_organ_with_a_tumour_has_its_parts_too(patients: list[Patient]):
    for organ in SEGMENTS:
        ill = next(p for p in patients if p.lesions and p.lesions[0].organ == organ)
        segments = segment_map(ill.labels, organ)
        np.testing.assert_array_equal(segments > 0, ill.labels.voxels == organ)
        assert len(np.unique(segments)) > 2


@pytest.mark.parametrize("organ", PART_OF_POINT)
def test_parts_agree_with_the_sketch_and_follow_each_other(trunks: list[Trunk], organ: int):
    for trunk in trunks:
        mask = trunk.labels.voxels == organ
        part = segment_map(trunk.labels, organ)[mask]
        position, nearest = sketched(trunk, organ)
        assert (part == nearest).mean() > PART_OF_POINT[organ][1]
        numbers = range(1, len(SEGMENTS[organ]) + 1)
        order = [position[part == number].mean() for number in numbers]
        assert order == sorted(order)


def test_thirds_of_the_esophagus_lie_one_below_the_other(trunks: list[Trunk]):
    for trunk in trunks:
        segments = segment_map(trunk.labels, ESOPHAGUS)
        level = np.broadcast_to(np.arange(segments.shape[2]), segments.shape)
        upper, middle, lower = (level[segments == number] for number in (1, 2, 3))
        assert lower.max() < middle.min()
        assert middle.max() < upper.min()


def test_parts_of_the_liver_lie_where_their_names_say(trunks: list[Trunk]):
    for trunk in trunks:
        at = {name.split()[-1]: c for name, c in centres(trunk.labels, LIVER).items()}
        left = at.pop("liver")
        assert all(left[0] < right[0] for right in at.values())
        for above, below in (("VIII", "V"), ("VII", "VI")):
            assert at[above][2] > at[below][2] + 30
        for front, back in (("VIII", "VII"), ("V", "VI")):
            assert at[front][1] > at[back][1] + 20


@pytest.mark.parametrize("organ", SEGMENTS)
def test_axes_in_any_order_and_direction_give_the_same_parts(trunks: list[Trunk], organ: int):
    labels = trunks[0].labels
    segments = segment_map(labels, organ)
    turns = list(product(permutations(range(3)), product((1, -1), repeat=3)))
    for axes, directions in turns[1 :: len(turns) // 5]:
        turn = np.stack([axes, directions], 1)
        turned = reorient(labels, turn)
        expected = reorient(Volume(segments, labels.affine), turn).voxels
        np.testing.assert_array_equal(segment_map(turned, organ), expected)
        centre = centres(labels, organ)[SEGMENTS[organ][0]]
        assert segment_at(expected, turned.affine, centre) == segment_at(
            segments, labels.affine, centre
        )


@pytest.mark.parametrize("organ", SEGMENTS)
def test_pieces_keep_their_parts(trunks: list[Trunk], organ: int):
    for trunk in trunks[:3]:
        whole = segment_map(trunk.labels, organ)
        # Each border between two parts becomes a gap of two slices, along the axis it lies across.
        broken = trunk.labels.voxels.copy()
        for number in range(1, len(SEGMENTS[organ])):
            near, far = np.argwhere(whole == number), np.argwhere(whole == number + 1)
            axis = np.abs(near.mean(0) - far.mean(0)).argmax()
            border = round((near.mean(0)[axis] + far.mean(0)[axis]) / 2)
            gap = np.moveaxis(broken, axis, 0)[border : border + 2]
            gap[gap == organ] = 0
        pieces = segment_map(Volume(broken, trunk.labels.affine), organ)
        assert agreement(pieces, whole) > 0.85


def test_a_scan_of_the_upper_abdomen_shows_no_pelvic_colon(trunks: list[Trunk]):
    for trunk in trunks:
        whole = segment_map(trunk.labels, COLORECTUM)
        hips = np.argwhere(np.isin(trunk.labels.voxels, (77, 78)))
        floor = hips[:, 2].max() + 1
        affine = trunk.labels.affine.copy()
        affine[:3, 3] += affine[:3, 2] * floor
        top = segment_map(Volume(trunk.labels.voxels[:, :, floor:], affine), COLORECTUM)
        assert set(np.unique(top)) == {0, 2, 3, 4}
        assert agreement(top, whole[:, :, floor:]) > 0.95


def test_a_scan_of_the_pelvis_shows_the_pelvic_colon_alone(trunks: list[Trunk]):
    shares = []
    for trunk in trunks:
        hips = np.argwhere(np.isin(trunk.labels.voxels, (77, 78)))
        roof = hips[:, 2].max() + 1
        pelvis = Volume(trunk.labels.voxels[:, :, :roof], trunk.labels.affine)
        whole = segment_map(trunk.labels, COLORECTUM)[:, :, :roof]
        shares.append(agreement(segment_map(pelvis, COLORECTUM), whole))
    # What hangs on parts out of view is guessed.
    assert min(shares) > 0.65
    assert np.mean(shares) > 0.88


@pytest.mark.parametrize(
    ("organ", "landmarks", "least"),
    [
        (LIVER, (4, 63), 0.7),
        (LIVER, (4,), 0.75),
        (LIVER, (63,), 0.7),
        (COLORECTUM, (*range(25, 51), 77, 78), 0.92),
    ],
)
def test_without_landmarks_most_voxels_stay_in_their_part(
    trunks: list[Trunk], organ: int, landmarks: tuple[int, ...], least: float
):
    for trunk in trunks:
        guessed = segment_map(without(trunk.labels, *landmarks), organ)
        assert agreement(guessed, segment_map(trunk.labels, organ)) > least


@pytest.mark.parametrize("organ", SEGMENTS)
@pytest.mark.parametrize("places", [[(3, 4, 5)], [(0, 0, 0), (9, 9, 9)], [(1, 2, 3), (1, 2, 4)]])
def test_a_voxel_or_two_lie_in_some_part(organ: int, places: list[tuple[int, int, int]]):
    voxels = np.zeros((10, 10, 10), np.uint8)
    voxels[tuple(np.transpose(places))] = organ
    segments = segment_map(Volume(voxels, np.diag([3.0, 3.0, 5.0, 1.0])), organ)
    np.testing.assert_array_equal(segments > 0, voxels > 0)
    assert segments.max() <= len(SEGMENTS[organ])


def test_the_nearest_part_is_found_in_millimetres():
    segments = np.zeros((5, 4, 4), np.uint8)
    segments[0, 0, 0], segments[4, 0, 0], segments[0, 0, 3] = 1, 2, 3
    affine = np.diag([-1.0, 1.0, 10.0, 1.0])
    affine[0, 3] = 100
    assert segment_at(segments, affine, (99.0, 0.0, 0.0)) == 1
    assert segment_at(segments, affine, (90.0, 0.0, 0.0)) == 2
    assert segment_at(segments, affine, (100.0, 0.0, 14.0)) == 1
    assert segment_at(segments, affine, np.array((100, 5, 16))) == 3


@pytest.mark.parametrize(("organ", "found"), [(PANCREAS, "no voxel with id 7"), (1, "found 1,")])
def test_an_organ_out_of_view_or_without_parts_is_refused(organ: int, found: str):
    with pytest.raises(InputError, match=found):
        segment_map(Volume(np.zeros((4, 4, 4), np.uint8), np.eye(4), "empty"), organ)


def test_real_colon(real: Volume):
    at = centres(real, COLORECTUM)
    assert list(at) == list(SEGMENTS[COLORECTUM])
    for right, left in (("ascending", "descending"), ("ascending", "transverse")):
        assert at[f"{right} colon"][0] > at[f"{left} colon"][0] + 60
    for high, low in (
        ("ascending colon", "cecum"),
        ("transverse colon", "sigmoid colon"),
        ("descending colon", "sigmoid colon"),
        ("sigmoid colon", "rectum"),
    ):
        assert at[high][2] > at[low][2] + 20
    assert all(at["transverse colon"][1] > c[1] for name, c in at.items() if "trans" not in name)
    assert all(at["rectum"][1] < c[1] for name, c in at.items() if name != "rectum")
    sacrum = np.argwhere(real.voxels == 25) @ real.affine[:3, :3].T + real.affine[:3, 3]
    assert abs(at["rectum"][0] - sacrum[:, 0].mean()) < 15
    assert sacrum[:, 2].min() - 20 < at["rectum"][2] < sacrum[:, 2].mean()


def test_real_pancreas_and_stomach(real: Volume):
    head, neck, body, tail = centres(real, PANCREAS).values()
    assert head[0] > neck[0] > body[0] > tail[0]
    assert tail[2] > head[2]
    duodenum = np.argwhere(real.voxels == 19) @ real.affine[:3, :3].T + real.affine[:3, 3]
    spleen = np.argwhere(real.voxels == 1) @ real.affine[:3, :3].T + real.affine[:3, 3]
    for organ, first, last in ((duodenum, head, tail), (spleen, tail, head)):
        gaps = [np.linalg.norm(organ - end, axis=1).min() for end in (first, last)]
        assert gaps[0] < gaps[1]
    fundus, body, antrum = centres(real, STOMACH).values()
    assert fundus[2] > body[2] > antrum[2]
    assert fundus[1] < body[1] < antrum[1]
    assert antrum[0] > body[0] > fundus[0]


def test_real_liver(real: Volume):
    at = {name.split()[-1]: c for name, c in centres(real, LIVER).items()}
    cava = np.argwhere(real.voxels == 63) @ real.affine[:3, :3].T + real.affine[:3, 3]
    assert at["VIII"][1] > cava[:, 1].mean() > at["VII"][1]
    assert at["V"][1] > at["VI"][1]
    assert min(at["VII"][2], at["VIII"][2]) > max(at["V"][2], at["VI"][2])
    assert all(at["liver"][0] < at[right][0] for right in ("V", "VI", "VII", "VIII"))
