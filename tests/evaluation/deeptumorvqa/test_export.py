import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.deeptumorvqa.fixed import judge
from tumorchain_jax.evaluation.deeptumorvqa.harness.export import export
from tumorchain_jax.evaluation.deeptumorvqa.questions import read_questions
from tumorchain_jax.evaluation.deeptumorvqa.subtypes import SUBTYPES


@pytest.mark.parametrize("form", ["mc", "freeform"])
def test_samples_say_what_is_asked(
    rows: list[dict[str, Any]], write: Callable, tmp_path: Path, form: Any
) -> None:
    for name in ("ct1", "ct2"):
        (tmp_path / f"{name}.nii.gz").touch()
    asked = read_questions(write("q.json", rows))
    assert export(asked, tmp_path, form, tmp_path / "task") == 3
    lines = (tmp_path / "task" / "samples.jsonl").read_text().splitlines()
    samples = [json.loads(line) for line in lines]
    assert Path(samples[2]["ct"]) == (tmp_path / "ct2.nii.gz").resolve()
    last = {"mc": "C: 220.0\nAnswer with one letter.", "freeform": "Answer with one number in cm3."}
    assert samples[2]["input"].endswith(last[form])
    for sample in samples:  # the target is a right answer by the rules that the task uses
        about = SUBTYPES[sample["subtype"]], form, sample["options"], sample["target"]
        assert judge(*about, sample["target"]).score == 1
    ast.parse((tmp_path / "task" / "task.py").read_text())
    with pytest.raises(InputError, match="there already"):
        export(asked, tmp_path, form, tmp_path / "task")


def test_missing_ct(rows: list[dict[str, Any]], write: Callable, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="ct1"):
        export(read_questions(write("q.json", rows)), tmp_path, "mc", tmp_path / "task")
    assert not (tmp_path / "task").exists()
