import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from array_record.python.array_record_module import ArrayRecordWriter

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.dataset import ModelScan, read_records
from tumorchain_jax.data.leaks import check_split
from tumorchain_jax.data.schema import Record, RoundTarget
from tumorchain_jax.data.splits import read_split, split_patients, write_split

NAMES = [f"phantom-{number}" for number in range(2000)]
APART = {"train": ["a", "c"], "test": ["b"]}
Make = Callable[..., Path]


def write(path: Path, blobs: list[bytes]) -> None:
    writer = ArrayRecordWriter(str(path), "group_size:1")
    for blob in blobs:
        writer.write(blob)
    writer.close()


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A data set in two shards: patients a, b and c, whose scans are filled with 0, 1 and 2."""

    def build(split: Mapping[str, list[str]] = APART, fill: tuple[int, ...] = (0, 1, 2)) -> Path:
        for shard, patients in enumerate((["a", "b"], ["c"])):
            scans, records = [], []
            for name in patients:
                number = "abc".index(name)
                record = Record(
                    name, number, "lesion_attributes", "shape", 5, "q?", (), (RoundTarget("x"),),
                    "", "round",
                )  # fmt: skip
                records.append(record.to_json().encode())
                if number < len(fill):
                    arrays = {field.name: np.zeros(2, np.uint8) for field in fields(ModelScan)}
                    arrays["image"] = np.full((2, 2, 2), fill[number], np.uint8)
                    scans.append(ModelScan(**arrays).to_bytes())
            write(tmp_path / f"scans-{shard:05d}-of-00002.arrayrecord", scans)
            write(tmp_path / f"records-{shard:05d}-of-00002.arrayrecord", records)
        write_split(tmp_path, split)
        return tmp_path

    return build


def test_one_patient_in_ten_is_for_testing() -> None:
    split = split_patients(NAMES)
    assert sorted(split["train"] + split["test"]) == sorted(NAMES)
    assert 160 < len(split["test"]) < 240
    assert split == split_patients(reversed(NAMES))
    assert split == split_patients(NAMES * 2)


def test_more_patients_move_none() -> None:
    few, many = split_patients(NAMES[500:600]), split_patients(NAMES)
    for side, names in few.items():
        assert names
        assert set(names) <= set(many[side])


def test_split_survives_its_file(tmp_path: Path) -> None:
    write_split(tmp_path, {"train": [], "test": ["old"]})
    write_split(tmp_path, {"train": ["Zoë", "a\nb"], "test": ["c"]})
    assert read_split(tmp_path) == {"train": {"Zoë", "a\nb"}, "test": {"c"}}
    assert [path.name for path in tmp_path.iterdir()] == ["split.json"]


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("", "Expecting value"),
        ("[]", "names"),
        ("3", "not iterable"),
        ('{"train": ["a"]}', "names"),
        ('{"train": ["a"], "test": [], "other": []}', "other"),
        ('{"train": "a", "test": []}', "train is no list of names"),
        ('{"train": [], "test": [1]}', "test is no list of names"),
        ('{"train": ["a", "a"], "test": []}', "a twice in train"),
        ('{"train": ["a", "b"], "test": ["c", "b"]}', "b in both lists"),
    ],
)
def test_malformed_split_is_refused(tmp_path: Path, content: str, found: str) -> None:
    (tmp_path / "split.json").write_text(content)
    with pytest.raises(InputError, match=found) as error:
        read_split(tmp_path)
    assert "write_split" in str(error.value)
    assert "\n" not in str(error.value)


def test_missing_split_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"split\.json: found none"):
        read_split(tmp_path)


def test_patients_that_are_apart_pass(make: Make) -> None:
    check_split(make())
    check_split(make(fill=(0, 1, 0)))  # two scans alike, but both to train on
    check_split(make({"train": ["a", "c", "nobody"], "test": ["b"]}))


def test_patient_in_both_lists_leaks(make: Make) -> None:
    with pytest.raises(InputError, match="b in both lists"):
        check_split(make({"train": ["a", "b", "c"], "test": ["b"]}))


def test_patient_in_neither_list_is_named(make: Make) -> None:
    with pytest.raises(InputError, match="c in neither list"):
        check_split(make({"train": ["a"], "test": ["b"]}))


@pytest.mark.parametrize(
    ("fill", "names"),
    [((1, 1, 2), r"b \(test\) is that of a \(train\)"), ((0, 1, 1), r"c \(train\) is that of b")],
)
def test_image_on_both_sides_leaks(make: Make, fill: tuple[int, ...], names: str) -> None:
    with pytest.raises(InputError, match=names) as error:
        check_split(make(fill=fill))
    assert "put both in one list" in str(error.value)


def test_one_scan_of_two_patients_leaks(make: Make) -> None:
    folder = make()
    lines = [json.loads(record.to_json()) | {"scan": 0} for record in read_records(folder)[:2]]
    write(
        folder / "records-00000-of-00002.arrayrecord", [json.dumps(line).encode() for line in lines]
    )
    with pytest.raises(InputError, match=r"b \(test\) is that of a \(train\)"):
        check_split(folder)


def test_scan_that_is_not_there_is_named(make: Make) -> None:
    with pytest.raises(InputError, match="no scan 2, c's"):
        check_split(make(fill=(0, 1)))
