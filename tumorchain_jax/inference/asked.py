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


def list_questions(case: CasePaths, questions: Sequence[str]) -> list[AskedPaths]:
    """Name the report of each question about a scan; one question has the scan's own folder."""
    if len(questions) == 1:
        return [AskedPaths(case, questions[0], case.name, case.output)]
    names = [f"question-{number}" for number in range(1, len(questions) + 1)]
    # A single scan's folder is the output itself.
    inside = "" if case.output.name != Path(case.name).name else f"{case.name}/"
    return [
        AskedPaths(case, question, f"{inside}{name}", case.output / name)
        for name, question in zip(names, questions, strict=True)
    ]


def refuse_other_questions(done: Sequence[AskedPaths]) -> None:
    """Refuse to complete a run of another question: its answers would stand in one table."""
    for each in done:
        path = each.output / RECORD
        earlier = json.loads(path.read_bytes()).get("question")
        if earlier != each.question:
            hint = "ask the same, choose another folder, or --overwrite"
            raise InputError(path, "question", repr(earlier), repr(each.question), hint)
