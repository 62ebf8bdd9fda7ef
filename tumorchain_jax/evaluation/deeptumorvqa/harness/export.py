"""Write a question file as a task of inspect_ai: `task.py` and `samples.jsonl`."""

import json
from pathlib import Path
from typing import Any

from tumorchain_jax.core.files import atomic_directory
from tumorchain_jax.evaluation.deeptumorvqa.fixed import Format
from tumorchain_jax.evaluation.deeptumorvqa.questions import Question, QuestionFile
from tumorchain_jax.evaluation.deeptumorvqa.scans import Scans
from tumorchain_jax.evaluation.deeptumorvqa.subtypes import UNITS

TASK = Path(__file__).with_name("inspect_task.txt")
_LETTER = "Answer with one letter."
_FREE = {"binary": "Answer yes or no.", "categorical": "Answer in a few words."}


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


def _row(question: Question, folder: Scans, form: Format) -> dict[str, Any]:
    return {
        "id": question.qid,
        "image_id": question.image_id,
        "ct": str(folder.ct(question.image_id).resolve()),
        "input": _asked(question, form),
        "target": question.truth(form),
        "format": form,
        "subtype": question.subtype.name,
        "options": dict(question.options),
    }


def _asked(question: Question, form: Format) -> str:
    if form == "mc":
        options = [f"{letter}: {text}" for letter, text in question.options.items()]
        return "\n".join([question.question, *options, _LETTER])
    if question.subtype.quantity is not None:
        unit = UNITS[question.subtype.quantity]
        return f"{question.question}\nAnswer with one number{f' in {unit}' if unit else ''}."
    return f"{question.question}\n{_FREE[question.subtype.kind]}"
