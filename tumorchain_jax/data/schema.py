"""One TumorCoT record: a question about a scan and the chain of thought that answers it.

Tasks and subtasks are those of the paper's Table 1. A record is plain JSON on disk.
"""

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from tumorchain_jax.anatomy.organs import ORGANS
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.reasoning.prompt import LETTERS

SUBTASKS: dict[str, tuple[str, ...]] = {
    "position": ("organ_position", "tumor_position"),
    "lesion_attributes": (
        "segment_localization",
        "shape",
        "boundary",
        "density",
        "count",
        "others",
    ),
    "tnm_prediction": ("tumor", "node", "metastasis"),
    "cot_report": ("cot_report",),
}
TASK_OF = {subtask: task for task, subtasks in SUBTASKS.items() for subtask in subtasks}
"""What the choices of a question are called."""


@dataclass(frozen=True)
class RoundTarget:
    """What the model should write in one round.

    Attributes:
        text: the answer of the round.
        look_at: organs (merged labels) whose ROI tokens enter before the round; none in round 1.
        given: the text is context, not a target: an error for the model to recover from.
    """

    text: str
    look_at: tuple[int, ...] = ()
    given: bool = False


@dataclass(frozen=True)
class Record:
    """A question about a scan.

    Attributes:
        patient: who; splits go by it.
        scan: index of the scan in the data set's scan file.
        task, subtask: of Table 1, see `SUBTASKS`.
        organ: merged label that the question is about, 0 for none in particular.
        choices: options of a multiple-choice question, lettered A, B, ...; empty for an open one.
        rounds: the chain, round by round.
        reasoning: the chain's thought, findings to impression to pathology.
        answer: the conclusion.
    """

    patient: str
    scan: int
    task: str
    subtask: str
    organ: int
    question: str
    choices: tuple[str, ...]
    rounds: tuple[RoundTarget, ...]
    reasoning: str
    answer: str

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(dataclasses.asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, line: str, source: object = "record") -> "Record":
        """Read and check one record.

        Raises:
            InputError: not JSON, a field missing or unknown, or a value that cannot be.
        """
        try:
            values = json.loads(line)
            rounds = tuple(
                RoundTarget(**{**r, "look_at": tuple(r["look_at"])}) for r in values["rounds"]
            )
            record = cls(**{**values, "rounds": rounds, "choices": tuple(values["choices"])})
        except (ValueError, KeyError, TypeError) as error:
            fields = ", ".join(field.name for field in dataclasses.fields(cls))
            raise InputError(
                source, "record", repr(str(error)), f"JSON with {fields}", "fix the record"
            ) from error
        record._check(source)
        return record

    def _check(self, source: object) -> None:
        def refuse(field: str, found: Any, expected: str) -> None:
            raise InputError(source, field, repr(found), expected, "fix the record")

        texts = [self.patient, self.task, self.subtask, self.question, self.reasoning, self.answer]
        texts += [*self.choices, *(r.text for r in self.rounds)]
        look_at = [label for r in self.rounds for label in r.look_at]
        if {type(text) for text in texts} != {str}:
            refuse("record", texts, "texts")
        if {type(number) for number in (self.scan, self.organ, *look_at)} != {int}:
            refuse("record", [self.scan, self.organ, *look_at], "whole numbers")
        if self.subtask not in SUBTASKS.get(self.task, ()):
            refuse("subtask", f"{self.task}/{self.subtask}", "one of Table 1")
        if not self.question.strip():
            refuse("question", self.question, "some text")
        if not self.rounds or self.rounds[0].look_at:
            refuse("rounds", len(self.rounds), "at least one, the first without ROI")
        if self.rounds[-1].given:
            refuse("rounds", "a last one that is given", "a last one to learn")
        if len(self.choices) > len(LETTERS):
            refuse("choices", len(self.choices), f"at most {len(LETTERS)}")
        if self.organ not in range(len(ORGANS)):
            refuse("organ", self.organ, f"a label 0..{len(ORGANS) - 1}")
        if not set(look_at) <= set(range(1, len(ORGANS))):
            refuse("look_at", look_at, f"labels 1..{len(ORGANS) - 1}")
