import csv
import re
from pathlib import Path
from urllib.parse import unquote

from tumorchain_jax.report.index import SUMMARY, write_index

EVIL = "<script>alert(1)</script>"


def record(scan: str, **changes: object) -> dict[str, object]:
    fields = {"scan": scan, "question": "Where?", "conclusion": "liver", "warnings": ["a", "b"]}
    return fields | changes


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / SUMMARY).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_index_and_csv_hold_a_row_for_each_report(tmp_path: Path) -> None:
    records = {
        "a": record("/home/jane.doe/a.nii.gz"),
        "b c/ct": record("b c/ct.nii.gz", headline="cannot tell", confidence={"value": 0.25}),
        "c": record("c.nii.gz", organs={"liver": {"volume_ml": 1500.25}}),
    }
    for _ in range(2):  # over an earlier one
        index = write_index(tmp_path, records)
    html = index.read_text("utf-8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index.html", "summary.csv"]
    *found, last = rows(tmp_path)
    assert last["liver_ml"] == "1500.250"
    assert "liver: 1500.2 ml" in html
    assert found == [
        {
            "scan": "a.nii.gz",
            "question": "Where?",
            "answer": "liver",
            "confidence": "",
            "warnings": "a; b",
            "report": "a/report.html",
            "liver_ml": "",
        },
        {
            "scan": "ct.nii.gz",
            "question": "Where?",
            "answer": "cannot tell",
            "confidence": "0.250",
            "warnings": "a; b",
            "report": "b c/ct/report.html",
            "liver_ml": "",
        },
    ]
    links = [unquote(link) for link in re.findall(r'href="([^"]+)"', html)]
    assert links == ["a/report.html", "b c/ct/report.html", "c/report.html", "summary.csv"]
    assert "ct.nii.gz (b c/ct)" in html
    assert "jane.doe" not in html


def test_text_from_outside_is_neither_markup_nor_a_formula(tmp_path: Path) -> None:
    evil = record(EVIL, question=EVIL, conclusion="=HYPERLINK(1)", warnings=[EVIL, "x\udcff"])
    html = write_index(tmp_path, {f'"{EVIL}': evil}).read_text("utf-8")
    assert "<script" not in html
    assert rows(tmp_path)[0]["answer"] == "'=HYPERLINK(1)"
