import json
from pathlib import Path
from typing import Any

import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.deeptumorvqa.cases import check_cases, checked_text

CASES = "deeptumorvqa-cases/cases.jsonl"


def test_upstream_is_exact(shared_data: Path) -> None:
    checked = check_cases(shared_data / CASES, "upstream")
    assert (checked.equal, checked.cases) == (427, 427), checked_text(checked)


def test_v1_is_exact(shared_data: Path) -> None:
    checked = check_cases(shared_data / CASES, "v1")
    assert (checked.equal, checked.cases) == (415, 415), checked_text(checked)


def test_fixed_verdicts(shared_data: Path) -> None:
    checked = check_cases(shared_data / CASES, "fixed")
    assert checked.cases == 415
    assert checked.equal >= 403, checked_text(checked)
    assert checked.false_credits == 0


@pytest.fixture
def case() -> dict[str, object]:
    return {
        "id": "c",
        "op": "score",
        "format": "mc",
        "subtype": "splenomegaly grading",
        "kind": "categorical",
        "options": {"A": "Normal", "B": "Mild"},
        "truth": "A",
        "output": "B",
        "upstream": {"reading": "B", "parsed": 1, "score": 0.0},
        "v1_third_party": {"score": 0.0},
        "fixed": {"verdict": "abstain", "why": "refusal", "reading": None, "score": None},
    }


def test_difference_is_shown(case: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text(json.dumps(case))
    checked = check_cases(path, "fixed")
    assert (checked.equal, checked.false_credits, checked.readings) == (0, 0, 0)
    assert 'c: expected "abstain", found "wrong"' in checked_text(checked)
    path.write_text(json.dumps({**case, "output": "A"}))
    assert check_cases(path, "fixed").false_credits == 1


def test_bad_cases(case: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text(json.dumps({**case, "op": "guess"}))
    with pytest.raises(InputError, match="op"):
        check_cases(path, "fixed")
    for field in ("truth", "upstream", "options", "fixed"):
        path.write_text(json.dumps({name: v for name, v in case.items() if name != field}))
        with pytest.raises(InputError, match=field):
            check_cases(path, "upstream" if field == "upstream" else "fixed")
    bad: list[tuple[Any, str, Any]] = [
        ("fixed", "options", {"A": 3}),
        ("fixed", "fixed", {}),
        ("fixed", "format", "x"),
        ("v1", "v1_third_party", {}),
        ("upstream", "upstream", []),
    ]
    for rules, name, value in bad:
        path.write_text(json.dumps({**case, name: value}))
        with pytest.raises(InputError, match=rf"cases.jsonl:1: {name}"):
            check_cases(path, rules)
    path.write_text(f"{json.dumps(case)}\n{json.dumps(case)}\n")
    with pytest.raises(InputError, match="id: found c again"):
        check_cases(path, "fixed")
    path.write_text("")
    with pytest.raises(InputError, match="none"):
        check_cases(path, "v1")
