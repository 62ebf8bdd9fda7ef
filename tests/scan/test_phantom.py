import json
from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from scipy import ndimage

from tumorchain_jax.errors import InputError
from tumorchain_jax.scan import phantom
from tumorchain_jax.scan.anatomy import FAT_HU, draw_space, draw_trunk
from tumorchain_jax.scan.organs import ORGANS, TOTALSEGMENTATOR
from tumorchain_jax.scan.phantom import (
    BORDERS,
    DENSITIES,
    DIGESTIVE,
    SHAPES,
    SIZES,
    Patient,
    draw_plan,
    longest_diameter,
    make_patient,
    paint_lesion,
    write_patient,
)
from tumorchain_jax.scan.segments import SEGMENTS, segment_map
from tumorchain_jax.scan.volume import Volume

ILL = [next(s for s in range(100) if (p := draw_plan(s)) and p.organ == o) for o in DIGESTIVE]
HEALTHY = next(s for s in range(100) if draw_plan(s) is None)
TRUNK = (
    "spleen", "kidney_right", "kidney_left", "gallbladder", "liver", "stomach", "pancreas",
    "lung_lower_lobe_left", "lung_lower_lobe_right", "esophagus", "small_bowel", "duodenum",
    "colon", "urinary_bladder", "sacrum", "vertebrae_L3", "heart", "aorta", "inferior_vena_cava",
)  # fmt: skip


@pytest.fixture(scope="module")
def patients() -> list[Patient]:
    """One ill patient for each organ, two with several lesions, and a healthy one."""
    several = [s for s in range(100) if (p := draw_plan(s)) and len(p.diameters_mm) > 1][:2]
    return [make_patient(s) for s in (*ILL, *several, HEALTHY)]


@pytest.fixture(scope="module")
def real(shared_data: Path) -> tuple[Volume, Volume]:
    folder = shared_data / "ct-totalsegmentator"
    ct = nib.load(folder / "example_ct.nii.gz")
    mask = nib.load(folder / "example_seg_fast_force_split.nii.gz")
    return (
        Volume(np.asarray(ct.dataobj, np.float32), ct.affine, "example_ct"),
        Volume(np.asarray(mask.dataobj).astype(np.uint8), mask.affine, "example_seg"),
    )


def block(organ: int, size: int = 24) -> tuple[Volume, Volume]:
    """A cube of one organ in a larger cube of fat, 2 x 2 x 3 mm."""
    labels = np.zeros((40, 40, 30), np.uint8)
    labels[8 : 8 + size, 8 : 8 + size, 3 : 3 + size] = organ
    noise = np.random.default_rng(0).normal(0, 10, labels.shape)
    ct = (np.where(labels > 0, 60, -100) + noise).astype(np.float32)
    affine = np.diag([2.0, 2.0, 3.0, 1.0])
    return Volume(ct, affine, "block"), Volume(labels, affine, "block mask")


def soft_rest(patient: Patient) -> np.ndarray:
    """HU of the diseased organ's soft tissue outside its lesions."""
    own = patient.labels.voxels == patient.lesions[0].organ
    hu = patient.ct.voxels[own & (patient.lesion_map.voxels == 0)]
    return hu[(hu > -30) & (hu < 250)]


def centroid(labels: Volume, name: str) -> np.ndarray:
    index = np.argwhere(labels.voxels == TOTALSEGMENTATOR.index(name)).mean(0)
    return labels.affine[:3, :3] @ index + labels.affine[:3, 3]


def test_same_seed_same_bytes():
    one, other, next_one = make_patient(ILL[0]), make_patient(ILL[0]), make_patient(ILL[0] + 1)
    assert one.ct.voxels.tobytes() == other.ct.voxels.tobytes()
    assert one.labels.voxels.tobytes() == other.labels.voxels.tobytes()
    assert one.lesions == other.lesions
    assert one.ct.voxels.tobytes() != next_one.ct.voxels.tobytes()


def test_volumes_are_ct_and_totalsegmentator_ids(patients):
    for p in patients:
        assert p.ct.voxels.dtype == np.float32
        assert p.labels.voxels.dtype == p.lesion_map.voxels.dtype == np.uint8
        assert p.ct.shape == p.labels.shape == p.lesion_map.shape
        assert np.array_equal(p.ct.affine, p.labels.affine)
        assert -1024 <= p.ct.voxels.min() < -900 < 200 < p.ct.voxels.max() <= 3071
        assert p.labels.voxels.max() < len(TOTALSEGMENTATOR)
        assert nib.aff2axcodes(p.ct.affine) == ("R", "A", "S")
        assert 2.5 < p.ct.spacing[0] < 4 <= p.ct.spacing[2] <= 8
        assert np.abs(p.ct.voxels - np.rint(p.ct.voxels)).max() == 0


