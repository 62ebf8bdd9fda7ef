"""Write a question file as a task of inspect_ai (whole CTs) or lmms-eval (slices)."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tqdm import tqdm

from tumorchain_jax.core.files import atomic_directory
from tumorchain_jax.evaluation.deeptumorvqa.asking import ANSWER, asked_text, not_answerable
from tumorchain_jax.evaluation.deeptumorvqa.fixed import Format
from tumorchain_jax.evaluation.deeptumorvqa.questions import Question, QuestionFile
from tumorchain_jax.evaluation.deeptumorvqa.scans import Scans
from tumorchain_jax.evaluation.slices.lmms import Scan, write_task
from tumorchain_jax.evaluation.slices.policy import SlicePolicy
from tumorchain_jax.scan.read import read_ct

TASK = Path(__file__).with_name("inspect_task.txt")
UTILS = Path(__file__).with_name("lmms_utils.txt")


def export(asked: QuestionFile, scans: Path, form: Format, output: Path) -> int:
    """Write the task into a new folder; returns the number of samples.

    Args:
        scans: folder of the CTs, which `samples.jsonl` names by their paths.

    Raises:
        InputError: a CT is missing, or the folder is there already.
    """
    folder = Scans(scans)
    rows = [_row(question, folder, form) for question in asked.questions]
    with atomic_directory(output) as part:
        (part / "task.py").write_bytes(TASK.read_bytes())
        (part / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return len(rows)


def export_lmms(
    asked: QuestionFile, scans: Path, form: Format, policy: SlicePolicy, output: Path
) -> tuple[int, int]:
    """Write the task of lmms-eval; questions that slices cannot answer are left out.

    Returns:
        how many questions were written, and left out.

    Raises:
        InputError: a CT is missing, or the folder is there already.
    """
    folder = Scans(scans)
    fit = [q for q in asked.questions if not not_answerable(q.subtype, policy)]

    def each_scan() -> Iterator[Scan]:
        for image_id in tqdm(dict.fromkeys(q.image_id for q in fit), "CTs", disable=None):
            rows = [_lmms_row(q, folder, form) for q in fit if q.image_id == image_id]
            yield read_ct(folder.ct(image_id)), rows

    name = f"deeptumorvqa_{asked.version}_{form}"
    count = write_task(output, name, each_scan(), policy, UTILS, ANSWER)
    return count, len(asked.questions) - count


def _lmms_row(question: Question, folder: Scans, form: Format) -> dict[str, Any]:
    row = _row(question, folder, form)
    asked, options = row.pop("input"), json.dumps(row.pop("options"))
    del row["ct"]
    return {**row, "question": asked, "options": options}


def _row(question: Question, folder: Scans, form: Format) -> dict[str, Any]:
    return {
        "id": question.qid,
        "image_id": question.image_id,
        "ct": str(folder.ct(question.image_id).resolve()),
        "input": asked_text(question, form),
        "target": question.truth(form),
        "format": form,
        "subtype": question.subtype.name,
        "options": dict(question.options),
    }
