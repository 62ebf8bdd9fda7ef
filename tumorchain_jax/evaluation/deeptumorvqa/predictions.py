"""Files of answers: a line of JSON for each question, with `qid` and the model's whole text."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.json_lines import parse_json, parse_line
from tumorchain_jax.evaluation.deeptumorvqa.questions import QuestionFile, read_bytes

_HINT = 'give a line {"qid": ..., "raw_output": ...} for each question, once'
NOT_STATED = "not stated"


@dataclass(frozen=True)
class Answers:
    """The answers of a file.

    Attributes:
        name, sha256: of the file.
        model, shown: who answered, and what of the scan they were shown.
        outputs: qid -> the model's whole text (`raw_output`, else `pred_answer`).
        upstream: qid -> the text that upstream scores (`pred_answer`, else `raw_output`).
        not_answerable: qid -> why it cannot be answered from the input; others are left out.
    """

    name: str
    sha256: str
    model: str
    shown: str
    outputs: Mapping[str, str]
    upstream: Mapping[str, str]
    not_answerable: Mapping[str, str]


def read_answers(path: Path, form: str, asked: QuestionFile, partial: bool = False) -> Answers:
    """Read a file of answers: JSON lines (`.jsonl`), a JSON list, or the benchmark's own results.

    Args:
        form: `mc` or `freeform`; lines that say another `format` are refused.
        asked: the questions; lines that say the sha256 of another file are refused.
        partial: some questions may be without an answer.

    Raises:
        InputError: it cannot be read; a question is answered twice, not at all, or is unknown;
            models, inputs or formats are mixed.
    """
    data = read_bytes(path, "a file of answers")
    qids = {question.qid for question in asked.questions}
    outputs: dict[str, str] = {}
    upstream: dict[str, str] = {}
    unfit: dict[str, str] = {}
    about: dict[str, set[str]] = {
        "format": {form},
        "questions": {asked.sha256},
        "model": set(),
        "input": set(),
    }
    for source, row in _rows(path, data):
        qid = row.get("qid")
        texts = [row.get(name) for name in ("raw_output", "pred_answer")]
        given = [text for text in texts if isinstance(text, str)]
        if not isinstance(qid, str | int) or not given:
            found = repr(row)[:80]
            raise InputError(source, "answer", found, "qid and raw_output or pred_answer", _HINT)
        qid = str(qid)
        if qid in outputs:
            raise InputError(source, "qid", f"{qid} again", "one answer each", _HINT)
        if qid not in qids:
            raise InputError(source, "qid", qid, "a question of the question file", _HINT)
        outputs[qid] = next(filter(None, given), "")
        upstream[qid] = next(filter(None, reversed(given)), "")
        if why := row.get("not_answerable"):
            if not isinstance(why, str):
                raise InputError(source, "not_answerable", repr(why), "a reason, a text", _HINT)
            unfit[qid] = why
        for name, values in about.items():
            if name in row or name in ("model", "input"):
                values.add(str(row.get(name, NOT_STATED)))
                if len(values) > 1:
                    found = " and ".join(sorted(values))
                    raise InputError(source, name, found, "one in a file", "score them apart")
    missing = [each.qid for each in asked.questions if each.qid not in outputs]
    if missing and not partial:
        found = f"none for {len(missing)} of {len(qids)} questions, the first {missing[0]}"
        raise InputError(path, "answers", found, "one each", "answer them, or add --partial")
    stated = {name: next(iter(values), NOT_STATED) for name, values in about.items()}
    digest = hashlib.sha256(data).hexdigest()
    return Answers(path.name, digest, stated["model"], stated["input"], outputs, upstream, unfit)


def _rows(path: Path, data: bytes) -> list[tuple[str, Mapping[str, Any]]]:
    """Read JSON lines, a JSON list, or what the benchmark's runner writes."""
    if path.suffix.lower() == ".jsonl":
        lines = [(f"{path}:{n}", line) for n, line in enumerate(data.splitlines(), 1)]
        return [
            (source, parse_line(line, source, unique=True, hint=_HINT))
            for source, line in lines
            if line.strip()
        ]
    try:
        rows = parse_json(data, finite=False)  # the runner may have written a NaN score
    except (ValueError, RecursionError) as error:
        expected = "a file of JSON; of JSON lines if it ends in .jsonl"
        raise InputError(path, "JSON", str(error)[:200], expected, _HINT) from error
    rows = rows.get("results") if isinstance(rows, dict) else rows
    if not isinstance(rows, list):
        raise InputError(path, "results", repr(rows)[:80], "a list of answers", _HINT)
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise InputError(f"{path}[{number}]", "answer", repr(row)[:80], "an object", _HINT)
    return [(f"{path}[{number}]", row) for number, row in enumerate(rows)]
