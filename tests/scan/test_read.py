from itertools import permutations, product
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.scan.read import (
    align_labels,
    check_ct,
    check_mask,
    from_array,
    from_nibabel,
    read_ct,
    read_labels,
)
from tumorchain_jax.scan.volume import Volume

AFFINE = np.array([[-2.0, 0, 0, 30], [0, 3.0, 0, -20], [0, 0, 2.5, 10], [0, 0, 0, 1]])
SHAPE = (12, 10, 9)


@pytest.fixture
def ct() -> Volume:
    voxels = np.linspace(-1000, 900, np.prod(SHAPE)).astype(np.float32).reshape(SHAPE)
    return Volume(voxels, AFFINE, "scan.nii.gz")


def labels_of(ct: Volume) -> np.ndarray:
    return (np.arange(np.prod(SHAPE)) % 118).reshape(SHAPE)


def save(path: Path, voxels: np.ndarray, affine: np.ndarray = AFFINE) -> Path:
    nib.Nifti1Image(voxels, affine).to_filename(path)
    return path


def refused(call, field: str, *words: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    line = str(caught.value)
    assert caught.value.field == field, line
    assert "\n" not in line
    for word in words:
        assert word in line


@pytest.mark.parametrize("name", ["gone.nii.gz", "gone", "x" * 300 + ".nii"])
def test_no_such_scan(tmp_path, name):
    refused(lambda: read_ct(tmp_path / name), "path", name)


def test_other_file_types(tmp_path):
    (tmp_path / "scan.nrrd").write_bytes(b"NRRD0004")
    refused(lambda: read_ct(str(tmp_path / "scan.nrrd")), "file type", ".nrrd", ".nii.gz")
    (tmp_path / "scan").write_bytes(b"")
    refused(lambda: read_ct(tmp_path / "scan"), "file type", "no suffix")


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.float32, np.float64])
def test_labels_are_read(tmp_path, ct, dtype):
    expected = labels_of(ct)
    labels = read_labels(save(tmp_path / "mask.nii.gz", expected.astype(dtype)), ct)
    np.testing.assert_array_equal(labels.voxels, expected)
    assert labels.voxels.dtype == np.uint8
    assert check_mask(labels, ct) == ()


@pytest.mark.parametrize("axes", list(permutations(range(3))))
def test_labels_in_another_axis_order_are_brought_back(tmp_path, ct, axes):
    expected = labels_of(ct).astype(np.uint8)
    for flips in product([1, -1], repeat=3):
        change = np.zeros((4, 4))
        change[3, 3] = 1
        for new, old in enumerate(axes):
            change[old, new] = flips[new]
            change[old, 3] = 0 if flips[new] == 1 else SHAPE[old] - 1
        stored = expected.transpose(axes)[tuple(slice(None, None, flip) for flip in flips)]
        path = save(tmp_path / "mask.nii.gz", stored, AFFINE @ change)
        labels = read_labels(path, ct)
        np.testing.assert_array_equal(labels.voxels, expected)
        np.testing.assert_array_equal(labels.affine, ct.affine)


def with_value(ct: Volume, value: float) -> np.ndarray:
    voxels = labels_of(ct).astype(np.float32)
    voxels[1, 2, 3] = value
    return voxels


@pytest.mark.parametrize(
    ("value", "word"), [(300, "300"), (118, "118"), (-1, "-1"), (0.5, "0.5"), (np.nan, "nan")]
)
def test_values_that_are_no_labels(tmp_path, ct, value, word):
    path = save(tmp_path / "mask.nii.gz", with_value(ct, value))
    refused(lambda: read_labels(path, ct), "labels", str(path), word, "117")
    if float(value).is_integer():
        save(path, with_value(ct, value).astype(np.int16))
        refused(lambda: read_labels(path, ct), "labels", str(path), word, "117")


def test_labels_of_another_shape(tmp_path, ct):
    path = save(tmp_path / "mask.nii.gz", np.ones((12, 10, 10), np.uint8))
    refused(lambda: read_labels(path, ct), "dim", "(12, 10, 10)", "(12, 10, 9)", "scan.nii.gz")


@pytest.mark.parametrize("change", ["shift", "spacing", "mirror", "turn", "axes"])
def test_labels_on_another_grid(tmp_path, ct, change):
    affine = AFFINE.copy()
    if change == "shift":
        affine[2, 3] += 0.5
    elif change == "spacing":
        affine[0, 0] = -2.1
    elif change == "mirror":
        affine[0, 0] = 2.0
    elif change == "turn":
        affine[:2, :2] = [[np.cos(0.1), -np.sin(0.1)], [np.sin(0.1), np.cos(0.1)]] @ AFFINE[:2, :2]
    voxels = np.ones(SHAPE, np.uint8)
    field = "affine"
    if change == "axes":
        voxels, field = voxels.transpose(1, 0, 2), "dim"
    path = save(tmp_path / "mask.nii.gz", voxels, affine)
    refused(lambda: read_labels(path, ct), field, str(path), "CT's")


