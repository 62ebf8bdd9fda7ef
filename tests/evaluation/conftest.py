"""A model that needs no weights: it says what its script says of a scan."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tumorchain_jax.data.schema import TASK_OF, Record, RoundTarget
from tumorchain_jax.inference.analyzer import Analyzer, PreparedCase
from tumorchain_jax.inference.runner import Answer
from tumorchain_jax.models.tumorchain.roi_spec import RoiSpec
from tumorchain_jax.reasoning.organ_cells import organ_cells
from tumorchain_jax.reasoning.trace import Round, Trace
from tumorchain_jax.scan.preprocess import GridTransform, PreparedScan
from tumorchain_jax.weights.measured import Measured

GRID = (4, 8, 8)
ROI = RoiSpec((2, 2, 2), offset=1, slots=8, global_tokens=1)


class ScriptedAnalyzer(Analyzer):
    """Answers with `script(scan's name, question)`, and notes what it was asked."""

    checkpoint: Any = None  # in place of the property

    def __init__(self, script: Callable[[str, str], str]):
        self.script = script
        self.asked: list[tuple[str, str]] = []
        self.rounds: list[int | None] = []
        self.checkpoint = SimpleNamespace(sha256="ab" * 32, measured=Measured())

    def check_question(self, question: str) -> None:
        assert len(question) < 200

    def run(
        self,
        cases: Sequence[tuple[PreparedCase, str]],
        *,
        seed: int = 0,
        rounds: int | None = None,
    ) -> Any:
        self.rounds.append(rounds)
        self.asked += [(case.source, question) for case, question in cases]
        return [
            _answer(case, question, self.script(case.source, question)) for case, question in cases
        ]


def _answer(case: PreparedCase, question: str, text: str) -> Answer:
    trace = Trace((Round(text, (), 1, 1, True, 0.0),), "no_new_organ")
    return Answer(case, question, trace, 0, {})


@pytest.fixture
def case() -> Callable[[str], PreparedCase]:
    def make(name: str) -> PreparedCase:
        labels = np.zeros(GRID, np.uint8)
        labels[:2, :4] = 5
        image = np.linspace(0, 1, labels.size, dtype=np.float32).reshape(GRID)
        scan = PreparedScan(image, GridTransform(GRID, np.eye(4)), (), {})
        return PreparedCase(name, scan, organ_cells(labels, ROI), (), {})

    return make


@pytest.fixture
def record() -> Callable[..., Record]:
    def make(patient: str, subtask: str, question: str, answer: str, **values: Any) -> Record:
        plain: dict[str, Any] = {"scan": 0, "organ": 0, "choices": (), "reasoning": ""}
        return Record(
            patient=patient,
            task=TASK_OF[subtask],
            subtask=subtask,
            question=question,
            answer=answer,
            rounds=(RoundTarget("x"),),
            **{**plain, **values},
        )

    return make


@pytest.fixture
def scripted() -> Callable[[Callable[[str, str], str]], ScriptedAnalyzer]:
    return ScriptedAnalyzer
