"""SEG, SR and key images of a series: read back, and checked by dciodvfy where it is installed."""

import csv
import shutil
import subprocess
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from dicom_series import PATIENT, write_series

from tumorchain_jax.anatomy.organs import TOTALSEGMENTATOR
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.dicom.device import UNVERIFIED, Device
from tumorchain_jax.dicom.organ_codes import organ_codes
from tumorchain_jax.dicom.secondary_capture import secondary_captures
from tumorchain_jax.dicom.segmentation import segmentation
from tumorchain_jax.dicom.source import read_source
from tumorchain_jax.dicom.structured_report import Findings, structured_report
from tumorchain_jax.scan.read import read_ct, read_labels
from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.segmentation.statistics import organ_statistics

highdicom = pytest.importorskip("highdicom")
pydicom = pytest.importorskip("pydicom")

NAMES = {number: name for number, name in enumerate(TOTALSEGMENTATOR) if number}
DEVICE = Device("a model", "0123456789abcdef" * 4)
LIVER, LEFT_KIDNEY, CYST = 5, 3, 23
FOUND = Findings(
    "Where is it? ",
    ["The liver\x1b[2J of the <b>patient</b> é", ""],
    "liver",
    ["a warning"],
    {"liver": (1.25, 60.0), "kidney_left": (0.5, 30.0), "kidney_cyst_left": (0.1, 5.0)},
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A small oblique-free series whose voxels are all different, and all that is made of it."""
    rng = np.random.default_rng(0)
    hu = rng.integers(-1000, 1000, (12, 10, 9)).astype(np.float32)
    affine = np.array([[0, -2, 0, 30], [1.5, 0, 0, 5], [0, 0, -2.5, 90], [0, 0, 0, 1.0]])
    folder = tmp_path_factory.mktemp("dicom") / "series"
    write_series(Volume(hu, affine), folder)
    ct = read_ct(folder)
    voxels = rng.choice(np.array([0, LIVER, LEFT_KIDNEY, CYST], np.uint8), ct.shape)
    voxels[:, :, 3] = 0
    labels = Volume(voxels, ct.affine, "labels")
    source = read_source(folder)
    seg = segmentation(source, labels, NAMES, DEVICE)
    report = structured_report(source, FOUND, DEVICE, seg)
    picture = rng.integers(0, 255, (20, 30, 3), np.uint8)
    [image] = secondary_captures(source, [picture], DEVICE)
    objects = {"seg": _stored(seg), "sr": _stored(report), "image": _stored(image)}
    return SimpleNamespace(
        folder=folder, source=source, labels=labels, ct=ct, picture=picture, **objects
    )


def _stored(made: Any) -> Any:
    """An object after a file."""
    buffer = BytesIO()
    made.save_as(buffer)
    buffer.seek(0)
    return pydicom.dcmread(buffer)


def test_seg_has_the_label_maps_voxels_at_their_places(made: SimpleNamespace) -> None:
    seg = highdicom.seg.Segmentation.from_dataset(made.seg)
    volume = seg.get_volume(combine_segments=True, skip_overlap_checks=True)
    number = {segment.SegmentLabel: segment.SegmentNumber for segment in seg.SegmentSequence}
    assert set(number) == {"liver", "kidney_left", "kidney_cyst_left"}
    # By place, so that neither the order of frames nor that of axes counts.
    to_ours = np.linalg.inv(made.ct.affine) @ np.diag([-1.0, -1, 1, 1]) @ volume.affine
    index = np.indices(volume.array.shape).reshape(3, -1)
    ours = np.rint(to_ours[:3, :3] @ index + to_ours[:3, 3:]).astype(int)
    expected = np.zeros(index.shape[1], int)
    found = made.labels.voxels[tuple(ours)]
    for label, name in ((LIVER, "liver"), (LEFT_KIDNEY, "kidney_left"), (CYST, "kidney_cyst_left")):
        expected[found == label] = number[name]
    np.testing.assert_array_equal(volume.array.ravel(), expected)
    assert np.count_nonzero(volume.array) == np.count_nonzero(made.labels.voxels)


def test_segments_have_snomed_codes(made: SimpleNamespace) -> None:
    segments = {each.SegmentLabel: each for each in made.seg.SegmentSequence}
    kidney = segments["kidney_left"].SegmentedPropertyTypeCodeSequence[0]
    assert (kidney.CodeValue, kidney.CodingSchemeDesignator) == ("64033007", "SCT")
    assert kidney.SegmentedPropertyTypeModifierCodeSequence[0].CodeMeaning == "Left"
    cyst = segments["kidney_cyst_left"]
    assert cyst.SegmentedPropertyCategoryCodeSequence[0].CodeValue == "49755003"
    region = cyst.AnatomicRegionSequence[0]
    assert region.CodeMeaning == "Kidney"
    assert region.AnatomicRegionModifierSequence[0].CodeMeaning == "Left"
    assert segments["liver"].SegmentAlgorithmType == "AUTOMATIC"
    assert segments["liver"].SegmentAlgorithmName == DEVICE.model


def test_every_organ_has_the_code_of_totalsegmentators_table(shared_data: Path) -> None:
    table = shared_data / "ct-totalsegmentator" / "totalsegmentator_snomed_mapping.csv"
    lines = table.read_text("utf-8").splitlines()
    rows = {row["Structure"]: row for row in csv.DictReader(lines)}
    assert set(organ_codes()) == set(NAMES.values())
    for name, code in organ_codes().items():
        row = rows[name]
        assert code.kind.value == row["SegmentedPropertyTypeCodeSequence.CodeValue"], name
        assert code.category.value == row["SegmentedPropertyCategoryCodeSequence.CodeValue"]
        sides = "SegmentedPropertyTypeModifierCodeSequence", "AnatomicRegionModifierSequence"
        assert (code.side.value if code.side else "") in {row[f"{s}.CodeValue"] for s in sides}


def test_identifiers_are_the_sources(made: SimpleNamespace) -> None:
    source = made.source.first
    for each in (made.seg, made.sr, made.image):
        for keyword in ("StudyInstanceUID", "PatientSex", "StudyDate", "StudyID", *PATIENT):
            assert getattr(each, keyword) == getattr(source, keyword), keyword
        assert str(each.PatientName) == PATIENT["PatientName"]
        assert each.SeriesInstanceUID != source.SeriesInstanceUID
        assert UNVERIFIED in each.SeriesDescription
    assert made.seg.FrameOfReferenceUID == source.FrameOfReferenceUID
    [series] = made.seg.ReferencedSeriesSequence
    referenced = {each.ReferencedSOPInstanceUID for each in series.ReferencedInstanceSequence}
    used = [each for at, each in enumerate(made.source.slices) if made.labels.voxels[..., at].any()]
    assert {str(each.SOPInstanceUID) for each in used} <= set(map(str, referenced))


def test_report_holds_chain_answer_and_measurements(made: SimpleNamespace) -> None:
    report = highdicom.sr.EnhancedSR.from_dataset(made.sr)
    assert (report.VerificationFlag, report.CompletionFlag) == ("UNVERIFIED", "COMPLETE")
    assert report.ContentTemplateSequence[0].TemplateIdentifier == "1500"
    texts = [item.TextValue for item in _items(made.sr) if item.ValueType == "TEXT"]
    for text in (f"{UNVERIFIED}.", "Question: Where is it?", "a warning", "liver", "(nothing)"):
        assert text in texts
    [chain] = [text for text in texts if text.endswith("of the <b>patient</b> é")]
    assert chain.isprintable()
    content = highdicom.sr.MeasurementReport.from_sequence([made.sr])
    groups = content.get_volumetric_roi_measurement_groups()
    measured = {
        group.tracking_identifier: [
            (item.name.meaning, item.value, item.unit.value) for item in group.get_measurements()
        ]
        for group in groups
    }
    assert measured["liver"] == [
        ("Volume", 1.25, "mL"),
        ("Attenuation Coefficient", 60.0, "[hnsf'U]"),
    ]
    assert set(measured) == set(FOUND.organs)
    uid = {str(group.referenced_segment.referenced_sop_instance_uid) for group in groups}
    assert uid == {str(made.seg.SOPInstanceUID)}
    assert DEVICE.model in {getattr(item, "TextValue", "") for item in _items(made.sr)}


def _items(data: Any) -> list[Any]:
    found = []
    for item in data.get("ContentSequence", ()):
        found += [item, *_items(item)]
    return found


def test_key_image_has_the_pictures_pixels(made: SimpleNamespace) -> None:
    np.testing.assert_array_equal(made.image.pixel_array, made.picture)
    assert made.image.Modality == "OT"


@pytest.mark.skipif(not shutil.which("dciodvfy"), reason="dciodvfy (dicom3tools) is not installed")
@pytest.mark.parametrize("name", ["seg", "sr", "image"])
def test_dciodvfy_finds_no_error(name: str, made: SimpleNamespace, tmp_path: Path) -> None:
    getattr(made, name).save_as(tmp_path / "made.dcm")
    assert not _errors(tmp_path / "made.dcm")


def _errors(path: Path) -> list[str]:
    command = ["dciodvfy", "-new", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    said = f"{done.stdout}{done.stderr}".splitlines()
    assert said  # it names the object, at least
    return [line for line in said if line.startswith("Error")]


@pytest.mark.parametrize("keyword", ["StudyInstanceUID", "FrameOfReferenceUID"])
def test_series_without_an_identifier_is_refused(keyword: str, tmp_path: Path) -> None:
    flat = Volume(np.zeros((8, 8, 8), np.float32), np.diag([1.0, 1, 1, 1]))
    write_series(flat, tmp_path / "series", **{keyword: ""})
    with pytest.raises(InputError, match=f"{keyword}: found nothing, .* never made up"):
        read_source(tmp_path / "series")


def test_nifti_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ct.nii.gz").touch()
    with pytest.raises(InputError, match=r"no DICOM series.* no patient, study"):
        read_source(tmp_path / "ct.nii.gz")


def test_series_in_a_zip_archive_is_read(made: SimpleNamespace, tmp_path: Path) -> None:
    archive = shutil.make_archive(str(tmp_path / "series"), "zip", made.folder)
    slices = read_source(Path(archive)).slices
    assert [s.SOPInstanceUID for s in slices] == [s.SOPInstanceUID for s in made.source.slices]


def test_label_map_of_another_grid_or_without_organs_is_refused(made: SimpleNamespace) -> None:
    empty = Volume(np.zeros(made.ct.shape, np.uint8), made.ct.affine)
    with pytest.raises(InputError, match="no organ"):
        segmentation(made.source, empty, NAMES, DEVICE)
    other = Volume(np.ones((3, 3, 3), np.uint8), made.ct.affine)
    with pytest.raises(InputError, match="dim"):
        segmentation(made.source, other, NAMES, DEVICE)


@pytest.mark.system(haste=True)
@pytest.mark.skipif(not shutil.which("dciodvfy"), reason="dciodvfy (dicom3tools) is not installed")
def test_real_series_and_its_label_map(shared_data: Path, tmp_path: Path) -> None:
    """A real CT whose UIDs were blanked; the files' own are put back, the others made for it."""
    study, series = highdicom.UID(), highdicom.UID()
    for path in (shared_data / "ct-totalsegmentator" / "example_ct_dicom").iterdir():
        data = pydicom.dcmread(path)
        data.SOPClassUID = data.file_meta.MediaStorageSOPClassUID
        data.SOPInstanceUID = data.file_meta.MediaStorageSOPInstanceUID
        data.StudyInstanceUID, data.SeriesInstanceUID = study, series
        data.save_as(tmp_path / path.name)
    ct, source = read_ct(tmp_path), read_source(tmp_path)
    labels = read_labels(shared_data / "ct-totalsegmentator" / "example_seg_dicom.nii.gz", ct)
    seg = segmentation(source, labels, NAMES, DEVICE)
    measured = organ_statistics(ct, labels.voxels, NAMES)
    organs = {n: (o.volume_ml, o.mean_hu) for n, o in measured.items() if o.mean_hu is not None}
    report = structured_report(source, replace(FOUND, organs=organs), DEVICE, seg)
    assert len(seg.SegmentSequence) == len(organs) == 31
    frames = {str(each.SOPInstanceUID): at for at, each in enumerate(source.slices)}
    for frame, group in zip(seg.pixel_array, seg.PerFrameFunctionalGroupsSequence, strict=True):
        number = group.SegmentIdentificationSequence[0].ReferencedSegmentNumber
        name = seg.SegmentSequence[number - 1].SegmentLabel
        [image] = group.DerivationImageSequence[0].SourceImageSequence
        plane = labels.voxels[..., frames[str(image.ReferencedSOPInstanceUID)]].T
        np.testing.assert_array_equal(frame, plane == TOTALSEGMENTATOR.index(name))
    for name, made in (("seg", seg), ("sr", report)):
        made.save_as(tmp_path / f"{name}.made")
        assert not _errors(tmp_path / f"{name}.made")
