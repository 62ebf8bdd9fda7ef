from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pytest
from pydicom import FileDataset, dcmread
from pydicom.dataset import FileMetaDataset
from pydicom.pixels import compress
from pydicom.uid import (
    CTImageStorage,
    DeflatedExplicitVRLittleEndian,
    EnhancedCTImageStorage,
    ExplicitVRLittleEndian,
    HTJ2KLossless,
    MediaStorageDirectoryStorage,
    RLELossless,
    SecondaryCaptureImageStorage,
    generate_uid,
)

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.scan import zip_archive
from tumorchain_jax.scan.read import read_ct, read_labels

ROWS, COLUMNS, SLICES, STEP = 10, 14, 9, 2.0
ROW_SPACING, COLUMN_SPACING = 1.5, 0.8


def hu() -> np.ndarray:
    """`[slice, row, column]`, every voxel different."""
    size = SLICES * ROWS * COLUMNS
    return np.linspace(-1000, 1000, size).astype(int).reshape(SLICES, ROWS, COLUMNS)


def make_slice(index: int, series: str, slope=1, intercept=-1024) -> FileDataset:
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = CTImageStorage
    meta.MediaStorageSOPInstanceUID = generate_uid()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    data = FileDataset("", {}, file_meta=meta, preamble=b"\0" * 128)
    data.SOPClassUID = CTImageStorage
    data.SOPInstanceUID = meta.MediaStorageSOPInstanceUID
    data.SeriesInstanceUID = series
    data.Modality = "CT"
    data.ImageType = ["ORIGINAL", "PRIMARY", "AXIAL"]
    data.ImagePositionPatient = [-30.0, 50.0, 100.0 + STEP * index]
    data.ImageOrientationPatient = [1, 0, 0, 0, 1, 0]
    data.PixelSpacing = [ROW_SPACING, COLUMN_SPACING]
    data.InstanceNumber = index + 1
    data.Rows, data.Columns = ROWS, COLUMNS
    data.SamplesPerPixel = 1
    data.PhotometricInterpretation = "MONOCHROME2"
    data.BitsAllocated, data.BitsStored, data.HighBit = 16, 16, 15
    data.PixelRepresentation = 0
    data.RescaleSlope, data.RescaleIntercept = slope, intercept
    stored = (hu()[index] - intercept) / slope
    data.PixelData = stored.astype("<u2").tobytes()
    return data


def make_series() -> list[FileDataset]:
    series = generate_uid()
    return [make_slice(index, series) for index in range(SLICES)]


def save(folder: Path, slices: list[FileDataset]) -> Path:
    """Write the slices under names that say nothing about their order."""
    folder.mkdir(exist_ok=True)
    for index, data in enumerate(slices):
        data.save_as(folder / f"{(index * 5) % 11:03d}.dcm", enforce_file_format=True)
    return folder


def refused(folder: Path, field: str, *words: str) -> None:
    with pytest.raises(InputError) as caught:
        read_ct(folder)
    line = str(caught.value)
    assert caught.value.field == field, line
    assert "\n" not in line
    for word in words:
        assert word in line


def test_voxels_and_geometry(tmp_path):
    ct = read_ct(save(tmp_path / "ct", make_series()))
    np.testing.assert_array_equal(ct.voxels, hu().transpose(2, 1, 0))
    assert ct.voxels.dtype == np.float32
    # Column 3, row 2, slice 4 by the DICOM standard's own formula; LPS -> RAS negates x and y.
    lps = np.array([-30 + 3 * COLUMN_SPACING, 50 + 2 * ROW_SPACING, 100 + 4 * STEP])
    np.testing.assert_allclose((ct.affine @ (3, 2, 4, 1))[:3], lps * (-1, -1, 1))


def test_slices_are_sorted_by_place_not_by_number(tmp_path):
    slices = make_series()
    for number, data in enumerate(slices):
        data.InstanceNumber = 100 - 7 * number
    ct = read_ct(save(tmp_path / "ct", slices[::-1]))
    np.testing.assert_array_equal(ct.voxels, hu().transpose(2, 1, 0))


def test_oblique_sagittal_stack(tmp_path):
    angle = np.deg2rad(10)
    row = np.array([0, np.cos(angle), np.sin(angle)])
    column = np.array([0, np.sin(angle), -np.cos(angle)])
    normal = np.cross(row, column)
    slices = make_series()
    for index, data in enumerate(slices):
        data.ImageOrientationPatient = [*row.round(8), *column.round(8)]
        data.ImagePositionPatient = list((np.array([5, 6, 7]) + STEP * index * normal).round(6))
    ct = read_ct(save(tmp_path / "ct", slices))
    np.testing.assert_array_equal(ct.voxels, hu().transpose(2, 1, 0))
    lps = np.array([5, 6, 7]) + 3 * COLUMN_SPACING * row + 2 * ROW_SPACING * column
    np.testing.assert_allclose(
        (ct.affine @ (3, 2, 4, 1))[:3], (lps + 4 * STEP * normal) * (-1, -1, 1), atol=1e-5
    )


