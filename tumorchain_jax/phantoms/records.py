"""The truth about a digital patient -> TumorCoT records, whose chains and answers follow from it.

Everything here is synthetic: the wording is ours, and the chains say only what the truth says. The
order is the paper's: findings, impression, pathology; a sentence that names an organ sends the
reasoning loop to look at that organ again (paper, section 3.2).
"""

from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np

from tumorchain_jax.anatomy.organs import DIGESTIVE, LIVER, ORGANS, PANCREAS, SPLEEN, display_name
from tumorchain_jax.anatomy.staging import stage
from tumorchain_jax.anatomy.substructures import SEGMENTS
from tumorchain_jax.data.schema import TASK_OF, Record, RoundTarget
from tumorchain_jax.phantoms.incidental import LOOK_ALIKE, LUNGS, METASTASIS, NODE
from tumorchain_jax.phantoms.lesions import BORDERS, DENSITIES, NONE, OTHERS, SHAPES, Lesion
from tumorchain_jax.phantoms.patient import Patient
from tumorchain_jax.phantoms.report_text import and_join, plural

THIRDS = ("upper third", "middle third", "lower third")
# The order of a systematic reading: liver and pancreas, stomach and colon, esophagus. The search
# ends with the group in which the tumour is found.
_SEARCH = ((5, 7), (6, 20), (15,))
# An organ whose middle is nearer than this to a border between two thirds is not asked about.
_MARGIN = 0.04
_CHOICES = 4
_POSITION = (
    "Where is the tumour in this CT?",
    "Which organ holds the tumour?",
    "Is there a tumour in the abdomen, and in which organ?",
    "In which organ do you see a tumour?",
)
_REPORT = (
    "Write a report with findings, impression and conclusion.",
    "Describe the abnormal findings of this CT and conclude.",
)
# Subtask -> wordings of its question.
_QUESTIONS = {
    "organ_position": (
        "In which third of the scan does the middle of the {organ} lie?",
        "How high in this scan is the {organ}: upper, middle or lower third?",
    ),
    "tumor_position": ("Is there a tumour in the {organ}?", "Do you see a tumour of the {organ}?"),
    "segment_localization": (
        "In which part of the {organ} is the {lesion}?",
        "Where in the {organ} does the {lesion} lie?",
    ),
    "shape": ("What is the shape of the {lesion} in the {organ}?",),
    "boundary": ("How is the border of the {lesion} in the {organ}?",),
    "density": ("What is the density of the {lesion} in the {organ}?",),
    "count": ("How many lesions are there in the {organ}?",),
    "others": ("What else does the {lesion} in the {organ} show?",),
    "tumor": ("Which T category has the tumour of the {organ}?",),
    "node": ("Which N category has the tumour of the {organ}?",),
    "metastasis": ("Which M category has the tumour of the {organ}?",),
}
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_DEPTHS = {
    "wall": "It keeps to the wall.",
    "fat": "It reaches into the fat.",
    "surface": "It reaches the outer surface.",
}


def abnormal_organs(patient: Patient) -> np.ndarray:
    """Label organs, int8 `[57]`: 1 abnormal, 0 normal, -1 unknown (never with a tumour)."""
    present = set(np.unique(patient.labels.voxels))
    ill = {lesion.organ for lesion in patient.lesions} | _metastatic(patient)
    table = np.full(len(ORGANS), -1, np.int8)
    for label in DIGESTIVE:
        if label in present:  # Table 10 keeps TotalSegmentator's ids of the five organs
            table[label] = label in ill
    return table


def patient_records(
    patient: Patient, scan: int, visible: Collection[int] | None = None
) -> list[Record]:
    """Write the records of a patient: 14 of all twelve subtasks with a tumour, 7 without.

    Args:
        scan: the scan's index in the data set.
        visible: merged labels that the model's grid shows, where that is coarser than the patient's
            map: a healthy organ that is not among them is not mentioned.
    """
    if visible is None:
        visible = np.unique(patient.labels.voxels).tolist()
    return _Writer(patient, scan, np.random.default_rng((patient.seed, 1)), visible).all()


