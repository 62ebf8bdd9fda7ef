import json
from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from scipy import ndimage
from scipy.spatial import ConvexHull
from scipy.spatial.distance import pdist

from tumorchain_jax.anatomy.organs import DIGESTIVE, TOTALSEGMENTATOR
from tumorchain_jax.anatomy.substructures import SEGMENTS, segment_at, segment_map
from tumorchain_jax.phantoms import patient
from tumorchain_jax.phantoms.body import FAT_HU, PHASES
from tumorchain_jax.phantoms.incidental import METASTASIS, NODE, Finding
from tumorchain_jax.phantoms.lesions import (
    BORDERS,
    DENSITIES,
    DEPTHS,
    HOLLOW,
    OTHERS,
    SHAPES,
)
from tumorchain_jax.phantoms.patient import (
    SHOWN_ML,
    Patient,
    make_patient,
    stage,
    truth,
    write_patient,
)
from tumorchain_jax.scan.volume import Volume

TRUNK = (
    "spleen", "kidney_right", "kidney_left", "gallbladder", "liver", "stomach", "pancreas",
    "lung_lower_lobe_left", "lung_lower_lobe_right", "esophagus", "small_bowel", "duodenum",
    "colon", "urinary_bladder", "sacrum", "vertebrae_L3", "heart", "aorta", "inferior_vena_cava",
)  # fmt: skip


@pytest.fixture(scope="module")
def ill(patients: list[Patient]) -> list[Patient]:
    return [p for p in patients if p.lesions]


def centroid(labels: Volume, name: str) -> np.ndarray:
    index = np.argwhere(labels.voxels == TOTALSEGMENTATOR.index(name)).mean(0)
    return labels.affine[:3, :3] @ index + labels.affine[:3, 3]


def volumes_ml(patient: Patient) -> np.ndarray:
    counts = np.bincount(patient.labels.voxels.ravel(), minlength=118)
    return counts * np.prod(patient.ct.spacing) / 1000


# ---------------------------------------------------------------- the scan


def test_same_seed_same_bytes(patients):
    seed = next(p.seed for p in patients if p.lesions and p.findings)
    again, first = make_patient(seed), patients[seed]
    for name in ("ct", "labels", "lesion_map", "other_map"):
        one, other = getattr(again, name), getattr(first, name)
        assert one.voxels.tobytes() == other.voxels.tobytes()
        assert np.array_equal(one.affine, other.affine)
    assert (again.lesions, again.findings, again.body) == (
        first.lesions,
        first.findings,
        first.body,
    )
    assert patients[0].ct.voxels.tobytes() != patients[1].ct.voxels.tobytes()


def test_volumes_are_ct_and_totalsegmentator_ids(patients):
    for p in patients:
        assert p.ct.voxels.dtype == np.float32
        assert p.labels.voxels.dtype == p.lesion_map.voxels.dtype == np.uint8
        assert p.other_map.voxels.dtype == np.uint8
        assert p.ct.shape == p.labels.shape == p.lesion_map.shape == p.other_map.shape
        assert np.array_equal(p.ct.affine, p.labels.affine)
        assert -1024 <= p.ct.voxels.min() < -900 < 200 < p.ct.voxels.max() <= 3071
        assert p.labels.voxels.max() < len(TOTALSEGMENTATOR)
        assert nib.aff2axcodes(p.ct.affine) == ("R", "A", "S")
        assert 2.5 < p.ct.spacing[0] < 4
        assert 1 <= p.ct.spacing[2] <= 5
        assert np.abs(p.ct.voxels - np.rint(p.ct.voxels)).max() == 0
        assert f"patient {p.seed}" in p.ct.source
        assert "made up" in p.synthetic


def test_patients_differ_in_slices_phase_and_field_of_view(made):
    assert len({each.patient.ct.spacing[2] for each in made}) >= 3
    assert {each.patient.body.phase for each in made} == set(PHASES)
    assert {each.whole for each in made} == {True, False}


def test_every_organ_is_there_and_of_plausible_size(made):
    whole = [each.patient for each in made if each.whole]
    assert whole
    for p in whole:
        ml = volumes_ml(p)
        for name in TRUNK:
            assert ml[TOTALSEGMENTATOR.index(name)] > 5, (p.seed, name)
        assert 600 < ml[TOTALSEGMENTATOR.index("liver")] < 2500
        assert 60 < ml[TOTALSEGMENTATOR.index("kidney_left")] < 300
        spleen = ml[TOTALSEGMENTATOR.index("spleen")]
        assert (300 if p.body.cirrhosis else 60) < spleen < (1500 if p.body.cirrhosis else 450)


