"""The questions of a command line: which report each has, and which are done."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.inference.case_list import CasePaths
from tumorchain_jax.report.folder import RECORD


@dataclass(frozen=True)
class AskedPaths:
    """A question about a scan.

    Attributes:
        name: of its report, relative to the output.
        output: folder of its report.
    """

    case: CasePaths
    question: str
    name: str
    output: Path


def list_questions(case: CasePaths, questions: Sequence[str], root: Path) -> list[AskedPaths]:
    """Name the report of each question about a scan; one question has the scan's own folder.

    Args:
        root: folder of all outputs.
    """
    if len(questions) == 1:
        return [AskedPaths(case, questions[0], case.name, case.output)]
    folders = [case.output / f"question-{n}" for n in range(1, len(questions) + 1)]
    return [
        AskedPaths(case, question, folder.relative_to(root).as_posix(), folder)
        for question, folder in zip(questions, folders, strict=True)
    ]


def refuse_other_questions(done: Sequence[AskedPaths]) -> None:
    """Refuse to complete a run of another question: its answers would stand in one table."""
    for each in done:
        path = each.output / RECORD
        earlier = json.loads(path.read_bytes()).get("question")
        if earlier != each.question:
            hint = "ask the same, choose another folder, or --overwrite"
            raise InputError(path, "question", repr(earlier), repr(each.question), hint)