def test_rescale_is_each_slices_own(tmp_path):
    slices = make_series()
    slices[4] = make_slice(4, slices[0].SeriesInstanceUID, slope=0.5, intercept=-1000)
    ct = read_ct(save(tmp_path / "ct", slices))
    np.testing.assert_allclose(ct.voxels, hu().transpose(2, 1, 0))


def test_rle_is_decoded(tmp_path):
    slices = make_series()
    for data in slices:
        compress(data, RLELossless)
    ct = read_ct(save(tmp_path / "ct", slices))
    np.testing.assert_array_equal(ct.voxels, hu().transpose(2, 1, 0))


def test_other_files_are_passed_over(tmp_path):
    folder = save(tmp_path / "ct", make_series())
    (folder / "notes.txt").write_text("not DICOM")
    (folder / "empty").touch()
    (folder / "sub").mkdir()
    save(folder / "sub", make_series())
    index = make_slice(0, generate_uid())
    index.file_meta.MediaStorageSOPClassUID = MediaStorageDirectoryStorage
    index.SOPClassUID = MediaStorageDirectoryStorage
    index.save_as(folder / "DICOMDIR", enforce_file_format=True)
    segmentation = make_slice(1, generate_uid())
    segmentation.Modality = "SEG"
    segmentation.save_as(folder / "seg.dcm", enforce_file_format=True)
    np.testing.assert_array_equal(read_ct(folder).voxels, hu().transpose(2, 1, 0))


def test_pydicoms_warnings_stay_inside(tmp_path):
    slices = make_series()
    folder = save(tmp_path / "ct", slices)
    series = slices[0].SeriesInstanceUID
    for path in folder.iterdir():
        broken = path.read_bytes().replace(series.encode(), b"x" * len(series))
        path.write_bytes(broken)
    with pytest.warns(UserWarning, match="Invalid value"):
        str(dcmread(path).SeriesInstanceUID)
    np.testing.assert_array_equal(read_ct(folder).voxels, hu().transpose(2, 1, 0))


def gap(slices):
    del slices[3]


def uneven(slices):
    slices[-1].ImagePositionPatient = [-30.0, 50.0, 100 + STEP * SLICES - 0.6]


def duplicate(slices):
    slices[5].ImagePositionPatient = slices[4].ImagePositionPatient


def tilt(slices):
    for index, data in enumerate(slices):
        data.ImagePositionPatient = [-30, 50 + 0.4 * index, 100 + STEP * index]


def one_slice_aside(slices):
    slices[4].ImagePositionPatient = [-28.0, 50.0, 100 + STEP * 4]


def two_series(slices):
    slices[2].SeriesInstanceUID = generate_uid()


def localizer(slices):
    slices[0].ImageType = ["ORIGINAL", "PRIMARY", "LOCALIZER"]


def turned(slices):
    slices[6].ImageOrientationPatient = [1, 0, 0, 0, 0, -1]


def not_unit_vectors(slices):
    for data in slices:
        data.ImageOrientationPatient = [1, 0, 0, 0.5, 1, 0]


def other_matrix(slices):
    slices[6].Rows, slices[6].Columns = COLUMNS, ROWS


def other_pixel_size(slices):
    slices[6].PixelSpacing = [2, 2]


def other_modality(slices):
    slices[6].Modality = "PT"


def multi_frame(slices):
    slices[0].NumberOfFrames = 9


def enhanced(slices):
    slices[0].SOPClassUID = EnhancedCTImageStorage


def colours(slices):
    slices[0].SamplesPerPixel = 3


def too_few(slices):
    del slices[7:]


def undecodable(slices):
    slices[3].file_meta.TransferSyntaxUID = HTJ2KLossless
    slices[3].PixelData = b"\xfe\xff\x00\xe0\x00\x00\x00\x00"
    slices[3]["PixelData"].VR = "OB"
    slices[3]["PixelData"].is_undefined_length = True


def deflated(slices):
    slices[3].file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian


def damaged_rle(slices):
    compress(slices[3], RLELossless)
    slices[3].PixelData = slices[3].PixelData[:16] + b"\xff" * (len(slices[3].PixelData) - 16)


def short_pixels(slices):
    slices[3].PixelData = slices[3].PixelData[:-2]


def surplus_pixels(slices):
    slices[3].PixelData = slices[3].PixelData * 3


def no_pixels(slices):
    del slices[3].PixelData


def slope_0(slices):
    slices[3].RescaleSlope = 0


def slope_text(slices):
    slices[3]["RescaleSlope"]._value = "steep"


def huge_matrix(slices):
    for data in slices:
        data.Rows = data.Columns = 65535