class _Writer:
    def __init__(
        self, patient: Patient, scan: int, rng: np.random.Generator, visible: Collection[int]
    ):
        self.patient, self.scan, self.rng = patient, scan, rng
        self.organ = patient.lesions[0].organ if patient.lesions else 0
        self.name = display_name(self.organ) if self.organ else NONE
        self.present = [o for o in DIGESTIVE if o == self.organ or o in visible]
        self.lungs = tuple(label for label in LUNGS if label in visible)
        self.spleen = SPLEEN in visible
        self.metastatic = _metastatic(patient)

    def all(self) -> list[Record]:
        """Write the records in random order: a training row takes a few that are neighbours."""
        records = self.organ_positions(1 if self.organ else 2)
        records += [self.position(()), self.position(self._organ_choices())]
        if self.present:
            records += [self.check() for _ in range(1 if self.organ else 2)]
        records.append(self.report())
        if self.organ:
            records += [self.segment(), *self.attributes(), *self.stages()]
        return [records[number] for number in self.rng.permutation(len(records))]

    # Position.

    def organ_positions(self, count: int) -> list[Record]:
        height = self.patient.labels.shape[2]
        records: list[Record] = []
        for organ in self.rng.permutation(self.present).tolist():
            slices = np.flatnonzero((self.patient.labels.voxels == organ).any(axis=(0, 1)))
            middle = 3 * (1 - (slices.mean() + 0.5) / height)
            if len(records) < count and abs(middle - np.clip(round(middle), 1, 2)) > 3 * _MARGIN:
                answer = THIRDS[int(middle)]
                thought = f"First, the {display_name(organ)} lies in the {answer}."
                rounds = self._asked((organ,), thought, answer)
                records.append(self._record("organ_position", organ, (), rounds, answer))
        return records

    def position(self, choices: tuple[str, ...]) -> Record:
        rounds = self._search(f"Thus, the answer is {self.name}.")
        question = self._pick(_POSITION)
        return self._record("tumor_position", 0, choices, rounds, self.name, question)

    def _organ_choices(self) -> tuple[str, ...]:
        return self._choices([display_name(label) for label in DIGESTIVE] + [NONE], self.name)

    def check(self) -> Record:
        """Ask about one organ; with a tumour, half of the questions are about its organ."""
        ill = bool(self.organ) and self.rng.random() < 0.5
        organ = self.organ if ill else int(self.rng.choice(self.present))
        answer = "yes" if organ == self.organ or organ in self.metastatic else "no"
        rounds = self._asked((organ,), f"First, {_lower(self._state(organ))}", answer)
        return self._record("tumor_position", organ, (), rounds, answer)

    def segment(self) -> Record:
        answer = largest(self.patient.lesions).segment
        choices = self._choices(SEGMENTS[self.organ], answer) if self.rng.random() < 0.5 else ()
        return self._about("segment_localization", answer, "", choices)

    # Attributes and stage.

    def attributes(self) -> list[Record]:
        lesion = largest(self.patient.lesions)
        answers = {
            "shape": (lesion.shape, SHAPES),
            "boundary": (lesion.border, BORDERS),
            "density": (lesion.density, DENSITIES),
            "count": (str(len(self.patient.lesions)), ("1", "2", "3")),
            "others": (lesion.other, OTHERS[self.organ]),
        }
        return [
            self._about(subtask, answer, "", self._choices(values, answer) if self._even() else ())
            for subtask, (answer, values) in answers.items()
        ]

    def stages(self) -> list[Record]:
        extent = self.patient.extent
        if extent is None:
            return []
        t, n, m = stage(extent)
        depth = _DEPTHS[extent.depth] if largest(self.patient.lesions).depth else ""
        records = [self._about("tumor", t, depth), self._about("node", n, self._nodes())]
        return records + self._metastasis(m)

    def _metastasis(self, answer: str) -> list[Record]:
        """Look at the usual sites one after the other: liver, lungs."""
        liver = (LIVER,) if LIVER in self.present and self.organ != LIVER else ()
        sites = [site for site in (liver, self.lungs) if site]
        if not sites or not self.metastatic <= {label for site in sites for label in site}:
            return []  # a metastasis that the grid does not show is not asked about
        rounds: list[RoundTarget] = []
        looked: tuple[int, ...] = ()
        said = "Metastases are looked for."
        for site in sites:
            rounds.append(RoundTarget(f"{said} {_needs(site)}", looked))
            said, looked = self._state_of_site(site), site
        thought = f"<think> First, {_lower(said)} </think> Thus, the answer is {answer}."
        rounds.append(RoundTarget(thought, looked))
        return [self._record("metastasis", self.organ, (), rounds, answer)]

    def _state_of_site(self, site: tuple[int, ...]) -> str:
        ill = bool(self.metastatic & set(site))
        name, verb = ("lungs", "show") if site == self.lungs else ("liver", "shows")
        return f"The {name} {verb} {'metastases' if ill else 'no metastasis'}."

    def _nodes(self) -> str:
        count = sum(finding.kind == NODE for finding in self.patient.findings)
        return f"{_NUMBERS[count].capitalize()} enlarged lymph node{'s' if count != 1 else ''}."

    def _about(self, subtask: str, answer: str, rest: str, choices: tuple[str, ...] = ()) -> Record:
        findings = f"First, the {self.name} shows {describe(self.patient.lesions)}. {rest}".strip()
        if benign := self._benign(self.organ):
            findings += f" Besides, it shows benign findings: {benign}."
        rounds = self._asked((self.organ,), findings, answer)
        return self._record(subtask, self.organ, choices, rounds, answer)

    # The report, and the search that it shares with the position.

    def report(self) -> Record:
        conclusion = f"a tumour of the {self.name}" if self.organ else "no tumour"
        rounds = self._search(f"Conclusion: {conclusion}.", staged=True)
        question = self._pick(_REPORT)
        return self._record("cot_report", 0, (), rounds, conclusion, question)

    def _search(self, conclusion: str, staged: bool = False) -> list[RoundTarget]:
        """Look at one group of organs after the other, until the tumour is found."""
        rounds: list[RoundTarget] = []
        looked: tuple[int, ...] = ()
        begin = ""
        for group in _SEARCH:
            organs = tuple(organ for organ in group if organ in self.present)
            if not organs:
                continue
            rounds.append(RoundTarget(f"{begin} {_needs(organs)}".strip(), looked))
            looked = organs
            if self.organ in organs:
                break
            begin = self._states(organs)
        spleen = ""
        if staged and self.organ == LIVER and self._cirrhosis() and self.spleen:
            rounds.append(
                RoundTarget(
                    f"The liver looks nodular, as in cirrhosis. {_needs((SPLEEN,))}", looked
                )
            )
            looked, spleen = (SPLEEN,), "the spleen is enlarged and "
        rounds.append(RoundTarget(self._think(begin, conclusion, spleen, staged), looked))
        return rounds

    def _think(self, begin: str, conclusion: str, spleen: str, staged: bool) -> str:
        if self.organ:
            first = f"{spleen}the {self.name} shows {describe(self.patient.lesions)}."
            stage_known = staged and self.patient.extent is not None
            third = self._local_stage() if stage_known else "pathology should confirm it."
            rest = f"this suggests a tumour of the {self.name}. Third, {third}"
        else:
            first, rest = _lower(begin) or "no organ stands out.", "nothing suggests a tumour."
        return f"<think> First, {first} Second, {rest} </think> {conclusion}"

    def _local_stage(self) -> str:
        extent = self.patient.extent
        t, n, _ = stage(extent) if extent else ("", "", "")
        return f"the stage is {t} {n}."

    def _states(self, organs: Sequence[int]) -> str:
        states = [self._state(organ) for organ in organs]
        if len(states) == 2 and all(state.endswith("looks normal.") for state in states):
            first, second = (f"the {display_name(organ)}" for organ in organs)
            return f"T{first[1:]} and {second} look normal."
        return " ".join(states)

    def _state(self, organ: int) -> str:
        """Write a sentence about one organ."""
        body, name = self.patient.body, display_name(organ)
        if organ == self.organ:
            return f"The {name} shows {describe(self.patient.lesions)}."
        if organ in self.metastatic:
            return f"The {name} shows metastases."
        if organ == LIVER and self._cirrhosis():
            return f"The {name} looks nodular, as in cirrhosis."
        if organ == PANCREAS and body is not None and body.swelling:
            return f"The {name} is swollen, as in an inflammation."
        if benign := self._benign(organ):
            return f"The {name} shows only benign findings: {benign}."
        return f"The {name} looks normal."

    def _benign(self, organ: int) -> str:
        """Name the look-alikes in an organ of a realistic patient; those of simple ones are not."""
        kinds = Counter(
            finding.name
            for finding in self.patient.findings
            if self.patient.anatomy and (finding.kind, finding.organ) == (LOOK_ALIKE, organ)
        )
        return and_join([plural(name) if n > 1 else f"a {name}" for name, n in kinds.items()])

    def _cirrhosis(self) -> bool:
        return self.patient.body is not None and self.patient.body.cirrhosis

    # Words.

    def _asked(self, organs: tuple[int, ...], thought: str, answer: str) -> list[RoundTarget]:
        name = display_name(organs[0])
        first = f"The question asks about the {name}, which needs a closer look."
        last = f"<think> {thought} </think> Thus, the answer is {answer}."
        return [RoundTarget(first), RoundTarget(last, organs)]

    def _record(
        self,
        subtask: str,
        organ: int,
        choices: tuple[str, ...],
        rounds: list[RoundTarget],
        answer: str,
        question: str = "",
    ) -> Record:
        lesion = "largest lesion" if len(self.patient.lesions) > 1 else "lesion"
        if not question:
            asked = self._pick(_QUESTIONS[subtask])
            question = asked.format(organ=display_name(organ), lesion=lesion)
        reasoning = " ".join(r.text for r in rounds if not r.given)
        patient = f"phantom-{self.patient.seed}"
        return Record(
            patient,
            self.scan,
            TASK_OF[subtask],
            subtask,
            organ,
            question,
            choices,
            tuple(rounds),
            reasoning,
            answer,
        )

    def _choices(self, values: Sequence[str], answer: str) -> tuple[str, ...]:
        """Mix the answer with at most three other values."""
        others = self.rng.permutation([value for value in values if value != answer]).tolist()
        return tuple(self.rng.permutation([answer, *others[: _CHOICES - 1]]).tolist())

    def _even(self) -> bool:
        return bool(self.rng.random() < 0.5)

    def _pick(self, options: Sequence[str]) -> str:
        return options[int(self.rng.integers(len(options)))]


