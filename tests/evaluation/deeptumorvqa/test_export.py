import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
from lmms_yaml import read_lmms_yaml

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.deeptumorvqa.fixed import judge
from tumorchain_jax.evaluation.deeptumorvqa.harness.export import export, export_lmms
from tumorchain_jax.evaluation.deeptumorvqa.questions import read_questions
from tumorchain_jax.evaluation.deeptumorvqa.subtypes import SUBTYPES
from tumorchain_jax.evaluation.slices.policy import POLICIES


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


def test_lmms_task_is_read_and_scored(
    rows: list[dict[str, Any]],
    write: Callable,
    tmp_path: Path,
) -> None:
    for name in ("ct1", "ct2"):
        image = nib.Nifti1Image(
            np.random.default_rng(0).integers(-1000, 1000, (8, 8, 8), np.int16), np.eye(4)
        )
        image.to_filename(tmp_path / f"{name}.nii.gz")
    asked = read_questions(write("q.json", rows))
    policy, task = POLICIES["three-planes"], tmp_path / "task"
    assert export_lmms(asked, tmp_path, "mc", policy, task) == (2, 1)  # a volume is left out
    config = read_lmms_yaml(task / "deeptumorvqa_v2_mc.yaml")
    assert (config["dataset_path"], config["test_split"]) == ("json", "test")
    lines = (task / config["dataset_kwargs"]["data_files"]["test"]).read_text().splitlines()
    docs = [json.loads(line) for line in lines]
    assert [doc[config["doc_to_target"]] for doc in docs] == ["D", "B"]
    assert [each.mode for each in config["doc_to_visual"](docs[0])] == ["RGB"] * 3
    text = config["doc_to_text"](docs[0])
    assert "Image 3 of 3: sagittal" in text
    assert text.endswith("D: Mild\nAnswer with one letter.")
    said = ["<answer>D</answer>", "I cannot tell."]
    found = [config["process_results"](doc, [each]) for doc, each in zip(docs, said, strict=True)]
    values = {
        metric["metric"]: metric["aggregation"]([each[metric["metric"]] for each in found])
        for metric in config["metric_list"]
    }
    assert values == {"of_asked": 0.5, "of_answered": 1.0, "answered": 0.5}
