"""`tumorchain deeptumorvqa score`: from files to a document that can be scored again."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.json_fields import read_json
from tumorchain_jax.evaluation.deeptumorvqa.fixed import FORMATS, Format
from tumorchain_jax.evaluation.deeptumorvqa.predictions import read_answers
from tumorchain_jax.evaluation.deeptumorvqa.questions import (
    VERSIONS,
    Version,
    read_questions,
)
from tumorchain_jax.evaluation.deeptumorvqa.score import RULES, Item, item_values, score
from tumorchain_jax.evaluation.deeptumorvqa.subtypes import SUBTYPES

BENCHMARK = "DeepTumorVQA"
_HINT = "take what `tumorchain deeptumorvqa score --json` printed"


def score_files(
    questions: Path,
    answers: Path,
    form: Format,
    rules: Sequence[str],
    *,
    version: Version | None = None,
    partial: bool = False,
) -> dict[str, Any]:
    """Score a file of answers to a question file.

    Args:
        rules: of `RULES`.
        version: of the benchmark, where the question file does not tell.
        partial: some questions may be without an answer; the score is of the others.

    Returns:
        The document: what was read, with its sha256, the scores of each rule set, and the items,
        from which `rescore` makes the same document.

    Raises:
        InputError: a file cannot be used.
    """
    asked = read_questions(questions, version)
    given = read_answers(answers, form, asked, partial)
    items = [
        Item(
            q.qid,
            q.image_id,
            q.subtype.name,
            dict(q.options),
            q.truth(form),
            given.outputs[q.qid],
            given.upstream[q.qid],
            given.not_answerable.get(q.qid, ""),
        )
        for q in asked.questions
        if q.qid in given.outputs
    ]
    about = {
        "benchmark": BENCHMARK,
        "version": asked.version,
        "format": form,
        "synthetic": asked.synthetic,
        "model": given.model,
        "input": given.shown,
        "questions": _file(asked.name, asked.sha256, len(asked.questions)),
        "answers": _file(given.name, given.sha256, len(given.outputs)),
    }
    return _document(about, items, form, rules)


def rescore(path: Path) -> dict[str, Any]:
    """Score the items of a document again.

    Raises:
        InputError: the file is no such document.
    """
    found = read_json(path, _HINT)
    about = {name: value for name, value in found.items() if name not in ("scores", "items")}
    form, rules = found.get("format"), found.get("scores")
    known = (about.get("benchmark"), about.get("version") in VERSIONS, form in FORMATS)
    if known != (BENCHMARK, True, True) or not isinstance(rules, dict) or set(rules) - set(RULES):
        raise InputError(path, "document", "something else", "a score of answers", _HINT)
    try:
        items = [Item(**values) for values in found["items"]]
        sound = all(_is_sound(item, found["format"]) for item in items)
    except (KeyError, TypeError) as error:
        raise InputError(path, "items", repr(error)[:80], "a list of items", _HINT) from error
    _check_whole(path, items, about)
    if not sound:
        raise InputError(path, "items", "fields of another kind", "texts, known subtypes", _HINT)
    assert form is not None
    return _document(about, items, form, list(rules))


def _check_whole(path: Path, items: Sequence[Item], about: Mapping[str, Any]) -> None:
    """Refuse items of which some were added or left out."""
    qids = {item.qid for item in items}
    stated = about.get("answers", {}).get("n") if isinstance(about.get("answers"), dict) else None
    if len(qids) < len(items) or stated != len(items):
        found = f"{len(items)} items of {len(qids)} questions"
        raise InputError(path, "items", found, f"{stated}, each question once", _HINT)


def to_json(document: Mapping[str, Any]) -> str:
    """Return the bytes of a document as `--json` prints them, without the last line end."""
    return json.dumps(document, ensure_ascii=True, allow_nan=False)


def _document(
    about: Mapping[str, Any], items: Sequence[Item], form: Format, rules: Sequence[str]
) -> dict[str, Any]:
    return {**about, "scores": score(items, form, rules), "items": item_values(items)}


def _file(name: str, sha256: str, n: int) -> dict[str, Any]:
    return {"file": name, "sha256": sha256, "n": n}


def _is_sound(item: Item, form: Format) -> bool:
    texts = [item.qid, item.image_id, item.truth, item.output, item.upstream_text]
    texts.append(item.not_answerable)
    options = [*item.options, *item.options.values()]
    plain = item.subtype in SUBTYPES and all(isinstance(text, str) for text in (*texts, *options))
    return plain and (form != "mc" or item.truth in item.options)
