import json
from pathlib import Path

import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.record_file import RecordFile
from tumorchain_jax.data.schema import Record, RoundTarget


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


def write(path: Path, *lines: dict) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_repeated_records_are_listed_and_not_read(tmp_path: Path) -> None:
    one, other = record("p", "a", "1?"), record("p", "a", "2?")
    elsewhere = record("q", "b", "1?")
    path = write(tmp_path / "records.jsonl", one, other, elsewhere, dict(reversed(one.items())))
    file = RecordFile(path, {"a", "b"})
    assert [r.question for _, r in file.of_scan("a", 0)] == ["1?", "2?"]
    (error,) = file.repeated("a")
    assert f"{path}:4: record: found that of {path}:1 again" in str(error)
    assert (file.repeated("b"), file.count("a"), file.count("b")) == ([], 3, 1)


def test_same_choices_with_another_answer_are_refused(tmp_path: Path) -> None:
    asked = record("p", "a", "Where?") | {"choices": ["liver", "no"]}
    turned = asked | {"choices": ["no", "liver"], "answer": "liver"}
    path = write(tmp_path / "records.jsonl", asked, turned)
    with pytest.raises(InputError, match=r":2: answer: found \"liver\", expected 'no', as to"):
        RecordFile(path, {"a"})
    RecordFile(write(path, asked, turned | {"scan": "b"}), {"a", "b"})
    RecordFile(write(path, asked, asked | {"choices": [], "answer": "liver"}), {"a"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"scan": "c"},
            'records.jsonl:2: scan: found "c", expected the name of one of the 2',
        ),
        ({"scan": 1}, "scan: found 1"),
        ({"patient": "q"}, 'patient: found "q", expected p, as in the records of a before'),
        ({"answer": ""}, 'answer: found ""'),
    ],
)
def test_record_that_does_not_belong_is_refused(tmp_path: Path, change: dict, message: str) -> None:
    path = write(
        tmp_path / "records.jsonl", record("p", "a", "1?"), record("p", "a", "2?") | change
    )
    with pytest.raises(InputError) as error:
        RecordFile(path, {"a", "b"})
    assert message in str(error.value)
