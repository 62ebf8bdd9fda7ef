import gzip
import tracemalloc
from contextlib import suppress
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from nibabel.nifti1 import header_dtype

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.scan.read import check_ct, read_ct

AFFINE = np.array([[-2.0, 0, 0, 30], [0, 0, 3.0, -20], [0, 2.5, 0, 10], [0, 0, 0, 1]])


def hu(shape=(12, 10, 9)):
    """Air, soft tissue and bone, every voxel different."""
    return np.linspace(-1000, 900, np.prod(shape)).astype(np.int16).reshape(shape)


def write(path: Path, voxels=None, affine=AFFINE, image=nib.Nifti1Image, **fields) -> Path:
    """A NIfTI file; `fields` are then written into its raw header: a value, or index -> value."""
    plain = path.with_name("plain.nii")
    image(hu() if voxels is None else voxels, affine).to_filename(plain)
    data = bytearray(plain.read_bytes())
    plain.unlink()
    header = np.ndarray((), header_dtype, buffer=data)
    for field, value in fields.items():
        for index, number in value.items() if isinstance(value, dict) else [((), value)]:
            header[field][index] = number
    path.write_bytes(gzip.compress(bytes(data)) if path.suffix == ".gz" else data)
    return path


def refused(path: Path, field: str, *words: str) -> str:
    with pytest.raises(InputError) as caught:
        read_ct(path)
    line = str(caught.value)
    assert caught.value.field == field, line
    assert "\n" not in line
    for word in (str(path), *words):
        assert word in line
    return line


@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz", "A.NII.GZ"])
@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.float32, np.float64, ">i2", ">f4"])
def test_voxels_and_affine_are_read(tmp_path, name, dtype):
    ct = read_ct(write(tmp_path / name, hu().astype(dtype)))
    np.testing.assert_array_equal(ct.voxels, hu())
    np.testing.assert_allclose(ct.affine, AFFINE, atol=1e-6)
    assert ct.voxels.dtype == np.float32
    assert ct.source == str(tmp_path / name)


def test_nifti_2_and_big_endian_headers(tmp_path):
    nib.Nifti2Image(hu(), AFFINE).to_filename(tmp_path / "two.nii.gz")
    big = nib.Nifti1Image(hu(), AFFINE, nib.Nifti1Header(endianness=">"))
    big.to_filename(tmp_path / "big.nii.gz")
    for name in ("two.nii.gz", "big.nii.gz"):
        np.testing.assert_array_equal(read_ct(tmp_path / name).voxels, hu())


@pytest.mark.parametrize("packing", ["named .gz, not packed", "packed, not named .gz"])
def test_content_decides_about_packing(tmp_path, packing):
    plain, packed = write(tmp_path / "a.nii"), write(tmp_path / "b.nii.gz")
    source = plain if packing.startswith("named") else packed
    target = tmp_path / ("c.nii.gz" if source == plain else "c.nii")
    np.testing.assert_array_equal(read_ct(source.rename(target)).voxels, hu())


@pytest.mark.parametrize(
    ("slope", "inter", "factor", "shift"),
    [(0.5, -24, 0.5, -24), (0, 7, 1, 0), (np.nan, 7, 1, 0), (1, -24, 1, -24)],
)
def test_scaling(tmp_path, slope, inter, factor, shift):
    path = write(tmp_path / "a.nii.gz", scl_slope=slope, scl_inter=inter)
    np.testing.assert_allclose(read_ct(path).voxels, hu() * factor + shift)


def test_qform_places_a_scan_without_sform(tmp_path):
    image = nib.Nifti1Image(hu(), None)
    image.set_qform(AFFINE, code=1)
    image.set_sform(None, code=0)
    image.to_filename(tmp_path / "a.nii")
    np.testing.assert_allclose(read_ct(tmp_path / "a.nii").affine, AFFINE, atol=1e-5)


def both_forms(path: Path, qform: np.ndarray) -> Path:
    image = nib.Nifti1Image(hu(), AFFINE)
    image.set_sform(AFFINE, code=1)
    image.set_qform(qform, code=1)
    image.to_filename(path)
    return path


@pytest.mark.parametrize("flip", [np.diag([-1, 1, 1, 1]), np.diag([1, -1, -1, 1])])
def test_sform_and_qform_that_contradict_each_other(tmp_path, flip):
    line = refused(both_forms(tmp_path / "a.nii.gz", flip @ AFFINE), "sform/qform")
    assert "turned by 180 degrees" in line


