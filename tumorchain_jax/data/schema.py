"""One TumorCoT record: a question about a scan and the chain of thought that answers it.

Tasks and subtasks are those of the paper's Table 1, grouped as the group means of its Table 9 need:
segment localisation is a lesion attribute. A record is plain JSON on disk; `data/README.md` shows
one of each subtask.
"""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tumorchain_jax.data.json_lines import LineFields, parse_line
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
"""The subtasks of each task, in the order of Table 1's columns."""
TASK_OF = {subtask: task for task, subtasks in SUBTASKS.items() for subtask in subtasks}


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

    @classmethod
    def from_fields(cls, fields: LineFields) -> "RoundTarget":
        """Read and check one round.

        Raises:
            InputError: a field is missing, unknown or of another kind.
        """
        fields.check_known({field.name for field in dataclasses.fields(cls)})
        return cls(fields.text("text"), fields.organs("look_at"), fields.boolean("given"))


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
        answer: the conclusion; one of the `choices` where there are any.
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
            InputError: it is not JSON, or as `from_values`.
        """
        return cls.from_values(parse_line(line, source), source)

    @classmethod
    def from_values(cls, values: Mapping[str, Any], source: object = "record") -> "Record":
        """Check a record that is parsed; what may be left out gets its default.

        `task` follows from `subtask`; `organ` is 0, `choices` empty and `reasoning` the text of
        the rounds where they are left out. An organ is a merged label or its name.

        Raises:
            InputError: a field is missing, unknown, of another kind, or contradicts another one.
        """
        fields = LineFields(source, values)
        fields.check_known({field.name for field in dataclasses.fields(cls)})
        in_rounds = fields.objects("rounds", '{"text": ..., "look_at": [...]}')
        rounds = tuple(map(RoundTarget.from_fields, in_rounds))
        if rounds[0].look_at:
            in_rounds[0].refuse("look_at", "none: the first round sees the whole scan")
        if rounds[-1].given:
            in_rounds[-1].refuse("given", "false: the model learns the last round")
        subtask = fields.one_of("subtask", TASK_OF)
        task = fields.text("task", TASK_OF[subtask])
        if task != TASK_OF[subtask]:
            hint = "leave it out; make a data set of the older grouping again"
            fields.refuse("task", f"{TASK_OF[subtask]}, the task of {subtask}", hint)
        choices, answer = (
            fields.choices("choices", len(LETTERS)),
            fields.text("answer", filled=True),
        )
        if choices and answer not in choices:
            fields.refuse("answer", f"one of the choices: {', '.join(map(repr, choices))}")
        return cls(
            patient=fields.text("patient", filled=True),
            scan=fields.integer("scan"),
            task=task,
            subtask=subtask,
            organ=fields.organ("organ"),
            question=fields.text("question", filled=True),
            choices=choices,
            rounds=rounds,
            reasoning=fields.text("reasoning", " ".join(r.text for r in rounds if not r.given)),
            answer=answer,
        )
