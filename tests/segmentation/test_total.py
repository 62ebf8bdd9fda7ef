"""TotalSegmentator's steps around a network; the networks here are rules."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from nibabel.orientations import axcodes2ornt
from scipy import ndimage

from tumorchain_jax.anatomy.organs import TOTALSEGMENTATOR
from tumorchain_jax.scan.orientation import reorient
from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.segmentation import total
from tumorchain_jax.segmentation.cache import SegmentationCache
from tumorchain_jax.segmentation.total import TOTAL_MODELS, OrganModel, TotalSegmenter


def scan(shape: tuple[int, int, int], spacing: float = 1.5, axes: str = "RAS") -> Volume:
    """Smooth, different everywhere, and of no symmetry."""
    x, y, z = np.meshgrid(*(np.linspace(0, 1, n) for n in shape), indexing="ij")
    voxels = np.rint(700 * x - 400 * y * y + 150 * z).astype(np.float32)
    affine = np.diag([spacing, spacing, spacing, 1.0])
    affine[:3, 3] = (-100, 20, 300)
    return reorient(Volume(voxels, affine, "made.nii.gz"), axcodes2ornt(tuple(axes)))


def part(number: int, rule: Callable[[np.ndarray], np.ndarray], seen: list[Volume]) -> OrganModel:
    """A part of `total` that labels by a rule of the HU, and keeps what it was given."""

    def predict(given: Volume) -> Volume:
        seen.append(given)
        return Volume(rule(given.voxels).astype(np.uint8), given.affine)

    return OrganModel(
        f"part {number}", (0, *TOTAL_MODELS[number]), predict, lambda: f"weights {number}"
    )


def segmenter(seen: list[Volume], numbers: Sequence[int] = tuple(TOTAL_MODELS)) -> TotalSegmenter:
    """Every part labels what lies over its own threshold as its second organ."""
    parts = [part(n, lambda hu, n=n: 2 * (hu > 100 * (n - 290)), seen) for n in numbers]
    return TotalSegmenter("stand-in", tuple(parts), 1.5)


def test_parts_are_those_of_total() -> None:
    assert [number for ids in TOTAL_MODELS.values() for number in ids] == list(range(1, 118))
    firsts = [TOTALSEGMENTATOR[ids[0]] for ids in TOTAL_MODELS.values()]
    assert firsts == ["spleen", "sacrum", "heart", "humerus_left", "rib_left_1"]


def test_names_are_totalsegmentators_own(shared_data: Path) -> None:
    names = json.loads((shared_data / "ct-totalsegmentator" / "class_map.json").read_text())
    assert list(TOTALSEGMENTATOR[1:]) == list(names["total"].values())
    assert [int(number) for number in names["total"]] == list(range(1, 118))


def test_later_part_overwrites_an_earlier_one() -> None:
    ct, seen = scan((20, 18, 16)), []
    found = segmenter(seen)(ct, None)
    expected = np.zeros(ct.shape, np.uint8)
    for number, ids in TOTAL_MODELS.items():
        expected[ct.voxels > 100 * (number - 290)] = ids[1]
    np.testing.assert_array_equal(found.voxels, expected)
    assert found.voxels.dtype == np.uint8
    assert len(np.unique(expected)) == 6
    assert len(seen) == 5
    assert all(given is seen[0] for given in seen), "the scan is brought to the grid once"


@pytest.mark.parametrize("axes", ["RAS", "LPS", "PIR", "SLA"])
def test_networks_see_ras_and_labels_come_back(axes: str) -> None:
    ct, seen = scan((20, 18, 16), axes=axes), []
    found = segmenter(seen)(ct, ["kidney_right"])
    np.testing.assert_array_equal(seen[0].voxels, scan((20, 18, 16)).voxels)
    np.testing.assert_allclose(seen[0].affine, scan((20, 18, 16)).affine)
    np.testing.assert_array_equal(found.voxels, np.where(ct.voxels > 100, 2, 0))
    np.testing.assert_array_equal(found.affine, ct.affine)


def test_only_the_parts_of_the_organs_asked_for_run() -> None:
    ct, seen = scan((20, 18, 16)), []
    found = segmenter(seen)(ct, ["aorta", "vertebrae_S1", "liver"])
    assert len(seen) == 3
    assert set(np.unique(found.voxels)) == {0, 26, 52}, "kidney_right was not asked for"
    assert not segmenter(seen)(ct, []).voxels.any()
    assert len(seen) == 3


def test_scan_is_resampled_as_totalsegmentator_does() -> None:
    ct, seen = scan((21, 18, 15), spacing=2.2), []
    segmenter(seen, [291])(ct)
    zoom = np.float64(np.float32(2.2)) / 1.5
    fine = ndimage.zoom(ct.voxels.astype(np.float64), zoom, order=1, mode="nearest")
    np.testing.assert_array_equal(seen[0].voxels, fine.astype(np.int32))
    assert seen[0].shape == (31, 26, 22)
    np.testing.assert_allclose(seen[0].spacing, 1.5)
    np.testing.assert_allclose(seen[0].affine[:3, 3], ct.affine[:3, 3])
    cubic = total.to_spacing(ct, 1.5, 3).voxels
    assert 0 < np.abs(cubic - seen[0].voxels).max() < 50


def test_labels_go_back_to_the_nearest_voxel() -> None:
    ct, seen = scan((24, 20, 16), spacing=3.0), []
    found = segmenter(seen, [291])(ct).voxels
    assert seen[0].shape == (48, 40, 32)
    fine = np.where(seen[0].voxels > 100, 2, 0)
    nearest = [np.rint(np.arange(n) * (2 * n - 1) / (n - 1)).astype(int) for n in ct.shape]
    np.testing.assert_array_equal(found, fine[np.ix_(*nearest)])


def test_scan_of_the_right_spacing_is_not_touched() -> None:
    ct = scan((12, 12, 12))
    halves = Volume(ct.voxels + np.float32(0.5), ct.affine)
    assert total.to_spacing(halves, 1.5, 1) is halves
    assert total.labels_to_shape(ct.voxels, ct.shape) is ct.voxels


def test_long_scan_is_labelled_in_thirds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(total, "LARGE_VOXELS", 9 * 8 * 220)
    ct, seen = scan((9, 8, 221)), []
    several = segmenter(seen, [291, 292])
    found = several(ct, ["liver", "kidney_right"])
    assert [given.shape[2] for given in seen] == [93, 112, 94]
    np.testing.assert_array_equal(found.voxels, np.where(ct.voxels > 100, 2, 0))
    for given, start in zip(seen, (0, 54, 127), strict=True):
        np.testing.assert_array_equal(given.voxels, ct.voxels[:, :, start : start + given.shape[2]])
        np.testing.assert_allclose(given.affine[2, 3], ct.affine[2, 3] + 1.5 * start)
    seen.clear()
    segmenter(seen, [291])(ct)
    several(scan((9, 8, 200)), ["liver"])
    assert [given.shape[2] for given in seen] == [221, 200], "one model, or not large: whole"


def test_organs_found_are_cached(tmp_path: Path) -> None:
    ct, seen = scan((20, 18, 16), axes="LPS"), []
    cache = SegmentationCache(tmp_path)
    kept = TotalSegmenter("stand-in", segmenter(seen).models, 1.5, cache=cache)
    first = kept(ct, ["liver", "kidney_right"])
    again = kept(ct, ["kidney_right"])
    np.testing.assert_array_equal(first.voxels, again.voxels)
    assert len(seen) == 1
    everything = kept(ct)
    assert len(seen) == 5, "the first part was kept"
    np.testing.assert_array_equal(everything.voxels, segmenter([])(ct).voxels)
    TotalSegmenter("stand-in", kept.models, 3.0, cache=cache)(ct, ["liver"])
    TotalSegmenter("stand-in", kept.models, 1.5, 3, cache=cache)(ct, ["liver"])
    other = Volume(ct.voxels, ct.affine + np.eye(4)[[0, 1, 3, 2]] * 0.5)
    kept(Volume(ct.voxels, np.diag([1.5, 1.5, 1.5, 1.0])), ["liver"])
    assert not np.allclose(other.affine, ct.affine)
    assert len(seen) == 8, "another spacing, order or place is another scan"


def test_example_comes_back_on_its_own_grid(shared_data: Path) -> None:
    """A network that is right at 1.5 mm loses only what lies between the grids."""
    folder = shared_data / "ct-totalsegmentator"
    image, truth = (
        nib.load(folder / "example_ct_sm.nii.gz"),
        nib.load(folder / "example_seg_fast.nii.gz"),
    )
    labels = np.asarray(truth.dataobj).astype(np.uint8)
    ct = Volume(np.asarray(image.dataobj).astype(np.float32), image.affine)

    def predict(given: Volume) -> Volume:
        return Volume(total.labels_to_shape(labels, given.shape), given.affine)

    one = OrganModel("all", tuple(range(118)), predict, lambda: "truth")
    found = TotalSegmenter("truth", (one,), 1.5)(ct)
    assert (found.voxels == labels).mean() > 0.999


def test_cached_labels_with_ids_of_no_organ_are_made_again(tmp_path: Path) -> None:
    ct, seen = scan((20, 18, 16)), []
    cache = SegmentationCache(tmp_path)
    cached = TotalSegmenter("stand-in", segmenter(seen, [291]).models, 1.5, cache=cache)
    first = cached(ct)
    (file,) = tmp_path.iterdir()
    for bad in (200, 100):  # of no organ; of another model's
        cache.put(file.stem, np.where(first.voxels > 0, bad, 0).astype(np.uint8))
        np.testing.assert_array_equal(cached(ct).voxels, first.voxels)
    assert len(seen) == 3