def test_sform_and_qform_that_agree(tmp_path):
    moved = AFFINE + np.eye(4)[:, [0, 0, 0, 0]] * [0, 0, 0, 7]
    turn = np.eye(4)
    turn[:2, :2] = [[np.cos(0.01), -np.sin(0.01)], [np.sin(0.01), np.cos(0.01)]]
    for qform in (AFFINE, moved, turn @ AFFINE):
        np.testing.assert_allclose(read_ct(both_forms(tmp_path / "a.nii", qform)).affine, AFFINE)


@pytest.mark.parametrize("packing", ["a.nii", "a.nii.gz"])
def test_rows_after_the_last_slice(tmp_path, packing):
    refused(write(tmp_path / packing, dim={3: 8}), "data", "after the last slice")


def test_slope_nan_is_said(tmp_path):
    (warning,) = read_ct(write(tmp_path / "a.nii", scl_slope=np.nan)).warnings
    assert warning.startswith("scl_slope is NaN")


def test_trailing_axis_of_one_is_no_axis(tmp_path):
    assert read_ct(write(tmp_path / "a.nii", hu()[..., None])).shape == (12, 10, 9)


# Files that hold a header and not one voxel: what is named was found before any voxel was read.
HEADER_FAULTS = {
    "2D": ({"dim": {0: 2}}, "dim", "2D"),
    "4D": ({"dim": {0: 4, 4: 3}}, "dim", "4D"),
    "zero dimension": ({"dim": {3: 0}}, "dim", "12 x 10 x 0"),
    "negative dimension": ({"dim": {2: -10}}, "dim", "12 x -10 x 9"),
    "no axes": ({"dim": {0: 0}}, "dim", "0 axes"),
    "too many axes": ({"dim": {0: 30}}, "dim", "30 axes"),
    "one slice": ({"dim": {3: 1}}, "dim", "8 to 4096"),
    "32767^3": ({"dim": {1: 32767, 2: 32767, 3: 32767}}, "dim", "4096"),
    "2048^3": ({"dim": {1: 2048, 2: 2048, 3: 2048}}, "dim", "at most"),
    "1000^3": ({"dim": {1: 1000, 2: 1000, 3: 1000}}, "data", "2000000352 bytes"),
    "RGB": ({"datatype": 128}, "datatype", "colours"),
    "no datatype": ({"datatype": 0}, "datatype", "integers or floats"),
    "complex": ({"datatype": 32}, "datatype", "complex64"),
    "unknown datatype": ({"datatype": 999}, "datatype", "code 999"),
    "spacing 0": ({"pixdim": {2: 0}}, "pixdim", "2 x 0 x 3 mm"),
    "spacing NaN": ({"pixdim": {2: np.nan}}, "pixdim", "nan"),
    "spacing negative": ({"pixdim": {1: -2}}, "pixdim", "-2"),
    "spacing in metres": ({"pixdim": {1: 0.002}}, "pixdim", "0.002"),
    "no frame": ({"sform_code": 0, "qform_code": 0}, "affine", "qform_code 0"),
    "singular": ({"srow_x": {1: 2.0}, "srow_z": {1: 0}}, "affine", "singular"),
    "zero column": ({"srow_x": {0: 0}}, "affine", "spacing 0"),
    "infinite": ({"srow_z": {3: np.inf}}, "affine", "infinity"),
    "spacing in the affine": ({"srow_x": {0: -200}}, "affine", "200"),
    "sheared": ({"srow_y": {1: 0.3}}, "affine", "right angle"),
    "infinite intercept": ({"scl_slope": 1, "scl_inter": np.inf}, "scaling", "scl_inter inf"),
    "infinite slope": ({"scl_slope": np.inf}, "scaling", "scl_slope inf"),
    "unit metre": ({"xyzt_units": 1}, "xyzt_units", "found metre, expected millimetre"),
    "unit micron": ({"xyzt_units": 3 + 8}, "xyzt_units", "micron"),
    "unknown unit": ({"xyzt_units": 5}, "xyzt_units", "code 5"),
    "pixdim against sform": ({"pixdim": {1: 1.0}}, "pixdim", "1 x 2.5 x 3 mm"),
    "offset in the header": ({"vox_offset": 40}, "vox_offset", "40"),
    "offset past the end": ({"vox_offset": 1e9}, "vox_offset", "1e+09"),
    "offset NaN": ({"vox_offset": np.nan}, "vox_offset", "nan"),
    "a pair of files": ({"magic": b"ni1"}, "header", "magic"),
    "no voxels": ({}, "data", "expected"),
}