def largest(lesions: Sequence[Lesion]) -> Lesion:
    """The lesion that gives a patient's lesions their description."""
    return max(lesions, key=lambda lesion: lesion.diameter_mm)


def describe(lesions: Sequence[Lesion]) -> str:
    """`two lesions, the largest medium, in the gastric body, hypodense, round and well-defined`."""
    lesion = largest(lesions)
    count = f"{_NUMBERS[len(lesions)]} lesion{'s' if len(lesions) > 1 else ''}"
    words = f"{lesion.size}, in the {lesion.segment}, {lesion.density}, {lesion.shape}"
    other = "" if lesion.other == NONE else f", with {lesion.other}"
    return f"{count}, {'the largest ' if len(lesions) > 1 else ''}{words}, {lesion.border}{other}"


def _metastatic(patient: Patient) -> set[int]:
    return {finding.organ for finding in patient.findings if finding.kind == METASTASIS}


def _needs(organs: tuple[int, ...]) -> str:
    """`The liver and the pancreas need a closer look.`"""
    if set(organs) <= set(LUNGS):
        return "The lungs need a closer look."
    names = " and ".join(f"the {display_name(organ)}" for organ in organs)
    return f"T{names[1:]} need{'s' if len(organs) == 1 else ''} a closer look."


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]