def huge_pixels(slices):
    for data in slices:
        data.PixelSpacing = [70, 70]


def position_nan(slices):
    slices[3]["ImagePositionPatient"]._value = ["nan", "1", "2"]


def two_patients(slices):
    for index, data in enumerate(slices):
        data.PatientID = "one" if index < 4 else "other"


def two_frames(slices):
    for index, data in enumerate(slices):
        data.FrameOfReferenceUID = "1.2.3" if index < 4 else "1.2.4"


def alternating(slices):
    for index, data in enumerate(slices):
        data.AcquisitionNumber = 1 + index % 2


def secondary_capture(slices):
    slices[0].SOPClassUID = SecondaryCaptureImageStorage


def not_hounsfield(slices):
    slices[0].RescaleType = "OD"


FAULTS = [
    (two_patients, "PatientID", "2 patients"),
    (two_frames, "FrameOfReferenceUID", "2 frames"),
    (alternating, "AcquisitionNumber", "2 acquisitions whose slices alternate"),
    (secondary_capture, "SOPClassUID", "secondary capture"),
    (not_hounsfield, "RescaleType", "OD"),
    (gap, "ImagePositionPatient", "1 missing slice(s) between"),
    (uneven, "ImagePositionPatient", "a step of 3.4 mm"),
    (duplicate, "ImagePositionPatient", "at the same place"),
    (tilt, "ImagePositionPatient", "11.3 degrees, gantry tilt"),
    (one_slice_aside, "ImagePositionPatient", "sideways"),
    (two_series, "SeriesInstanceUID", "2 series"),
    (localizer, "ImageType", "LOCALIZER"),
    (turned, "ImageOrientationPatient", "another orientation"),
    (not_unit_vectors, "ImageOrientationPatient", "right angles"),
    (other_matrix, "Rows/Columns", "14 x 10"),
    (other_pixel_size, "PixelSpacing", "2 x 2 mm"),
    (other_modality, "Modality", "PT"),
    (multi_frame, "NumberOfFrames", "multi-frame"),
    (enhanced, "NumberOfFrames", "multi-frame"),
    (colours, "SamplesPerPixel", "3"),
    (too_few, "slices", "7 CT slices"),
    (undecodable, "TransferSyntaxUID", "High-Throughput"),
    (deflated, "TransferSyntaxUID", "Deflated"),
    (damaged_rle, "PixelData", "10 x 14 pixels"),
    (short_pixels, "PixelData", "278 bytes"),
    (surplus_pixels, "PixelData", "840 bytes"),
    (no_pixels, "PixelData", "10 x 14 pixels"),
    (slope_0, "RescaleSlope", "0"),
    (slope_text, "RescaleSlope", "a number"),
    (huge_matrix, "dim", "65535"),
    (huge_pixels, "affine", "70 x 70"),
    (position_nan, "ImagePositionPatient", "nan"),
]


@pytest.mark.parametrize(
    ("fault", "field", "word"), FAULTS, ids=[fault.__name__ for fault, *_ in FAULTS]
)
def test_faults(tmp_path, fault, field, word):
    slices = make_series()
    fault(slices)
    refused(save(tmp_path / "ct", slices), field, word)


@pytest.mark.parametrize(
    "keyword",
    [
        "PixelSpacing",
        "ImagePositionPatient",
        "ImageOrientationPatient",
        "RescaleSlope",
        "RescaleIntercept",
        "Rows",
        "Modality",
    ],
)
def test_missing_elements(tmp_path, keyword):
    slices = make_series()
    delattr(slices[3], keyword)
    refused(save(tmp_path / "ct", slices), keyword, "004.dcm")


def test_acquisitions_one_above_another(tmp_path):
    slices = make_series()
    for index, data in enumerate(slices):
        data.AcquisitionNumber = 1 + index // 3
        data.RescaleType = "US"
    np.testing.assert_array_equal(
        read_ct(save(tmp_path / "ct", slices)).voxels, hu().transpose(2, 1, 0)
    )


@pytest.mark.parametrize("kind", ["zero bytes", "cut", "no preamble", "no preamble, other name"])
@pytest.mark.parametrize("packed", [False, True], ids=["folder", "zip"])
def test_damaged_slice_at_an_end_of_the_series(tmp_path, kind, packed):
    folder = save(tmp_path / "ct", make_series())
    content = {"zero bytes": b"", "cut": bytes(100)}.get(kind)
    if content is None:
        content = (folder / "000.dcm").read_bytes()[132:]
    (folder / "000.dcm").unlink()
    name = "first" if kind.endswith("other name") else "000.dcm"
    (folder / name).write_bytes(content)
    if packed:
        with ZipFile(tmp_path / "ct.zip", "w") as archive:
            for path in folder.iterdir():
                archive.write(path, path.name)
    refused(tmp_path / "ct.zip" if packed else folder, "file", name, "no DICOM header")


