"""Which scans a command line means, how they are named, and where their reports go."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.inference.case_list import CasePaths, list_cases


def make(root: Path, *files: str) -> Path:
    for name in files:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return root


def found(cases: Iterable[CasePaths], root: Path) -> dict[str, str]:
    """Name -> scan, and output where it is not named after the scan."""
    return {case.name: case.ct.relative_to(root).as_posix() for case in cases}


def test_folder_of_folders_is_searched_and_named_by_relative_path(tmp_path: Path) -> None:
    scans = make(
        tmp_path / "scans",
        *("a.nii.gz", "site1/p1/CT_image.nii.gz", "site1/p2/CT_image.nii", "site2/p1/dicom/1.dcm"),
        *(".hidden/x.nii.gz", "site2/notes.txt"),
    )
    out = tmp_path / "out"
    cases = list_cases([scans], [], out)
    assert found(cases, scans) == {
        "a": "a.nii.gz",
        "site1/p1/CT_image": "site1/p1/CT_image.nii.gz",
        "site1/p2/CT_image": "site1/p2/CT_image.nii",
        "site2/p1/dicom": "site2/p1/dicom",
    }
    assert [case.output for case in cases] == [out / case.name for case in cases]


def test_zip_archives_are_scans(tmp_path: Path) -> None:
    scans = make(tmp_path / "scans", "p1/series.zip", "p2/CT.nii", "one.zip")
    cases = list_cases([scans], [], tmp_path / "out")
    assert found(cases, scans) == {
        "one": "one.zip",
        "p1/series": "p1/series.zip",
        "p2/CT": "p2/CT.nii",
    }
    (one,) = list_cases([scans / "one.zip"], [], tmp_path / "out")
    assert (one.name, one.output) == ("one", tmp_path / "out")
    series = make(tmp_path / "series", "1.dcm", "2.dcm", "backup.zip")
    assert [case.ct for case in list_cases([series], [], tmp_path / "out")] == [series]


@pytest.mark.parametrize("other", ["CT.nii.gz", "more/1.dcm"])
def test_slices_beside_other_scans_are_refused(tmp_path: Path, other: str) -> None:
    """Else they would be left out without a word."""
    scans = make(tmp_path / "scans", "1.dcm", other)
    with pytest.raises(InputError, match="found DICOM slices beside other scans or folders"):
        list_cases([scans], [], tmp_path / "out")


def test_data_set_layout_is_one_scan_per_folder_with_its_labels(tmp_path: Path) -> None:
    files = ("ct.nii.gz", "labels.nii.gz", "lesions.nii.gz", "truth.json")
    data = make(tmp_path / "data", *(f"{name}/{file}" for name in "ab" for file in files))
    make(data, "c/ct/1.dcm", "c/labels.nii.gz")
    cases = list_cases([data], [data], tmp_path / "out")
    assert found(cases, data) == {"a": "a/ct.nii.gz", "b": "b/ct.nii.gz", "c": "c/ct"}
    assert [case.mask for case in cases] == [data / name / "labels.nii.gz" for name in "abc"]
    (one,) = list_cases([data / "a"], [], tmp_path / "out")
    assert (one.ct, one.name, one.output) == (data / "a" / "ct.nii.gz", "a", tmp_path / "out")


def test_masks_are_found_by_relative_name(tmp_path: Path) -> None:
    scans = make(tmp_path / "scans", "p1/CT.nii.gz", "p2/CT.nii.gz")
    masks = make(tmp_path / "masks", "p2/CT.nii.gz")
    cases = list_cases([scans], [masks], tmp_path / "out")
    assert [case.mask for case in cases] == [None, masks / "p2" / "CT.nii.gz"]
    with pytest.raises(InputError, match=r"found no mask, expected p1/CT\.nii\.gz, or that of"):
        list_cases([scans], [make(tmp_path / "none", "x.nii.gz")], tmp_path / "out")


def test_scans_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    make(tmp_path, *(f"{folder}/ct1.nii.gz" for folder in ("a", "b/c")), "x.nii.gz")
    inputs = [tmp_path / "a" / "ct1.nii.gz", tmp_path / "b/c/ct1.nii.gz", tmp_path / "x.nii.gz"]
    cases = list_cases(inputs, [], tmp_path / "out")
    assert [case.name for case in cases] == ["a/ct1", "b/c/ct1", "x"]
    folders = list_cases([tmp_path / "a", tmp_path / "b"], [], tmp_path / "out")
    assert [case.name for case in folders] == ["ct1", "c/ct1"]


def test_same_scan_twice_is_refused(tmp_path: Path) -> None:
    make(tmp_path, "a.nii.gz")
    with pytest.raises(InputError, match="found a twice, expected each scan once"):
        list_cases([tmp_path / "a.nii.gz"] * 2, [], tmp_path / "out")


def test_name_that_is_the_folder_of_another_is_refused(tmp_path: Path) -> None:
    """Its report would lie inside the other's, which overwriting replaces."""
    scans = make(tmp_path / "scans", "p1.nii.gz", "p1/CT.nii.gz")
    with pytest.raises(InputError, match="found a scan p1/CT and a scan p1"):
        list_cases([scans], [], tmp_path / "out")


@pytest.mark.parametrize("inside", ["scans", "scans/out", "scans/a/out", "masks/out", "dicom/out"])
def test_output_inside_the_inputs_is_refused(tmp_path: Path, inside: str) -> None:
    make(tmp_path, "scans/a/CT.nii.gz", "masks/a/CT.nii.gz", "dicom/1.dcm")
    inputs = [tmp_path / "scans"] if inside != "dicom/out" else [tmp_path / "dicom"]
    with pytest.raises(InputError, match=r"-o: found a place inside .*, which is read"):
        list_cases(inputs, [tmp_path / "masks"], tmp_path / inside)


def test_link_that_leads_back_ends(tmp_path: Path) -> None:
    scans = make(tmp_path / "scans", "p1/CT.nii.gz")
    (scans / "p1" / "up").symlink_to(scans)
    assert found(list_cases([scans], [], tmp_path / "out"), scans) == {"p1/CT": "p1/CT.nii.gz"}


def test_missing_input_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="path: found nothing"):
        list_cases([tmp_path / "none"], [], tmp_path / "out")