HU_RANGES = {  # arterial, portal venous, delayed
    "liver": ((50, 110), (80, 140), (65, 125)),
    "spleen": ((105, 165), (90, 150), (70, 130)),
    "kidney_left": ((105, 195), (125, 215), (110, 200)),
    "aorta": ((220, 340), (75, 185), (45, 165)),
    "inferior_vena_cava": ((50, 130), (100, 180), (80, 160)),
    "pancreas": ((75, 145), (60, 130), (45, 115)),
    "lung_lower_lobe_right": ((-920, -700),) * 3,
    "vertebrae_L3": ((120, 420),) * 3,
    "urinary_bladder": ((-20, 40),) * 3,
    "gallbladder": ((-20, 60),) * 3,
}


@pytest.mark.parametrize("name", HU_RANGES)
def test_organs_have_the_hu_of_their_phase(patients, name):
    for p in patients:
        free = (p.lesion_map.voxels == 0) & (p.other_map.voxels == 0)
        own = (p.labels.voxels == TOTALSEGMENTATOR.index(name)) & free
        if not own.any():  # cut off
            continue
        low, high = HU_RANGES[name][PHASES.index(p.body.phase)]
        swollen = name == "pancreas" and p.body.swelling
        assert low - 25 * swollen < np.median(p.ct.voxels[own]) < high - 25 * swollen


def test_noise_differs_between_patients_and_stays_in_range(patients):
    sd = []
    for p in patients:
        if p.body.cirrhosis:
            continue
        free = (p.lesion_map.voxels == 0) & (p.other_map.voxels == 0)
        liver = ndimage.binary_erosion((p.labels.voxels == 5) & free)
        # Neighbours along z share no noise: the texture of the organ cancels.
        pair = liver[..., 1:] & liver[..., :-1]
        sd.append(np.diff(p.ct.voxels, axis=2)[pair].std() / 2**0.5)
    assert 7 < min(sd) < max(sd) < 24
    assert max(sd) - min(sd) > 3


def test_organs_lie_as_in_a_real_patient(made, real):
    pairs = [
        ("liver", "spleen"), ("kidney_right", "kidney_left"), ("gallbladder", "stomach"),
        ("stomach", "vertebrae_L1"), ("colon", "vertebrae_L3"), ("aorta", "inferior_vena_cava"),
        ("liver", "urinary_bladder"), ("pancreas", "kidney_left"), ("vertebrae_L1", "vertebrae_L5"),
    ]  # fmt: skip
    true = {(a, b): centroid(real[1], a) - centroid(real[1], b) for a, b in pairs}
    for p in (each.patient for each in made if each.whole):
        for a, b in pairs:
            found = centroid(p.labels, a) - centroid(p.labels, b)
            clear = np.abs(true[a, b]) > 25
            assert np.array_equal(np.sign(found[clear]), np.sign(true[a, b][clear])), (a, b, found)


# ---------------------------------------------------------------- the tumour and its truth


def test_lesions_lie_in_one_organ_and_are_told_truly(patients):
    for p in patients:
        assert p.lesion_map.voxels.max() == len(p.lesions)
        for n, lesion in enumerate(p.lesions, start=1):
            mask = p.lesion_map.voxels == n
            index = np.argwhere(mask)
            assert lesion.organ == p.lesions[0].organ
            assert lesion.organ in DIGESTIVE
            assert (p.labels.voxels[mask] == lesion.organ).all()
            assert lesion.voxels == len(index) >= 8
            assert ndimage.label(mask)[1] == 1
            centre = p.ct.affine[:3, :3] @ index.mean(0) + p.ct.affine[:3, 3]
            np.testing.assert_allclose(lesion.centre_mm, centre, atol=1e-6)
            # The farthest voxel centres lie one voxel less than the diameter apart.
            mm = index * p.ct.spacing
            farthest = pdist(mm[ConvexHull(mm).vertices]).max()
            assert farthest < lesion.diameter_mm < farthest + 1.1 * max(p.ct.spacing)
            assert lesion.density in DENSITIES
            assert lesion.shape in SHAPES
            assert lesion.border in BORDERS
            assert lesion.other in OTHERS[lesion.organ]
            assert lesion.depth in (DEPTHS if lesion.organ in HOLLOW else (None,))


def test_lesion_is_told_to_be_in_the_part_that_holds_its_centre(made):
    for each in made:
        p = each.patient
        for organ in {lesion.organ for lesion in p.lesions}:
            parts = segment_map(Volume(each.healthy, p.labels.affine), organ)
            for lesion in p.lesions:
                part = segment_at(parts, p.labels.affine, lesion.centre_mm)
                assert lesion.segment == SEGMENTS[organ][part - 1]


def test_mass_bulges_into_fat_alone(made):
    bulging = 0
    for p, _, sharp, healthy in made:
        changed = p.labels.voxels != healthy
        bulging += np.count_nonzero(changed)
        assert (p.lesion_map.voxels[changed] > 0).all()
        assert (healthy[changed] == 0).all()
        assert (sharp[changed] == FAT_HU).all()
    assert bulging > 0