@pytest.mark.parametrize("fault", HEADER_FAULTS)
@pytest.mark.parametrize("packed", [False, True], ids=["nii", "nii.gz"])
def test_header_faults(tmp_path, fault, packed):
    fields, field, word = HEADER_FAULTS[fault]
    plain = write(tmp_path / "whole.nii", **fields)
    head = plain.read_bytes()[:352]
    path = tmp_path / ("a.nii.gz" if packed else "a.nii")
    path.write_bytes(gzip.compress(head) if packed else head)
    if packed and fault == "1000^3":
        word = "2000000000 bytes"
    tracemalloc.start()
    refused(path, field, word)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**26  # memory follows the file, not its header's claims


@pytest.mark.parametrize("content", [b"", b"\x5c", b"just text, no scan\n" * 99, b"<html>" * 99])
@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz"])
def test_text_under_a_scans_name(tmp_path, content, name):
    (tmp_path / name).write_bytes(content)
    refused(tmp_path / name, "header", "no NIfTI header")


def test_broken_gzip(tmp_path):
    whole = write(tmp_path / "whole.nii.gz").read_bytes()
    path = tmp_path / "a.nii.gz"
    for length in (1, 9, 30, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        refused(path, "header" if length == 1 else "file")
    path.write_bytes(whole[:-8] + b"\0" + whole[-7:])
    refused(path, "file", "CRC")
    path.write_bytes(whole[:40] + bytes(byte ^ 255 for byte in whole[40:60]) + whole[60:])
    refused(path, "file")


def test_truncated_plain_file(tmp_path):
    path = write(tmp_path / "a.nii")
    path.write_bytes(path.read_bytes()[:-1])
    refused(path, "data", "2511 bytes", "2512 bytes")


@pytest.mark.parametrize(
    ("voxels", "word"),
    [
        (np.where(hu() == -1000, np.nan, hu()), "NaN"),
        (np.where(hu() == -1000, np.inf, hu()), "infinity"),
        (np.where(hu() == -1000, 1e300, hu()), "infinity"),
        (np.full((12, 10, 9), 40, np.int16), "only 40"),
        (hu().clip(0, 255).astype(np.uint8), "0 to 255"),
        ((hu() + 1000) / 1900, "0 to 1"),
        ((hu() + 1000) * 20.0, "0 to 38000"),  # PET: activity, nothing below zero
        (hu() + 1024, "Hounsfield"),  # stored values without the intercept
        (np.where(hu() < -900, -2000, hu() + 1024), "Hounsfield"),  # the same with padding
        (hu().clip(-160, 240), "Hounsfield"),  # already windowed
        (hu().clip(None, 0), "bone"),
        (hu() * 12.0, "rescale"),
        (hu().astype(np.float32) * 100, "rescale"),
    ],
)
def test_voxels_that_are_no_ct(tmp_path, voxels, word):
    refused(write(tmp_path / "a.nii.gz", voxels), "voxels", word)


@pytest.mark.parametrize("fill", [-2000, -3024, -8192, -32768])
def test_padding_is_no_fault(tmp_path, fill):
    ct = read_ct(write(tmp_path / "a.nii.gz", np.where(hu() < -900, fill, hu()).astype(np.int16)))
    (warning,) = check_ct(ct)
    assert str(fill) in warning
    assert check_ct(read_ct(write(tmp_path / "b.nii.gz"))) == ()


def test_random_header_damage_raises_nothing_but_input_errors(tmp_path):
    rng = np.random.default_rng(0)
    whole = write(tmp_path / "whole.nii").read_bytes()
    for _ in range(300):
        data = bytearray(whole)
        for at in rng.integers(0, 352, 3):
            data[at] = rng.choice([0, 127, 128, 255, rng.integers(256)])
        (tmp_path / "a.nii").write_bytes(data)
        with suppress(InputError):  # any other error, and any warning, fails
            read_ct(tmp_path / "a.nii")


def test_real_scan(shared_data):
    ct = read_ct(shared_data / "ct-crlm" / "CRLM-CT-1006.nii.gz")
    assert ct.shape == (512, 512, 51)
    np.testing.assert_allclose(ct.spacing, (0.805, 0.805, 5), atol=1e-3)
    assert (ct.voxels.min(), ct.voxels.max()) == (-3024, 1184)
    reference = nib.load(shared_data / "ct-crlm" / "CRLM-CT-1006.nii.gz")
    np.testing.assert_array_equal(ct.affine, reference.affine)
    np.testing.assert_array_equal(ct.voxels[..., 25], reference.dataobj[..., 25])
