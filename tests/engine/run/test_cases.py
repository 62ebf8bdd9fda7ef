"""Lists of cases: what is read, and some sixty ways in which one is broken."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.engine.cases import MOST_BYTES, check_cases, read_cases

TEXT = "Findings: a lesion of 3 cm in the liver.\n"
GOOD = {"case": "c-1", "patient": "p-1", "scans": ["s-1"], "radiology": ["r.txt"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "cases"
    (root / "sub").mkdir(parents=True)
    (root / "r.txt").write_text(TEXT)
    (root / "q.txt").write_text("Normal.\n")
    (tmp_path / "outside.txt").write_text(TEXT)
    return root


def write(folder: Path, *lines: dict[str, Any] | str | bytes) -> Path:
    path = folder / "cases.jsonl"
    encoded = [
        line if isinstance(line, bytes)
        else (line if isinstance(line, str) else json.dumps(line)).encode()
        for line in lines
    ]  # fmt: skip
    path.write_bytes(b"\n".join(encoded))
    return path


def test_cases_are_read_whatever_the_order_of_the_lines(folder: Path) -> None:
    second = {
        "case": "c-0", "patient": "p-2", "scans": ["s-2", "s-3"], "radiology": ["q.txt"],
        "pathology": ["sub/p.txt"], "language": "en", "sex": "female", "age": 64,
    }  # fmt: skip
    (folder / "sub" / "p.txt").write_bytes("\ufeffpT2 pN0\r\n".encode())
    first = read_cases(write(folder, "\ufeff" + json.dumps(GOOD), "", second))
    assert first == read_cases(write(folder, second, GOOD))
    case = first[0].read()
    assert (case.id, case.patient, case.scans, case.sex, case.age) == (
        "c-0", "p-2", ("s-2", "s-3"), "female", 64,
    )  # fmt: skip
    assert [(d.kind, d.text, d.language) for d in case.documents] == [
        ("radiology", "Normal.\n", "en"),
        ("pathology", "pT2 pN0\r\n", "en"),
    ]
    assert first[1].read().documents[0].text == TEXT


def test_a_case_is_the_same_when_its_files_move_and_another_when_they_change(folder: Path) -> None:
    (before,) = read_cases(write(folder, GOOD))
    (folder / "r.txt").rename(folder / "sub" / "other.txt")
    (moved,) = read_cases(write(folder, GOOD | {"radiology": ["sub/other.txt"]}))
    assert moved.digest == before.digest
    (folder / "sub" / "other.txt").write_text(TEXT + ".")
    with pytest.raises(InputError, match="another text than when the run began"):
        moved.read()
    (changed,) = read_cases(folder / "cases.jsonl")
    assert changed.digest != before.digest


def test_a_megabyte_of_text_is_a_report(folder: Path) -> None:
    (folder / "r.txt").write_text("word " * 200_000)
    assert len(read_cases(write(folder, GOOD))[0].read().documents[0].text) == 1_000_000


def test_all_problems_are_found_at_once(folder: Path) -> None:
    lines = [GOOD | {"case": f"c-{n}", "scans": [f"s-{n}"], "age": -1} for n in range(9)]
    path = write(folder, GOOD, *lines)
    cases, problems = check_cases(path)
    assert (len(cases), len(problems)) == (1, 9)
    with pytest.raises(InputError) as error:
        read_cases(path)
    line = str(error.value)
    assert line.startswith(f"{path}:2: age: found -1, expected a whole number of years, 0 to 120")
    assert f"also wrong: {path}:3 (age), {path}:4 (age)" in line
    assert "and 3 more; `tumorchain engine plan` lists all" in line
    assert "\n" not in line


BROKEN_LINES: dict[str, tuple[Any, str]] = {
    "no JSON": ("{", "JSON: found"),
    "a list": ("[]", "JSON: found []"),
    "a number": ("3", "JSON: found 3"),
    "deep nesting": ("[" * 10**5, "JSON: found too many nested brackets"),
    "a huge number": ('{"age": ' + "9" * 5000 + "}", "JSON: found"),
    "a field twice": ('{"case": "a", "case": "b"}', "JSON: found 'case' twice"),
    "an unknown field": (GOOD | {"report": "r.txt"}, "report: found an unknown field"),
    "a label map": (GOOD | {"labels": "x"}, "labels: found an unknown field"),
    "no case": ({k: v for k, v in GOOD.items() if k != "case"}, "case: found no such field"),
    "no patient": ({k: v for k, v in GOOD.items() if k != "patient"}, "patient: found no such"),
    "no scans": ({k: v for k, v in GOOD.items() if k != "scans"}, "scans: found no such field"),
    "no report": ({k: v for k, v in GOOD.items() if k != "radiology"}, "radiology: found no such"),
    "a case that is a number": (GOOD | {"case": 7}, "case: found 7"),
    "an empty case": (GOOD | {"case": " "}, 'case: found " "'),
    "a case of two lines": (GOOD | {"case": "a\nb"}, "printable characters"),
    "a long case": (GOOD | {"case": "x" * 300}, "at most 200 printable"),
    "a case with spaces": (GOOD | {"case": " a"}, "without spaces around"),
    "a case with half a character": ('{"case": "\\ud800"}', "case: found"),
    "a patient that is null": (GOOD | {"patient": None}, "patient: found null"),
    "a patient with a control character": (GOOD | {"patient": "\x1b[2J"}, "printable"),
    "scans as text": (GOOD | {"scans": "s-1"}, 'scans: found "s-1", expected a list'),
    "scans of numbers": (GOOD | {"scans": [1]}, "scans: found [1], expected a list"),
    "an empty scan": (GOOD | {"scans": [""]}, "scans: found"),
    "no scan": (GOOD | {"scans": []}, "scans: found []"),
    "a scan twice": (GOOD | {"scans": ["s", "s"]}, "expected each once"),
    "a scan with NUL": (GOOD | {"scans": ["s\0"]}, "NUL"),
    "radiology as text": (GOOD | {"radiology": "r.txt"}, 'radiology: found "r.txt"'),
    "radiology empty": (GOOD | {"radiology": []}, "radiology: found []"),
    "a report twice": (GOOD | {"radiology": ["r.txt"] * 2}, "expected each once"),
    "pathology as object": (GOOD | {"pathology": {}}, "pathology: found {}"),
    "a path with NUL": (GOOD | {"radiology": ["r\0.txt"]}, "NUL"),
    "a path with half a character": (GOOD | {"radiology": ["\ud800"]}, "radiology: found"),
    "a missing report": (GOOD | {"radiology": ["none.txt"]}, "'none.txt', no such file"),
    "a missing pathology": (GOOD | {"pathology": ["none.txt"]}, "pathology: found 'none.txt'"),
    "a long path": (GOOD | {"radiology": ["x" * 300]}, "file name too long"),
    "a path through a file": (GOOD | {"radiology": ["r.txt/a"]}, "not a directory"),
    "an absolute path": (GOOD | {"radiology": ["/etc/hostname"]}, "an absolute path"),
    "a path that leads out": (GOOD | {"radiology": ["../outside.txt"]}, "leads out of the list"),
    "a folder": (GOOD | {"radiology": ["sub"]}, "'sub': a folder"),
    "age as text": (GOOD | {"age": "64"}, 'age: found "64"'),
    "age as fraction": (GOOD | {"age": 64.5}, "age: found 64.5"),
    "age as truth": (GOOD | {"age": True}, "age: found true"),
    "a negative age": (GOOD | {"age": -1}, "age: found -1"),
    "an age of 400": (GOOD | {"age": 400}, "age: found 400, expected a whole number of years"),
    "an age that is no number": ('{"case":"c","patient":"p","scans":["s"],"radiology":["r.txt"],'
                                 '"age": NaN}', "JSON: found NaN"),
    "sex F": (GOOD | {"sex": "F"}, 'sex: found "F", expected female or male'),
    "sex as list": (GOOD | {"sex": ["male"]}, "sex: found"),
    "language in full": (GOOD | {"language": "english (US)"}, "language: found"),
    "language as number": (GOOD | {"language": 1}, "language: found 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN_LINES)
def test_a_broken_line_is_refused_in_one_line(name: str, folder: Path) -> None:
    line, found = BROKEN_LINES[name]
    path = write(folder, GOOD | {"case": "c-0", "scans": ["s-0"], "patient": "p-1"}, line)
    with pytest.raises(InputError) as error:
        read_cases(path)
    assert str(error.value).startswith(f"{path}:2: ")
    assert found in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 900


BROKEN_REPORTS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "no text, expected a report"),
    "only spaces": (b" \r\n\t\n", "no text, expected a report"),
    "only a byte order mark": (b"\xef\xbb\xbf", "no text, expected a report"),
    "Latin-1": ("Läsion".encode("latin-1"), "byte 0xe4 at 1, which is not UTF-8"),
    "Windows-1252": ("3 cm, 20 \u20ac".encode("cp1252"), "byte 0x80 at 9"),
    "UTF-16": (TEXT.encode("utf-16"), "UTF-16, expected UTF-8; save it as UTF-8"),
    "UTF-16 of the other end": (b"\xfe\xff" + TEXT.encode("utf-16-be"), "UTF-16"),
    "UTF-16 without a mark": (TEXT.encode("utf-16-le"), "a NUL character at 1"),
    "NUL": (b"a lesion\0of 3 cm", "a NUL character at 8"),
    "cut within a character": (TEXT.encode() + b"\xe2\x82", "which is not UTF-8"),
    "half a character": (b"\xed\xa0\x80", "which is not UTF-8"),
    "a picture": (b"\x89PNG\r\n\x1a\n" + bytes(100), "byte 0x89 at 0"),
    "too large": (b"word " * (MOST_BYTES // 5 + 1), "expected at most 4,000,000"),
}


@pytest.mark.parametrize("name", BROKEN_REPORTS)
def test_a_broken_report_is_refused_in_one_line(name: str, folder: Path) -> None:
    content, found = BROKEN_REPORTS[name]
    (folder / "r.txt").write_bytes(content)
    path = write(folder, GOOD)
    with pytest.raises(InputError) as error:
        read_cases(path)
    assert f"{path}:1: radiology: found 'r.txt': " in str(error.value)
    assert found in str(error.value)
    assert "\n" not in str(error.value)


def _loop(folder: Path) -> None:
    (folder / "r.txt").unlink()
    (folder / "r.txt").symlink_to("r.txt")


def _leads_out(folder: Path) -> None:
    (folder / "r.txt").unlink()
    (folder / "r.txt").symlink_to("../outside.txt")


def _folder_leads_out(folder: Path) -> None:
    (folder / "sub").rmdir()
    (folder / "sub").symlink_to("..")


def _pipe(folder: Path) -> None:
    (folder / "r.txt").unlink()
    os.mkfifo(folder / "r.txt")


@pytest.mark.parametrize(
    ("change", "report", "found"),
    [
        (_loop, "r.txt", "a circle of links"),
        (_leads_out, "r.txt", "leads out of the list's folder"),
        (_folder_leads_out, "sub/outside.txt", "leads out of the list's folder"),
        (_pipe, "r.txt", "found 'r.txt': no regular file"),
    ],
)
def test_a_path_that_is_no_report(
    change: Callable[[Path], None], report: str, found: str, folder: Path
) -> None:
    change(folder)
    with pytest.raises(InputError) as error:
        read_cases(write(folder, GOOD | {"radiology": [report]}))
    assert found.replace("a circle of links", "") in str(error.value)
    assert "\n" not in str(error.value)


OTHER = {"case": "c-2", "patient": "p-2", "scans": ["s-2"], "radiology": ["q.txt"]}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"case": "c-1"}, "case: found 'c-1' of {path}:1 again"),
        ({"scans": ["s-1"]}, "scans: found 's-1' of {path}:1 again"),
        ({"radiology": ["r.txt"]}, "radiology: found 'r.txt' of {path}:1 again"),
        ({"radiology": ["sub/../r.txt"]}, "radiology: found 'r.txt' of {path}:1 again"),
        ({"patient": "p-1", "sex": "male"}, "sex: found male, expected female, as of the same"),
    ],
)
def test_lines_that_contradict_each_other(change: dict, found: str, folder: Path) -> None:
    path = write(folder, GOOD | {"sex": "female"}, OTHER | change)
    with pytest.raises(InputError) as error:
        read_cases(path)
    assert f"{path}:2: " + found.format(path=path) in str(error.value)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "cases: found none"),
        (b"\n\n", "cases: found none"),
        (json.dumps(GOOD).encode("utf-16"), "encoding: found UTF-16"),
        (json.dumps(GOOD | {"case": "ä"}, ensure_ascii=False).encode("latin-1"), "not UTF-8"),
        (json.dumps(GOOD).encode() + b"\n\xff\xff", "2: encoding: found bytes that are not UTF-8"),
    ],
)
def test_a_list_that_is_none(content: bytes, found: str, folder: Path) -> None:
    (folder / "cases.jsonl").write_bytes(content)
    with pytest.raises(InputError) as error:
        read_cases(folder / "cases.jsonl")
    assert found in str(error.value)


@pytest.mark.parametrize("name", ["none.jsonl", "sub", "r.txt/x"])
def test_a_list_that_is_not_there(name: str, folder: Path) -> None:
    with pytest.raises(InputError, match="expected a list of cases as JSON lines"):
        read_cases(folder / name)
