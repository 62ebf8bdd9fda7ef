"""Stages that a text states: our own texts, and public pathology reports with registry labels."""

import json
from pathlib import Path

import pytest

from tumorchain_jax.engine.text.stages import find_stages, stated


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Pathologic stage: pT3 pN1b pM0.", ("T3", "N1b", "M0")),
        ("AJCC pT3NO (7th edition)", ("T3", "N0", None)),
        ("pT4aN2aMX", ("T4a", "N2a", "MX")),
        ("Stage by imaging: T2 N0 M0.", ("T2", "N0", "M0")),
        ("cT2 N0, after surgery pT3 pN1", ("T3", "N1", None)),
        ("ypT1b ypN0", ("T1b", "N0", None)),
        ("TNM: Tis", ("Tis", None, None)),
        ("(p T3, p N2)", ("T3", "N2", None)),
        ("T-STAGE: T3, N-STAGE: N2A, M-STAGE: M0", ("T3", "N2a", "M0")),
        ("PT3\u00a0PN1B\r\nPM0", ("T3", "N1b", "M0")),
        ("pT3 in the colon, pT2 in the rectum", (None, None, None)),
        ("pT4, pT4a", ("T4a", None, None)),
        ("pTX at biopsy, pT2 at resection", ("T2", None, None)),
        ("Compression of T4 and of L1.", (None, None, None)),
        ("Sections T1 to T3 are tumour.", (None, None, None)),
        ("Tumour stage: No nodes. To be discussed.", (None, None, None)),
        ("TNM STAGE: NO DATA", (None, None, None)),
        ("a T2 weighted image", (None, None, None)),
    ],
)
def test_categories_of_a_text(text: str, expected: tuple) -> None:
    mentions = find_stages(text)
    assert tuple(stated(mentions, letter) for letter in "TNM") == expected


def test_mentions_say_where_they_are() -> None:
    text = "Stage: pT3 pNO."
    spans = [(m.value, m.basis, text[m.start : m.end]) for m in find_stages(text)]
    assert spans == [("T3", "pathological", "pT3"), ("N0", "pathological", "pNO")]


def test_public_reports_agree_with_the_registry(shared_data: Path) -> None:
    """T where one is read; a quarter of the reports state none, nearly all state no M."""
    file = shared_data / "tcga-pathology-tnm" / "reports.jsonl"
    reports = [json.loads(line) for line in file.read_text().splitlines()]
    read = {
        letter: [(stated(find_stages(r["text"]), letter), r[letter]) for r in reports]
        for letter in "TM"
    }
    answered = [(said, label) for said, label in read["T"] if said and label]
    assert len(answered) >= 0.7 * len(reports)
    assert sum(said[:2] == label[:2] for said, label in answered) / len(answered) >= 0.97
    invented = [said for said, label in read["M"] if said and said != "MX" and not label]
    assert len(invented) <= 0.05 * len(reports)
