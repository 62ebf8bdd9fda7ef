"""Check the public question files and CTs where a user has them; write one form of both."""

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

from tqdm import tqdm

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import write_file
from tumorchain_jax.evaluation.deeptumorvqa.questions import (
    Question,
    QuestionFile,
    Version,
    read_questions,
)
from tumorchain_jax.evaluation.deeptumorvqa.scans import Scans
from tumorchain_jax.evaluation.deeptumorvqa.subtypes import TYPES

SHOWN = 5


def inspect(
    path: Path,
    version: Version | None = None,
    scans: Path | None = None,
    output: Path | None = None,
) -> dict[str, Any]:
    """Describe a question file, with the sha256 of it and of the CTs that were found.

    Args:
        scans: folder of CTs, of which each is read once for its sha256.
        output: new file, in version 2's form; it names the file it was made from.

    Raises:
        InputError: the file cannot be used, or `output` is there already.
    """
    if output and output.exists():
        raise InputError(output, "output", "there already", "a new file", "name another")
    asked = read_questions(path, version)
    images = asked.images
    facts: dict[str, Any] = {
        "file": asked.name,
        "sha256": asked.sha256,
        "version": asked.version,
        "synthetic": asked.synthetic,
        "questions": len(asked.questions),
        "images": len(images),
        "types": dict(Counter(question.subtype.type for question in asked.questions)),
        "subtypes": dict(Counter(question.subtype.name for question in asked.questions)),
        "options": {
            str(count): n
            for count, n in sorted(Counter(len(q.options) for q in asked.questions).items())
        },
    }
    if scans:
        folder = Scans(scans)
        found = {image: place for image in images if (place := folder.find(image))}
        facts["scans"] = {
            image: _sha256(place) for image, place in tqdm(found.items(), "CTs", disable=None)
        }
        facts["missing_scans"] = [image for image in images if image not in found]
    if output:
        write_file(output, (json.dumps(_document(asked), indent=1) + "\n").encode())
        facts["written"] = str(output)
    return facts


def inspected_text(facts: dict[str, Any]) -> str:
    """Put the facts of `inspect` into lines."""
    synthetic = f", SYNTHETIC: {facts['synthetic']}" if facts["synthetic"] else ""
    options = ", ".join(f"{n} of {count}" for count, n in facts["options"].items())
    lines = [
        f"{facts['file']}: DeepTumorVQA {facts['version']}{synthetic}",
        f"sha256 {facts['sha256']}",
        f"{facts['questions']} questions about {facts['images']} CTs; options: {options}",
        *(f"  {name:<20}{n:>8}" for name, n in facts["types"].items()),
        f"{len(facts['subtypes'])} of 42 subtypes",
        *(f"  {name:<40}{n:>8}" for name, n in facts["subtypes"].items()),
    ]
    if "scans" in facts:
        missing = facts["missing_scans"]
        more = f": {', '.join(missing[:SHOWN])}{' ...' if len(missing) > SHOWN else ''}"
        lines.append(
            f"{len(facts['scans'])} CTs there, {len(missing)} missing{more * bool(missing)}"
        )
    if "written" in facts:
        lines.append(f"written to {facts['written']}")
    return "\n".join(lines)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _document(asked: QuestionFile) -> dict[str, Any]:
    return {
        "version": "1" if asked.version == "v1" else "2.0.0",
        "synthetic": asked.synthetic,
        **({"seeds": asked.seeds} if asked.seeds else {}),
        "imported_from": {"file": asked.name, "sha256": asked.sha256},
        "num_questions": len(asked.questions),
        "question_types": list(TYPES),
        "questions": [_row(question) for question in asked.questions],
    }


def _row(question: Question) -> dict[str, Any]:
    return {
        "qid": question.qid,
        "image_id": question.image_id,
        **question.facts,
        "question": question.question,
        "answer": question.answer,
        "mc_question": question.mc_question,
        "correct_option": question.correct_option,
        "question_type": question.subtype.type,
        "question_subtype": question.subtype.name,
    }
