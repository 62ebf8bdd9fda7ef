"""Whole reports of many kinds: capitals, forms, tables, letters, wrapped and broken lines."""

from pathlib import Path

import pytest

from tumorchain_jax.engine.case import Case, Document
from tumorchain_jax.engine.text.extract import extract

_PATIENT = ("age", "sex", "history")


def _reports() -> dict[str, tuple[str, set[str]]]:
    text = Path(__file__).with_name("own_reports.txt").read_text(encoding="utf-8")
    found = {}
    for block in text.split("=== ")[1:]:
        name, _, rest = block.partition("\n")
        report, _, facts = rest.partition("\n---\n")
        found[name] = report, set(facts.splitlines())
    return found


REPORTS = _reports()


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_says_this_and_nothing_else(name: str) -> None:
    text, expected = REPORTS[name]
    kind = "pathology" if name.startswith(("pathology", "American")) else "radiology"
    facts = extract(Case("c", "p", ("s",), (Document(kind, text),)))
    present = [f for f in facts if f.is_current and f.attribute not in _PATIENT]
    told = {
        f"{'' if f.certainty == 'definite' else '?'}{f.attribute}={f.value}@{f.part or f.organ}"
        for f in present
    }
    assert told == expected
