"""The truth about a digital patient -> TumorCoT records whose chain and answer follow from it.

Everything here is synthetic: the wording is ours, and the chains say only what the truth says. The
order is the paper's: findings, impression, pathology; the sentences that name an organ are what
sends the reasoning loop to look at it again (paper, section 3.2).
"""

from collections.abc import Collection

import numpy as np

from tumorchain_jax.data.schema import Record, RoundTarget
from tumorchain_jax.scan.organs import DIGESTIVE, ORGANS, display_name
from tumorchain_jax.scan.phantom import Lesion, Patient

NONE = "none"
# The order of a systematic reading, two organs at a time: liver and pancreas, stomach and
# colon, esophagus. What is searched is no secret; what is found decides how long.
_SEARCH = ((5, 7), (6, 20), (15,))
_POSITION = (
    "Where is the tumour in this CT?",
    "Which organ holds the tumour?",
    "Is there a tumour in the abdomen, and in which organ?",
    "In which organ do you see a lesion?",
)
_REPORT = (
    "Write a report with findings, impression and conclusion.",
    "Describe the abnormal findings of this CT and conclude.",
)
_CHECK = ("Is there a lesion in the {organ}?", "Is the {organ} abnormal?")
# Subtask -> (question, what the lesion is asked for).
_ATTRIBUTES = {
    "density": "What is the density of the lesion in the {organ}?",
    "shape": "What is the shape of the lesion in the {organ}?",
    "boundary": "How is the border of the lesion in the {organ}?",
    "count": "How many lesions are there in the {organ}?",
}
_COUNTS = ("no lesion", "one lesion", "two lesions", "three lesions")


def abnormal_organs(patient: Patient) -> np.ndarray:
    """int8 `[57]`: 1 abnormal, 0 normal, -1 where the phantom never has lesions (unknown)."""
    present = set(np.unique(patient.labels.voxels))
    table = np.full(len(ORGANS), -1, np.int8)
    for label in DIGESTIVE:
        if label in present:  # Table 10 keeps TotalSegmentator's ids of the five organs
            table[label] = any(lesion.organ == label for lesion in patient.lesions)
    return table


def patient_records(
    patient: Patient, scan: int, visible: Collection[int] | None = None
) -> list[Record]:
    """Four records: two of position or report, one yes/no question, one attribute or yes/no.

    Args:
        scan: the scan's index in the data set.
        visible: labels that the model's grid shows, where that is coarser than the patient's map:
            a healthy organ that is not among them is not spoken of.
    """
    if visible is None:
        visible = np.unique(patient.labels.voxels).tolist()
    writer = _Writer(patient, scan, np.random.default_rng((patient.seed, 1)), visible)
    last = writer.attribute() if patient.lesions else writer.check()
    return [writer.position(), writer.position_or_report(), writer.check(), last]


