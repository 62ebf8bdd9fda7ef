"""`tumorchain deeptumorvqa predict`: answer a question file, CT by CT; a stopped run is resumed."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.deeptumorvqa.answerers import Answerer
from tumorchain_jax.evaluation.deeptumorvqa.fixed import Format
from tumorchain_jax.evaluation.deeptumorvqa.predictions import read_answers
from tumorchain_jax.evaluation.deeptumorvqa.questions import Question, QuestionFile


@dataclass(frozen=True)
class Predicted:
    """What came of a run.

    Attributes:
        done: questions that the file had answers to before.
        no_reply: questions that stay without one; the same command asks again.
    """

    done: int
    no_reply: int


def predict(asked: QuestionFile, answerer: Answerer, form: Format, output: Path) -> Predicted:
    """Append a line for each question that the file lacks.

    Raises:
        InputError: the file holds answers of another model, input, format or question file; a
            scan cannot be used.
    """
    common = {
        "format": form,
        "model": answerer.model,
        "input": answerer.shown,
        "questions": asked.sha256,
    }
    done = _begin(output, asked, form, common)
    no_reply = 0
    images: dict[str, list[Question]] = {}
    for question in asked.questions:
        if question.qid not in done:
            images.setdefault(question.image_id, []).append(question)
    for image_id, questions in tqdm(images.items(), "CTs", disable=None):
        texts = answerer.answer(image_id, questions)
        rows = []
        for question, text in zip(questions, texts, strict=True):
            if text is not None:
                unfit = answerer.unfit(question)
                why = {"not_answerable": unfit} if unfit else {}
                rows.append({"qid": question.qid, "raw_output": text, **common, **why})
        no_reply += len(questions) - len(rows)
        _append(output, rows)
    return Predicted(len(done), no_reply)


def check_output(path: Path) -> None:
    """Refuse a name that is not one of JSON lines.

    Raises:
        InputError: it is not.
    """
    if path.suffix.lower() != ".jsonl":
        expected, hint = "a name that ends in .jsonl", "it is a file of JSON lines"
        raise InputError("command line", "-o", str(path), expected, hint)


def _begin(path: Path, asked: QuestionFile, form: Format, common: dict[str, str]) -> set[str]:
    """Read which questions are answered in the file; drop a line that was cut."""
    check_output(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError as error:
        found = error.strerror or str(error)
        raise InputError(path, "output", found, "a file to write to", "choose another") from error
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if not whole:
        os.truncate(path, 0)
        return set()
    os.truncate(path, len(whole))
    kept = read_answers(path, form, asked, partial=True)
    for name, found in (("model", kept.model), ("input", kept.shown)):
        if found != common[name]:
            raise InputError(path, name, found, common[name], "name another file")
    return set(kept.outputs)


def _append(path: Path, rows: Sequence[dict[str, str]]) -> None:
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    with path.open("a") as file:
        file.write(lines)
        file.flush()
        os.fsync(file.fileno())