def test_healthy_have_neither_nodes_nor_metastases(patients):
    for p in patients:
        if not p.lesions:
            assert not p.lesion_map.voxels.any()
            assert {f.kind for f in p.findings}.isdisjoint({NODE, METASTASIS})
            assert p.extent is None


def test_organ_that_is_cut_off_is_never_ill(patients, monkeypatch):
    seed = next(p.seed for p in patients if p.lesions)
    for p in patients:
        for lesion in p.lesions:
            assert volumes_ml(p)[lesion.organ] >= SHOWN_ML[lesion.organ]
    for shown in (6, 20):
        least = {organ: 0.0 if organ == shown else 1e9 for organ in SHOWN_ML}
        monkeypatch.setattr(patient, "SHOWN_ML", least)
        assert {lesion.organ for lesion in make_patient(seed).lesions} == {shown}
    monkeypatch.setattr(patient, "SHOWN_ML", dict.fromkeys(SHOWN_ML, 1e9))
    nothing = make_patient(seed)
    assert nothing.lesions == ()
    assert nothing.extent is None


def test_extent_is_what_the_maps_show_and_the_stage_follows_the_tables(ill):
    for p in ill:
        e = p.extent
        assert e.organ == p.lesions[0].organ
        assert e.diameters_mm == tuple(lesion.diameter_mm for lesion in p.lesions)
        depths = [lesion.depth for lesion in p.lesions if lesion.depth]
        assert e.depth == (max(depths, key=("wall", "fat", "surface").index) if depths else "wall")
        assert e.nodes == len([f for f in p.findings if f.kind == NODE])
        sites = {11 if f.organ in (11, 14) else f.organ for f in p.findings if f.kind == METASTASIS}
        assert e.metastases == sites
        t, n, m = stage(e)
        assert (n == "N0") == (e.nodes == 0)
        assert (m == "M0") == (not sites)
        if e.organ in HOLLOW:
            assert t == {"wall": "T2", "fat": "T3", "surface": "T4a"}[e.depth]
        assert truth(p)["stage"] == (t, n, m)


def test_lungs_are_one_site_of_metastases(ill):
    p = ill[0]
    place = (0.0, 0.0, 0.0)
    both = tuple(Finding(METASTASIS, "metastasis", lung, 15.0, place) for lung in (11, 14))
    liver = Finding(METASTASIS, "metastasis", 5, 15.0, place)
    node = Finding(NODE, "lymph node", 20, 15.0, place)
    extent = replace(p, findings=(*both, node)).extent
    assert extent == replace(p.extent, nodes=1, metastases=frozenset({11}))
    assert replace(p, findings=(*both, liver)).extent.metastases == {5, 11}


# ---------------------------------------------------------------- on disk


def test_written_patient_reads_back(tmp_path, ill):
    p = next(p for p in ill if p.findings)
    ct_path, labels_path = write_patient(p, tmp_path / "new")
    for path, volume in (
        (ct_path, p.ct),
        (labels_path, p.labels),
        (ct_path.with_name("lesions.nii.gz"), p.lesion_map),
        (ct_path.with_name("others.nii.gz"), p.other_map),
    ):
        image = nib.load(path)
        assert np.array_equal(np.asarray(image.dataobj), volume.voxels)
        np.testing.assert_allclose(image.affine, volume.affine, atol=1e-4)
    assert nib.load(ct_path).get_data_dtype() == np.int16
    told = json.loads((tmp_path / "new" / "truth.json").read_text())
    assert told["seed"] == p.seed
    assert told["synthetic"] == p.synthetic
    assert told["body"] == {
        "phase": p.body.phase, "cirrhosis": p.body.cirrhosis, "swelling": p.body.swelling,
    }  # fmt: skip
    assert [t["voxels"] for t in told["lesions"]] == [lesion.voxels for lesion in p.lesions]
    assert told["lesions"][0]["size"] == p.lesions[0].size
    assert set(told["lesions"][0]) >= {"organ", "segment", "density", "shape", "border", "other"}
    assert [(f["kind"], f["organ"]) for f in told["findings"]] == [
        (f.kind, f.organ) for f in p.findings
    ]
    assert tuple(told["stage"]) == stage(p.extent)
    names = {"ct.nii.gz", "labels.nii.gz", "lesions.nii.gz", "others.nii.gz", "truth.json"}
    assert {f.name for f in (tmp_path / "new").iterdir()} == names


def test_truth_of_the_healthy_has_no_stage(patients):
    healthy = truth(next(p for p in patients if not p.lesions))
    assert healthy["lesions"] == []
    assert healthy["stage"] is None


def test_broken_write_leaves_no_half_file(tmp_path, patients, monkeypatch):
    def broken(image, path):
        Path(path).write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(patient.nib, "save", broken)
    with pytest.raises(OSError, match="disk full"):
        write_patient(patients[0], tmp_path)
    assert not (tmp_path / "ct.nii.gz").exists()
    assert not (tmp_path / "truth.json").exists()