class _Writer:
    def __init__(
        self, patient: Patient, scan: int, rng: np.random.Generator, visible: Collection[int]
    ):
        self.patient, self.scan, self.rng = patient, scan, rng
        self.organ = patient.lesions[0].organ if patient.lesions else 0
        self.answer = display_name(self.organ) if self.organ else NONE
        self.present = [o for o in DIGESTIVE if o == self.organ or o in visible]

    def position(self) -> Record:
        question = self._pick(_POSITION)
        choices: tuple[str, ...] = ()
        answer = self.answer
        if self.rng.random() < 0.5:
            options = [display_name(label) for label in DIGESTIVE] + [NONE]
            choices = tuple(self.rng.permutation(options).tolist())
            answer = f"{'ABCDEF'[choices.index(answer)]}. {answer}"
        rounds = self._search(f"Thus, the answer is {answer}.")
        return self._record("position", "tumor_position", 0, question, choices, rounds, self.answer)

    def position_or_report(self) -> Record:
        if self.rng.random() < 0.5:
            return self.position()
        conclusion = f"a tumour of the {self.answer}" if self.organ else "no tumour"
        rounds = self._search(f"Conclusion: {conclusion}.")
        question = self._pick(_REPORT)
        return self._record("cot_report", "cot_report", 0, question, (), rounds, conclusion)

    def check(self) -> Record:
        """Half of the questions to the ill are about the ill organ."""
        ill = bool(self.organ) and self.rng.random() < 0.5
        organ = self.organ if ill else int(self.rng.choice(self.present))
        question = self._pick(_CHECK).format(organ=display_name(organ))
        answer = "yes" if organ == self.organ else "no"
        rounds = self._asked(organ, f"Thus, the answer is {answer}.")
        return self._record("position", "tumor_position", organ, question, (), rounds, answer)

    def attribute(self) -> Record:
        subtask = self._pick(tuple(_ATTRIBUTES))
        lesion = largest(self.patient.lesions)
        answer = {
            "density": lesion.density,
            "shape": lesion.shape,
            "boundary": lesion.border,
            "count": str(len(self.patient.lesions)),
        }[subtask]
        question = _ATTRIBUTES[subtask].format(organ=self.answer)
        rounds = self._asked(self.organ, f"Thus, the answer is {answer}.")
        return self._record("lesion_attributes", subtask, self.organ, question, (), rounds, answer)

    def _search(self, conclusion: str) -> list[RoundTarget]:
        """Look at one group of organs after the other, until one is ill or none is left."""
        rounds: list[RoundTarget] = []
        looked: tuple[int, ...] = ()
        begin = ""
        for group in _SEARCH:
            organs = tuple(organ for organ in group if organ in self.present)
            if not organs:
                continue
            rounds.append(RoundTarget(begin + _says(organs, "need", "a closer look"), looked))
            looked, begin = organs, _says(organs, "look", "normal") + " "
            if self.organ in organs:
                break
        rounds.append(RoundTarget(self._think(self.organ, begin, conclusion), looked))
        return rounds

    def _asked(self, organ: int, conclusion: str) -> list[RoundTarget]:
        first = f"The question asks about the {display_name(organ)}, which needs a closer look."
        return [RoundTarget(first), RoundTarget(self._think(organ, "", conclusion), (organ,))]

    def _think(self, organ: int, begin: str, conclusion: str) -> str:
        if organ and organ == self.organ:
            first = f"the {self.answer} shows {describe(self.patient.lesions)}."
            rest = (
                f"this suggests a tumour of the {self.answer}. Third, pathology should confirm it."
            )
        else:
            normal = f"The {display_name(organ)} looks normal. " if organ else begin
            first = normal.lower().strip() or "no organ stands out."
            rest = "nothing suggests a tumour."
        thought = f"First, {first} Second, {rest}"
        return f"<think> {thought} </think> {conclusion}"

    def _record(
        self,
        task: str,
        subtask: str,
        organ: int,
        question: str,
        choices: tuple[str, ...],
        rounds: list[RoundTarget],
        answer: str,
    ) -> Record:
        reasoning = " ".join(r.text for r in rounds if not r.given)
        return Record(
            f"phantom-{self.patient.seed}",
            self.scan,
            task,
            subtask,
            organ,
            question,
            choices,
            tuple(rounds),
            reasoning,
            answer,
        )

    def _pick(self, options: tuple[str, ...]) -> str:
        return options[int(self.rng.integers(len(options)))]


def largest(lesions: tuple[Lesion, ...]) -> Lesion:
    """The lesion that gives a patient's lesions their description."""
    return max(lesions, key=lambda lesion: lesion.diameter_mm)


def describe(lesions: tuple[Lesion, ...]) -> str:
    """`two lesions, the largest medium, hypodense, round and well-defined`."""
    lesion = largest(lesions)
    words = f"{lesion.size}, {lesion.density}, {lesion.shape} and {lesion.border}"
    count = _COUNTS[min(len(lesions), 3)]
    return f"{count}, {'the largest ' if len(lesions) > 1 else ''}{words}"


def _says(organs: tuple[int, ...], verb: str, rest: str) -> str:
    """`The liver and the pancreas look normal.`, `The esophagus looks normal.`"""
    names = " and ".join(f"the {display_name(organ)}" for organ in organs)
    return f"T{names[1:]} {verb}{'s' if len(organs) == 1 else ''} {rest}."