def test_nifti_beside_the_slices_is_said(tmp_path):
    folder = save(tmp_path / "ct", make_series())
    (folder / "labels.nii.gz").write_bytes(b"")
    (warning,) = read_ct(folder).warnings
    assert warning == "the folder holds labels.nii.gz beside the DICOM slices: only those are read"


def test_headers_are_judged_before_pixels(tmp_path):
    slices = make_series()
    no_pixels(slices)
    gap(slices[4:])
    slices[8].RescaleSlope = None
    refused(save(tmp_path / "ct", slices), "RescaleSlope")


def test_damaged_files(tmp_path):
    folder = save(tmp_path / "ct", make_series())
    path = folder / "004.dcm"
    whole = path.read_bytes()
    path.write_bytes(whole[:200])
    refused(folder, "TransferSyntaxUID", "004.dcm", "none")
    path.write_bytes(whole[:-50])
    refused(folder, "PixelData", "004.dcm")
    start = whole.index(b"\x08\x00\x08\x00CS")
    nested = b"\x08\x00\x40\x11SQ\0\0\xff\xff\xff\xff\xfe\xff\x00\xe0\xff\xff\xff\xff" * 3000
    path.write_bytes(whole[:start] + nested + whole[start:])
    refused(folder, "file", "004.dcm", "damaged header (RecursionError)")


def test_folder_without_a_scan(tmp_path):
    refused(tmp_path, "files", "no DICOM slice")
    (tmp_path / "a.dcm").write_text("text")
    refused(tmp_path, "files", "no DICOM slice")


def test_single_file_is_not_a_series(tmp_path):
    folder = save(tmp_path / "ct", make_series())
    refused(folder / "004.dcm", "file type", "folder")


def test_real_series(shared_data):
    totalsegmentator = shared_data / "ct-totalsegmentator"
    ct = read_ct(totalsegmentator / "example_ct_dicom")
    assert ct.shape == (512, 512, 20)
    np.testing.assert_allclose(ct.spacing, (0.9765625, 0.9765625, 2.0))
    first = min(
        (dcmread(path) for path in (totalsegmentator / "example_ct_dicom").glob("*.dcm")),
        key=lambda data: data.ImagePositionPatient[2],
    )
    np.testing.assert_array_equal(ct.voxels[..., 0].T, first.pixel_array - 1024.0)
    labels = read_labels(totalsegmentator / "example_seg_dicom.nii.gz", ct)
    assert 40 < ct.voxels[labels.voxels == 5].mean() < 150  # liver
    assert 40 < ct.voxels[labels.voxels == 1].mean() < 150  # spleen


def test_three_real_slices_are_too_few(shared_data):
    refused(shared_data / "ct-dcmqi-3slice", "slices", "3 CT slices")


# ------------------------------------------------------------------------- zip archives


def pack(path: Path, files: dict[str, bytes]) -> Path:
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def series_files(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in save(folder, make_series()).iterdir()}


def test_zip_of_a_series_is_that_series(tmp_path):
    files = series_files(tmp_path / "series")
    expected = read_ct(tmp_path / "series")
    nested = {f"../../study/{name}": content for name, content in files.items()}
    path = pack(tmp_path / "ct.ZIP", nested | {"readme.txt": b"hello", "empty/": b""})
    volume = read_ct(path)
    np.testing.assert_array_equal(volume.voxels, expected.voxels)
    np.testing.assert_array_equal(volume.affine, expected.affine)
    assert volume.source == str(path)
    assert {each.name for each in tmp_path.iterdir()} == {"series", "ct.ZIP"}


def test_zip_that_is_no_series_is_refused(tmp_path, monkeypatch):
    files = series_files(tmp_path / "series")
    refused(pack(tmp_path / "none.zip", {"a.txt": b"a"}), "files", "none.zip: ", "no DICOM slice")
    name, content = next(iter(files.items()))
    refused(pack(tmp_path / "one.zip", {name: content}), "slices", "one.zip: ", "1 CT slices")
    path = pack(tmp_path / "cut.zip", {name: content[:300]})
    refused(path, "Modality", f"{path}/00000-{name}: ", "found none")
    (tmp_path / "bad.zip").write_bytes(b"PK\3\4 and nothing more")
    refused(tmp_path / "bad.zip", "file", "a whole zip archive")
    whole = pack(tmp_path / "ct.zip", files)
    damaged = bytearray(whole.read_bytes())
    damaged[400] ^= 255
    (tmp_path / "bits.zip").write_bytes(damaged)
    refused(tmp_path / "bits.zip", "file", "a whole zip archive")
    monkeypatch.setattr(zip_archive, "MOST_BYTES", 1000)
    refused(whole, "file", "at most 10000 files of 1000 bytes")