def test_every_organ_is_there_and_of_plausible_size(patients):
    for p in patients:
        ml = np.bincount(p.labels.voxels.ravel(), minlength=118) * np.prod(p.ct.spacing) / 1000
        for name in TRUNK:
            assert ml[TOTALSEGMENTATOR.index(name)] > 5, (p.seed, name)
        assert 700 < ml[TOTALSEGMENTATOR.index("liver")] < 2500
        assert 60 < ml[TOTALSEGMENTATOR.index("kidney_left")] < 300


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("liver", 50, 150), ("spleen", 70, 150), ("kidney_left", 90, 200), ("aorta", 100, 200),
        ("lung_lower_lobe_right", -900, -650), ("vertebrae_L3", 120, 450), ("pancreas", 40, 130),
        ("urinary_bladder", -20, 40), ("gallbladder", -20, 60),
    ],
)  # fmt: skip
def test_organs_have_their_hu(patients, name, low, high):
    for p in patients:
        own = (p.labels.voxels == TOTALSEGMENTATOR.index(name)) & (p.lesion_map.voxels == 0)
        assert low < p.ct.voxels[own].mean() < high


def test_noise_differs_between_patients_and_stays_in_range(patients):
    sd = []
    for p in patients:
        liver = ndimage.binary_erosion((p.labels.voxels == 5) & (p.lesion_map.voxels == 0))
        # Neighbours along z share no noise: the texture of the organ cancels.
        pair = liver[..., 1:] & liver[..., :-1]
        sd.append(np.diff(p.ct.voxels, axis=2)[pair].std() / 2**0.5)
    assert 7 < min(sd) < max(sd) < 24
    assert max(sd) - min(sd) > 3


def test_organs_lie_as_in_a_real_patient(patients, real):
    pairs = [
        ("liver", "spleen"), ("kidney_right", "kidney_left"), ("gallbladder", "stomach"),
        ("stomach", "vertebrae_L1"), ("colon", "vertebrae_L3"), ("aorta", "inferior_vena_cava"),
        ("liver", "urinary_bladder"), ("pancreas", "kidney_left"), ("vertebrae_L1", "vertebrae_L5"),
    ]  # fmt: skip
    for p in patients:
        for a, b in pairs:
            made = centroid(p.labels, a) - centroid(p.labels, b)
            true = centroid(real[1], a) - centroid(real[1], b)
            clear = np.abs(true) > 25
            assert np.array_equal(np.sign(made[clear]), np.sign(true[clear])), (a, b, made, true)


def test_lesions_lie_in_one_organ_and_are_told_truly(patients):
    for p in patients:
        assert p.lesion_map.voxels.max() == len(p.lesions)
        for n, lesion in enumerate(p.lesions, start=1):
            mask = p.lesion_map.voxels == n
            index = np.argwhere(mask)
            assert lesion.organ == p.lesions[0].organ
            assert ORGANS[lesion.organ] == DIGESTIVE[lesion.organ]
            assert (p.labels.voxels[mask] == lesion.organ).all()
            assert lesion.voxels == len(index) >= 8
            assert ndimage.label(mask)[1] == 1
            centre = p.ct.affine[:3, :3] @ index.mean(0) + p.ct.affine[:3, 3]
            np.testing.assert_allclose(lesion.centre_mm, centre, atol=1e-6)
            # The farthest voxel centres lie one voxel less than the diameter apart.
            mm = index * p.ct.spacing
            farthest = np.linalg.norm(mm[:, None] - mm[None], axis=-1).max()
            assert farthest < lesion.diameter_mm < farthest + 1.1 * p.ct.spacing[2]
            assert lesion.density in DENSITIES
            assert lesion.shape in SHAPES
            assert lesion.border in BORDERS


def test_a_lesion_is_told_to_be_in_the_segment_that_holds_most_of_it(patients):
    agree = []
    for patient in patients:
        for number, lesion in enumerate(patient.lesions, 1):
            parts = segment_map(patient.labels, lesion.organ)
            own = parts[patient.lesion_map.voxels == number]
            most = SEGMENTS[lesion.organ][int(np.bincount(own, minlength=9)[1:].argmax())]
            agree.append(most == lesion.segment)
    assert len(agree) > 5
    # The map it is held against is of the organ with the mass in it, the truth of that without.
    assert np.mean(agree) > 0.75


