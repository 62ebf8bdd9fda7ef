import json
from pathlib import Path

import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.scan_list import ScanFiles, read_scans

LINE = {"scan": "a", "ct": "a.nii.gz", "labels": "a-labels.nii.gz"}


def write(path: Path, *lines: object) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_list_is_sorted_and_paths_start_from_its_folder(tmp_path: Path) -> None:
    more = {
        "scan": "B",
        "labels": "b.nii.gz",
        "lesions": "/else/where.nii.gz",
        "abnormal": {"liver": True},
    }
    path = write(tmp_path / "list.jsonl", LINE, LINE | more)
    b, a = read_scans(path)
    assert a == ScanFiles("a", tmp_path / "a.nii.gz", tmp_path / "a-labels.nii.gz")
    assert (b.name, b.lesions, b.abnormal) == ("B", Path("/else/where.nii.gz"), {5: True})


def test_folder_holds_a_folder_for_each_scan_at_any_depth(tmp_path: Path) -> None:
    (tmp_path / "two" / "ct").mkdir(parents=True)
    (tmp_path / "one").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "note.txt").write_text("no scan")
    (tmp_path / "one" / "lesions.nii.gz").write_bytes(b"")
    (tmp_path / "site" / "2024" / "three").mkdir(parents=True)
    (tmp_path / "site" / "2024" / "three" / "ct.nii.gz").write_bytes(b"")
    (tmp_path / "site" / "empty").mkdir()
    (tmp_path / "site" / "back").symlink_to(tmp_path)
    one, three, empty, two = read_scans(tmp_path)
    assert (one.name, one.ct.name, one.labels.name) == ("one", "ct.nii.gz", "labels.nii.gz")
    assert one.lesions == tmp_path / "one" / "lesions.nii.gz"
    assert (two.ct, two.lesions) == (tmp_path / "two" / "ct", None)
    assert three.name == "site/2024/three"
    assert three.ct == tmp_path / "site" / "2024" / "three" / "ct.nii.gz"
    assert empty.name == "site/empty"  # it is reported as skipped, not overlooked


def test_folder_of_one_scan_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ct.nii.gz").write_bytes(b"")
    with pytest.raises(InputError, match="found the files of one scan"):
        read_scans(tmp_path)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "scans: found none"),
        ([LINE, LINE | {"labels": "b.nii.gz"}], "scan: found a twice"),
        ([LINE, LINE | {"scan": "b"}], "a-labels.nii.gz of a for b too"),
        ([LINE, LINE | {"scan": "b", "colour": 3}], "list.jsonl:2: colour: found an unknown field"),
        ([LINE | {"scan": 3}], "scan: found 3, expected some text"),
        ([LINE | {"scan": "\udc00"}], "scan: found"),
        ([LINE | {"ct": ""}], 'ct: found "", expected some text'),
        ([LINE | {"ct": "a\0.nii"}], "ct: found"),
        ([{"scan": "a", "ct": "a.nii.gz"}], "labels: found no such field, expected some text"),
        ([LINE | {"lesions": None}], "lesions: found null"),
        ([LINE | {"abnormal": ["liver"]}], 'abnormal: found ["liver"]'),
        ([LINE | {"abnormal": {"liver": 1}}], 'abnormal: found {"liver": 1}'),
        ([LINE | {"abnormal": {"tail": True}}], 'abnormal: found {"tail": true}'),
        ([LINE | {"abnormal": {"background": True}}], 'abnormal: found {"background": true}'),
        (["a"], 'JSON: found "a"'),
    ],
)
def test_malformed_list_is_refused_in_one_line(tmp_path: Path, lines: list, message: str) -> None:
    path = write(tmp_path / "list.jsonl", *lines)
    with pytest.raises(InputError) as error:
        read_scans(path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe{}", b"PK\x03\x04", b"[" * 10**5])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "list.jsonl").write_bytes(content)
    with pytest.raises(InputError, match=r"list\.jsonl:1: JSON: found"):
        read_scans(tmp_path / "list.jsonl")
    with pytest.raises(InputError, match="path: found No such file"):
        read_scans(tmp_path / "nowhere")


def test_fingerprint_changes_with_the_files_and_not_with_their_place(tmp_path: Path) -> None:
    series = tmp_path / "one" / "ct"
    series.mkdir(parents=True)
    (series / "1.dcm").write_bytes(b"1")
    (tmp_path / "one" / "labels.nii.gz").write_bytes(b"2")

    def fingerprint(**changes: object) -> str:
        (scan,) = read_scans(tmp_path)
        return ScanFiles(**vars(scan) | {"name": "one"} | changes).fingerprint()

    first = fingerprint()
    (tmp_path / "one").rename(tmp_path / "moved")
    assert fingerprint() == first
    assert fingerprint(abnormal={5: True}) != first
    assert fingerprint(name="other") != first
    (tmp_path / "moved" / "ct" / "2.dcm").write_bytes(b"1")
    second = fingerprint()
    assert second != first
    (tmp_path / "moved" / "labels.nii.gz").write_bytes(b"22")
    third = fingerprint()
    assert third not in (first, second)
    (tmp_path / "moved" / "labels.nii.gz").unlink()
    assert fingerprint() not in (first, second, third)
