import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.deeptumorvqa.importer import inspect, inspected_text
from tumorchain_jax.evaluation.deeptumorvqa.questions import read_questions


def test_facts_and_one_form(rows: list[dict[str, Any]], write: Callable, tmp_path: Path) -> None:
    source, output = write("q.csv", rows), tmp_path / "out.json"
    scans = tmp_path / "scans"
    scans.mkdir()
    (scans / "ct1.nii.gz").write_bytes(b"a CT")
    facts = inspect(source, scans=scans, output=output)
    assert facts["sha256"] == hashlib.sha256(source.read_bytes()).hexdigest()
    assert facts["scans"] == {"ct1": hashlib.sha256(b"a CT").hexdigest()}
    assert facts["missing_scans"] == ["ct2"]
    assert facts["options"] == {"2": 1, "3": 1, "4": 1}
    text = inspected_text(facts)
    assert "3 questions about 2 CTs" in text
    assert "1 CTs there, 1 missing: ct2" in text
    again = read_questions(output)
    assert again.questions == read_questions(source).questions
    assert again.version == "v1"
    with pytest.raises(InputError, match="there already"):
        inspect(source, output=output)