def test_an_affine_apart_by_rounding_is_the_same_grid(tmp_path, ct):
    affine = AFFINE + 1e-4
    affine[3] = (0, 0, 0, 1)
    labels = read_labels(save(tmp_path / "mask.nii.gz", labels_of(ct).astype(np.uint8), affine), ct)
    np.testing.assert_array_equal(labels.voxels, labels_of(ct))


def test_an_empty_label_map_is_a_warning(tmp_path, ct):
    labels = read_labels(save(tmp_path / "mask.nii.gz", np.zeros(SHAPE, np.uint8)), ct)
    (warning,) = check_mask(labels, ct)
    assert "empty" in warning


def test_from_array(ct):
    for dtype in (np.int16, np.float64):
        volume = from_array(ct.voxels.astype(dtype), AFFINE.astype(np.float32))
        np.testing.assert_array_equal(volume.voxels, ct.voxels.astype(dtype).astype(np.float32))
        assert check_ct(volume) == ()
    labels = from_array(labels_of(ct)[..., None], AFFINE)
    np.testing.assert_array_equal(align_labels(labels, ct).voxels, labels_of(ct))


def test_from_array_refuses(ct):
    refused(lambda: from_array(ct.voxels[0], AFFINE), "dim", "2D")
    refused(lambda: from_array(np.stack([ct.voxels] * 2, -1), AFFINE), "dim", "4D")
    refused(lambda: from_array(ct.voxels[:0], AFFINE), "dim", "0 x 10 x 9")
    refused(lambda: from_array(ct.voxels * 1j, AFFINE), "datatype", "complex")
    refused(lambda: from_array(ct.voxels > 0, AFFINE), "datatype", "bool")
    refused(lambda: from_array(ct.voxels, AFFINE[:3]), "affine", "(3, 4)")
    refused(lambda: from_array(ct.voxels, AFFINE * np.nan), "affine", "NaN")
    refused(lambda: from_array(ct.voxels, AFFINE + 1), "affine", "last row")
    refused(lambda: from_array(ct.voxels, np.diag([0.0, 1, 1, 1])), "affine", "spacing 0")


def test_from_nibabel(tmp_path, ct):
    path = save(tmp_path / "scan.nii.gz", ct.voxels)
    for image in (nib.Nifti1Image(ct.voxels, AFFINE), nib.load(path)):
        volume = from_nibabel(image)
        np.testing.assert_array_equal(volume.voxels, ct.voxels)
        np.testing.assert_array_equal(volume.affine, AFFINE)
    assert volume.source == str(path)


def test_from_nibabel_refuses(tmp_path, ct):
    refused(lambda: from_nibabel(nib.Nifti1Image(ct.voxels, None)), "affine", "none")
    refused(lambda: from_nibabel(nib.Nifti1Image(ct.voxels[0], AFFINE)), "dim", "2D")
    image = nib.Nifti1Image(ct.voxels * 1j, AFFINE, dtype=np.complex64)
    refused(lambda: from_nibabel(image), "datatype", "complex64")
    path = save(tmp_path / "scan.nii.gz", ct.voxels)
    path.write_bytes(path.read_bytes()[:-200])
    refused(lambda: from_nibabel(nib.load(path)), "data", str(path))


@pytest.mark.parametrize("name", ["example_ct", "example_ct_sm"])
def test_organs_have_their_density(shared_data, name):
    folder = shared_data / "ct-totalsegmentator"
    mask = {"example_ct": "example_seg_fast_force_split", "example_ct_sm": "example_seg"}[name]
    ct = read_ct(folder / f"{name}.nii.gz")
    labels = read_labels(folder / f"{mask}.nii.gz", ct)
    mean = {label: ct.voxels[labels.voxels == label].mean() for label in (1, 5, 11, 14)}
    assert 20 < mean[1] < 80  # spleen, no contrast agent
    assert 30 < mean[5] < 80  # liver
    assert -900 < mean[11] < -600  # left lung
    assert -900 < mean[14] < -600  # right lung


def test_the_mask_of_another_scan_is_refused(shared_data):
    folder = shared_data / "ct-totalsegmentator"
    ct = read_ct(folder / "example_ct.nii.gz")
    refused(lambda: read_labels(folder / "example_seg.nii.gz", ct), "dim", "example_ct.nii.gz")


def test_other_formats_say_how_to_convert(tmp_path):
    for name in ("scan.nrrd", "scan.mha", "SCAN.MHD"):
        (tmp_path / name).write_bytes(b"NRRD0004")
        refused(lambda name=name: read_ct(tmp_path / name), "file type", "SimpleITK", ".zip")


def test_folder_of_nifti_files_names_one_of_them(tmp_path, ct):
    (tmp_path / "a").mkdir()
    refused(lambda: read_ct(tmp_path), "files", "1 folder(s)", str(tmp_path / "a"))
    path = save(tmp_path / "a" / "ct.nii.gz", ct.voxels)
    refused(lambda: read_ct(tmp_path), "files", "NIfTI files", f"as {path}")
    refused(lambda: read_ct(tmp_path / "a"), "files", "NIfTI files", f"as {path}")