def test_a_mass_bulges_into_fat_alone(patients):
    bulging = 0
    for p in patients:
        rng = np.random.default_rng([p.seed, 1])
        space, affine = draw_space(rng)
        image, healthy, _ = draw_trunk(rng, space, affine.diagonal()[:3])
        changed = p.labels.voxels != healthy
        bulging += np.count_nonzero(changed)
        assert (p.lesion_map.voxels[changed] > 0).all()
        assert (healthy[changed] == 0).all()
        assert (image[changed] == FAT_HU).all()
    assert bulging > 0


def test_lesions_of_one_organ_keep_apart():
    several = 0
    for seed in range(25):
        p = paint_lesion(*block(5), seed)
        several += len(p.lesions) > 1
        for n, lesion in enumerate(p.lesions, start=1):
            mask = p.lesion_map.voxels == n
            assert np.count_nonzero(mask) == lesion.voxels
            around = p.lesion_map.voxels[ndimage.binary_dilation(mask)]
            assert set(around.tolist()) <= {0, n}
    assert several > 5


def test_plan_is_kept(patients):
    for p in patients:
        plan = draw_plan(p.seed)
        if plan is None:
            assert p.lesions == ()
            continue
        assert 1 <= len(p.lesions) <= len(plan.diameters_mm)
        for lesion in p.lesions:
            found = lesion.organ, lesion.density, lesion.shape, lesion.border
            assert found == (plan.organ, plan.density, plan.shape, plan.border)


@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("organ", DIGESTIVE)
def test_lesions_can_be_seen(organ, density):
    plans = ((s, p) for s in range(900) if (p := draw_plan(s)) is not None)
    p = make_patient(next(s for s, p in plans if (p.organ, p.density) == (organ, density)))
    # Hollow organs are measured against the wall, which is brighter than what they hold.
    rest = soft_rest(p)
    organ_hu = np.percentile(rest, 60) if organ in phantom.HOLLOW else rest.mean()
    contrast = p.ct.voxels[p.lesion_map.voxels > 0].mean() - organ_hu
    assert (contrast if density == "hyperdense" else -contrast) > 20


def test_patients_differ_in_health_organ_size_and_kind():
    plans = [draw_plan(s) for s in range(1000)]
    ill = [p for p in plans if p is not None]
    assert 0.75 < len(ill) / len(plans) < 0.85
    for organ in DIGESTIVE:
        assert 0.15 < np.mean([p.organ == organ for p in ill]) < 0.25
    for field, words in (("density", DENSITIES), ("shape", SHAPES), ("border", BORDERS)):
        for word in words:
            assert 0.4 < np.mean([getattr(p, field) == word for p in ill]) < 0.6
    assert 0.5 < np.mean([len(p.diameters_mm) == 1 for p in ill]) < 0.7
    diameters = [d for p in ill for d in p.diameters_mm]
    assert 30 <= min(diameters) < 33
    assert 80 < max(diameters) <= 85


def test_painting_stays_in_the_organ_of_a_real_ct(real):
    ct, labels = real
    for organ in (5, 6, 7, 20):
        p = paint_lesion(ct, labels, seed=3, organ=organ)
        changed = p.ct.voxels != ct.voxels
        assert changed.any()
        assert (labels.voxels[changed] == organ).all()
        assert (labels.voxels[p.lesion_map.voxels > 0] == organ).all()
        assert np.array_equal(p.labels.voxels, labels.voxels)
        lesion = p.ct.voxels[p.lesion_map.voxels > 0].mean()
        contrast = lesion - soft_rest(p).mean()
        assert (contrast if p.lesions[0].density == "hyperdense" else -contrast) > 20
        assert "example_ct" in p.synthetic


def test_painting_chooses_an_organ_that_is_there(real):
    organs = {paint_lesion(*real, seed=s).lesions[0].organ for s in range(12)}
    assert organs == {5, 6, 7, 20}  # this scan begins below the oesophagus


def test_painting_is_determined_by_the_seed():
    one, other = (paint_lesion(*block(5), seed=4) for _ in range(2))
    assert np.array_equal(one.ct.voxels, other.ct.voxels)
    assert one.lesions == other.lesions
    assert not np.array_equal(one.ct.voxels, paint_lesion(*block(5), seed=5).ct.voxels)


