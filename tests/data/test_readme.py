"""The examples of data/README.md: `prepare` takes them as they stand, and so does training."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import tumorchain_jax.data
from tumorchain_jax.data.dataset import read_records
from tumorchain_jax.data.pipeline import ExampleSource, Layout
from tumorchain_jax.data.schema import TASK_OF
from tumorchain_jax.phantoms.patient import Patient, write_patient

README = (Path(tumorchain_jax.data.__path__[0]) / "README.md").read_text()


def block(name: str) -> str:
    (found,) = re.findall(rf"^```jsonl? {name}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    return found


@pytest.fixture
def source(written: Path, patients: dict[str, Patient], tmp_path: Path) -> Path:
    """Two phantoms in the place of the scans, and the blocks as files."""
    for name, patient in zip(("a-17", "b-03"), patients.values(), strict=False):
        write_patient(patient, tmp_path / "scans" / name)
    (tmp_path / "scans" / "list.jsonl").write_text(block("scans"))
    (tmp_path / "records.jsonl").write_text(block("records"))
    (tmp_path / "split.json").write_text(block("split"))
    (tmp_path / "config.py").write_text((written / "config.py").read_text())
    return tmp_path


@pytest.mark.parametrize("scans", ["scans", "scans/list.jsonl"])
def test_examples_become_training_rows(
    source: Path, tmp_path: Path, run: Callable[..., dict], scans: str
) -> None:
    data = tmp_path / "data"
    facts = run(source, data, "-i", source / scans, "--split", source)
    assert (facts["written"], facts["skipped"], facts["left_out"]) == (2, 0, 0)
    assert (facts["train_patients"], facts["test_patients"]) == (1, 1)
    records = read_records(data)
    assert len(records) == facts["kept"] == 13
    assert {record.subtask for record in records[:12]} == set(TASK_OF)
    layout = Layout((2, 2, 2), 1, 4, 1, length=800, history="all")
    rows = ExampleSource(data, layout)
    questions = sum(int(rows[row]["segment_ids"].max()) for row in range(len(rows)))
    assert questions == 12
    assert all(rows[row]["loss_mask"].any() for row in range(len(rows)))


def test_tables_name_every_field_and_subtask() -> None:
    (line, *_) = block("records").splitlines()
    for name in (*json.loads(line), "choices", "task", "reasoning"):
        assert f"| `{name}` |" in README
    assert all(f"`{subtask}`" in README for subtask in TASK_OF)
