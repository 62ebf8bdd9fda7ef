import json
from pathlib import Path

import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.record_file import RecordFile
from tumorchain_jax.data.scan_list import ScanFiles, read_scans
from tumorchain_jax.data.schema import Record, RoundTarget

LINE = {"scan": "a", "ct": "a.nii.gz", "labels": "a-labels.nii.gz"}


def write(path: Path, *lines: object) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_list_is_read_by_name_with_paths_of_its_folder(tmp_path: Path) -> None:
    more = {"scan": "B", "lesions": "/else/where.nii.gz", "abnormal": {"liver": True}}
    path = write(tmp_path / "list.jsonl", LINE, LINE | more)
    b, a = read_scans(path)
    assert a == ScanFiles("a", tmp_path / "a.nii.gz", tmp_path / "a-labels.nii.gz")
    assert (b.name, b.lesions, b.abnormal) == ("B", Path("/else/where.nii.gz"), {5: True})


def test_a_folder_has_a_folder_for_each_scan(tmp_path: Path) -> None:
    (tmp_path / "two" / "ct").mkdir(parents=True)
    (tmp_path / "one").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "note.txt").write_text("no scan")
    (tmp_path / "one" / "lesions.nii.gz").write_bytes(b"")
    one, two = read_scans(tmp_path)
    assert (one.name, one.ct.name, one.labels.name) == ("one", "ct.nii.gz", "labels.nii.gz")
    assert one.lesions == tmp_path / "one" / "lesions.nii.gz"
    assert (two.ct, two.lesions) == (tmp_path / "two" / "ct", None)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([], "scans: found none"),
        ([LINE, LINE | {"ct": "b.nii.gz"}], "scan: found a twice"),
        ([LINE, LINE | {"scan": "b", "colour": 3}], "list.jsonl:2: colour: found a field"),
        ([LINE | {"scan": 3}], "scan: found 3, expected a text"),
        ([LINE | {"ct": ""}], 'ct: found "", expected a text'),
        ([{"scan": "a", "ct": "a.nii.gz"}], "labels: found null, expected a text"),
        ([LINE | {"lesions": None}], "lesions: found null"),
        ([LINE | {"abnormal": ["liver"]}], 'abnormal: found ["liver"]'),
        ([LINE | {"abnormal": {"liver": 1}}], 'abnormal: found {"liver": 1}'),
        ([LINE | {"abnormal": {"tail": True}}], "abnormal: found tail"),
        ([LINE | {"abnormal": {"background": True}}], "abnormal: found background"),
        (["a"], "JSON: found 'str'"),
    ],
)
def test_a_bad_list_is_refused_in_one_line(tmp_path: Path, lines: list, told: str) -> None:
    path = write(tmp_path / "list.jsonl", *lines)
    with pytest.raises(InputError) as error:
        read_scans(path)
    assert told in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe{}", b"PK\x03\x04"])
def test_what_is_no_list_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "list.jsonl").write_bytes(content)
    with pytest.raises(InputError, match=r"list\.jsonl:1: JSON: found"):
        read_scans(tmp_path / "list.jsonl")
    with pytest.raises(InputError, match="path: found No such file"):
        read_scans(tmp_path / "nowhere")


def test_a_fingerprint_changes_with_the_files_and_not_with_their_place(tmp_path: Path) -> None:
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


def record(patient: str, scan: str, question: str) -> dict:
    made = Record(
        patient, 0, "position", "tumor_position", 5, question, (), (RoundTarget("none"),), "", "no"
    )
    return json.loads(made.to_json()) | {"scan": scan}


def test_records_are_found_by_scan_and_numbered(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    lines = [record("p", "a", "1?"), record("q", "b", "ä?"), record("p", "a", "3?")]
    path.write_text("\n".join(json.dumps(line, ensure_ascii=False) for line in lines), "utf-8")
    file = RecordFile(path, {"a", "b", "c"})
    assert file.patients == {"a": "p", "b": "q"}
    assert [file.count(name) for name in "abc"] == [2, 1, 0]
    assert list(file.of_scan("c", 4)) == []
    found = list(file.of_scan("a", 7))
    assert [(where, r.question, r.scan) for where, r in found] == [
        (f"{path}:1", "1?", 7),
        (f"{path}:3", "3?", 7),
    ]
    ((where, second),) = file.of_scan("b", 0)
    assert (where, second.question) == (f"{path}:2", "ä?")