def test_shape_and_border_show():
    """A round lesion fills its hull better; an ill-defined one changes more voxels around it."""
    fill: dict[str, list[float]] = {w: [] for w in SHAPES}
    halo: dict[str, list[float]] = {w: [] for w in BORDERS}
    ct, labels = block(5)
    for seed in range(40):
        p = paint_lesion(ct, labels, seed)
        for lesion in p.lesions:
            if lesion.diameter_mm > 20:
                ball = np.pi / 6 * lesion.diameter_mm**3
                fill[lesion.shape].append(lesion.voxels * 12 / ball)
        changed = np.count_nonzero(p.ct.voxels != ct.voxels)
        halo[p.lesions[0].border].append(changed / sum(lesion.voxels for lesion in p.lesions))
    assert np.mean(fill["round"]) > np.mean(fill["irregular"]) + 0.1
    assert np.mean(halo["ill-defined"]) > np.mean(halo["well-defined"]) + 0.3


def test_size_words_part_at_45_and_60_mm():
    p = make_patient(ILL[0])
    words = [replace(p.lesions[0], diameter_mm=d).size for d in (44.9, 45.0, 59.9, 60.0)]
    assert words == [SIZES[0], SIZES[1], SIZES[1], SIZES[2]]


def test_longest_diameter_of_a_ball_and_a_rod():
    affine = np.diag([1.0, 1.0, 2.0, 1.0])
    grid = np.argwhere(np.ones((41, 41, 21))) * (1, 1, 2)
    ball = grid[np.linalg.norm(grid - (20, 20, 20), axis=1) <= 15]
    assert longest_diameter(ball, affine) == pytest.approx(31, abs=1)
    rod = np.stack([np.arange(30), np.arange(30), np.zeros(30)], axis=-1)
    assert longest_diameter(rod, affine) == pytest.approx(30 * 2**0.5, rel=0.02)


@pytest.mark.parametrize("organ", [None, 7])
def test_painting_refuses_a_mask_without_room(organ):
    ct, labels = block(organ=1)
    with pytest.raises(InputError, match="block mask: organ: "):
        paint_lesion(ct, labels, 0, organ)


def test_painting_refuses_an_organ_that_is_not_digestive():
    with pytest.raises(InputError, match="one of them, not 1"):
        paint_lesion(*block(organ=1), seed=0, organ=1)


def test_painting_refuses_another_grid():
    ct, labels = block(5)
    moved = Volume(labels.voxels, labels.affine + np.eye(4)[:, [3, 0, 1, 2]] * 5, "moved")
    for wrong in (moved, Volume(labels.voxels[1:], labels.affine, "cut")):
        with pytest.raises(InputError, match="grid"):
            paint_lesion(ct, wrong, seed=0)


def test_written_patient_reads_back(tmp_path, patients):
    p = patients[0]
    ct_path, labels_path = write_patient(p, tmp_path / "new")
    for path, volume in (
        (ct_path, p.ct),
        (labels_path, p.labels),
        (ct_path.with_name("lesions.nii.gz"), p.lesion_map),
    ):
        image = nib.load(path)
        assert np.array_equal(np.asarray(image.dataobj), volume.voxels)
        np.testing.assert_allclose(image.affine, volume.affine, atol=1e-4)
    assert nib.load(ct_path).get_data_dtype() == np.int16
    truth = json.loads((tmp_path / "new" / "truth.json").read_text())
    assert truth["seed"] == p.seed
    assert truth["synthetic"] == p.synthetic
    assert [t["voxels"] for t in truth["lesions"]] == [lesion.voxels for lesion in p.lesions]
    assert truth["lesions"][0]["size"] == p.lesions[0].size
    assert set(truth["lesions"][0]) >= {"organ", "diameter_mm", "density", "shape", "border"}
    names = {"ct.nii.gz", "labels.nii.gz", "lesions.nii.gz", "truth.json"}
    assert {f.name for f in (tmp_path / "new").iterdir()} == names


def test_a_broken_write_leaves_no_half_file(tmp_path, patients, monkeypatch):
    def broken(image, path):
        Path(path).write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(phantom.nib, "save", broken)
    with pytest.raises(OSError, match="disk full"):
        write_patient(patients[0], tmp_path)
    assert not (tmp_path / "ct.nii.gz").exists()
    assert not (tmp_path / "truth.json").exists()
