"""The truth about a digital patient as a free-text report, in one of many wordings.

Findings (organ by organ), impression and pathology. The text says exactly what the truth says: the
phase, the state of each organ in view, every lesion with part, size, density, shape, border and
depth, nodes, metastases, look-alikes, and the stage. The wording is ours.
"""

from collections.abc import Sequence

import numpy as np

from tumorchain_jax.anatomy.organs import LIVER, MERGE, PANCREAS, SPLEEN, display_name
from tumorchain_jax.anatomy.staging import stage
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.phantoms.body import Body
from tumorchain_jax.phantoms.incidental import LOOK_ALIKE, METASTASIS, NODE, Finding
from tumorchain_jax.phantoms.lesions import NONE, Lesion
from tumorchain_jax.phantoms.patient import Patient
from tumorchain_jax.phantoms.realistic_findings import NORMAL_NODE
from tumorchain_jax.phantoms.tissue import NO_PHASE, NON_CONTRAST

# TotalSegmentator ids in the order of reading; a lower lobe stands for its lung.
_ORGANS = {
    **{label: display_name(int(MERGE[label])) for label in (5, 1, 7, 3, 2, 6, 20, 15, 52)},
    11: "left lung",
    14: "right lung",
}
_SECTION = "Findings: {findings}\nImpression: {impression}\nPathology: {pathology}\n"
# Statement -> its wordings.
_PHRASES = {
    "phase": (
        "CT of the abdomen in the {phase} phase.",
        "The scan was taken in the {phase} phase.",
        "{Phase} phase CT.",
    ),
    "no contrast": (
        "CT of the abdomen without contrast.",
        "The scan was taken without contrast.",
        "Non-contrast CT.",
    ),
    "normal": (
        "The {organ} looks normal.",
        "The {organ} is unremarkable.",
        "Nothing abnormal in the {organ}.",
    ),
    "cirrhosis": (
        "The liver is small and nodular, as in cirrhosis.",
        "Nodular liver of reduced size: cirrhosis.",
    ),
    "spleen": ("The spleen is enlarged.", "There is an enlarged spleen.", "Splenomegaly."),
    "swelling": (
        "The pancreas is swollen, with streaks in the fat around it.",
        "Swelling of the pancreas; the fat around it is streaky.",
    ),
    "lesion": (
        "In {segment} there is a {density}, {shape}, {border} lesion of {mm} mm.",
        "A {density} lesion of {mm} mm lies in {segment}; it is {shape} and {border}.",
        "A {mm} mm mass in {segment} is {density}, {shape} and {border}.",
    ),
    "wall": ("It keeps to the wall.", "It does not pass the wall."),
    "fat": ("It reaches into the fat.", "It grows into the fat around."),
    "surface": ("It reaches the outer surface.", "It extends to the outer surface."),
    "other": ("There is {other} as well.", "It goes with {other}.", "In addition: {other}."),
    "nodes": (
        "Near the {organ}: {count} enlarged {things}, of {sizes} mm.",
        "There {are} {count} enlarged {things} ({sizes} mm) around the {organ}.",
    ),
    "no nodes": ("No enlarged lymph node.", "Lymph nodes are of normal size."),
    "several": (
        "{count} {things} of {sizes} mm in the {organ}.",
        "In the {organ} there {are} {count} {things} ({sizes} mm).",
        "The {organ} holds {count} {things} ({sizes} mm).",
    ),
    "tumour": (
        "Findings suggest a tumour of the {organ}.",
        "Tumour of the {organ}.",
        "This is most likely a tumour of the {organ}.",
    ),
    "no tumour": ("No tumour.", "No sign of a tumour.", "Nothing suggests a tumour."),
    "spread": (
        "It has spread to the {sites}.",
        "Metastases in the {sites}.",
    ),
    "no spread": ("No metastasis is seen.", "There is no sign of metastases."),
    "harmless": (
        "The {names} are taken to be harmless.",
        "The {names} need no follow-up.",
    ),
    "stage": ("{t} {n} {m}.", "Stage by imaging: {t} {n} {m}.", "The stage is {t}, {n}, {m}."),
    "no stage": ("There is no tumour to stage.", "No stage."),
}


_PLURALS = {"metastasis": "metastases", "diverticulum": "diverticula"}


def free_text(patient: Patient, seed: int) -> str:
    """Write a report in three sections.

    Args:
        patient: one of `make_patient`; of a real CT not everything is known.
        seed: of the wording.

    Raises:
        InputError: the CT is real.
    """
    if patient.body is None:
        raise InputError(
            patient.ct.source,
            "patient",
            "a real CT",
            "a digital patient",
            "use a patient of make_patient",
        )
    return _Writer(patient, patient.body, np.random.default_rng((patient.seed, seed))).report()


class _Writer:
    def __init__(self, patient: Patient, body: Body, rng: np.random.Generator):
        self.patient, self.body, self.rng = patient, body, rng
        self.organ = patient.lesions[0].organ if patient.lesions else 0

    def report(self) -> str:
        """Write the whole text."""
        sections = _SECTION.format(
            findings=" ".join(self.findings()),
            impression=" ".join(self.impression()),
            pathology=self.pathology(),
        )
        return f"{self.patient.synthetic}\n{sections}"

    def findings(self) -> list[str]:
        """Write the findings organ by organ, then the nodes."""
        said = self._phase()
        in_view = np.unique(self.patient.labels.voxels)
        for label, organ in _ORGANS.items():
            if label in in_view:
                said += self._of_organ(label) or [self._say("normal", organ=organ)]
        return said + (self._several("nodes", NODE, self.organ) or [self._say("no nodes")])

    def _phase(self) -> list[str]:
        phase = self.body.phase
        if phase == NO_PHASE:
            return []
        what = "no contrast" if phase == NON_CONTRAST else "phase"
        return [self._say(what, phase=phase, Phase=phase.capitalize())]

    def _of_organ(self, label: int) -> list[str]:
        said = [self._say("cirrhosis")] if self.body.cirrhosis and label == LIVER else []
        said += [self._say("spleen")] if self.body.cirrhosis and label == SPLEEN else []
        said += [self._say("swelling")] if self.body.swelling and label == PANCREAS else []
        if label == self.organ:
            said += self._tumour()
        said += self._several("several", METASTASIS, label)
        for name in dict.fromkeys(finding.name for finding in self._look_alikes()):
            said += self._several("several", LOOK_ALIKE, label, name)
        return said

    def _look_alikes(self) -> list[Finding]:
        """Return the benign findings of the organs that are read; no nodes of normal size."""
        found = [f for f in self.patient.findings if f.kind == LOOK_ALIKE and f.organ in _ORGANS]
        return [f for f in found if f.name != NORMAL_NODE]

    def _tumour(self) -> list[str]:
        said = [sentence for each in self.patient.lesions for sentence in self._lesion(each)]
        other = self.patient.lesions[0].other
        return said + ([] if other == NONE else [self._say("other", other=other)])

    def _lesion(self, lesion: Lesion) -> list[str]:
        # A segment of the liver bears a number, like a name; the other parts take an article.
        article = "" if lesion.segment.startswith("liver segment") else "the "
        sentence = self._say(
            "lesion",
            segment=article + lesion.segment,
            mm=round(lesion.diameter_mm),
            density=lesion.density,
            shape=lesion.shape,
            border=lesion.border,
        )
        return [sentence] + ([self._say(lesion.depth)] if lesion.depth else [])

    def _several(self, what: str, kind: int, label: int, name: str = "") -> list[str]:
        """Write all findings of a kind (and a name) in an organ as one sentence."""
        found = [f for f in self.patient.findings if (f.kind, f.organ) == (kind, label)]
        found = [f for f in found if name in ("", f.name)]
        if not found:
            return []
        return [
            self._say(
                what,
                organ=_ORGANS[label],
                count=len(found),
                things=found[0].name if len(found) == 1 else plural(found[0].name),
                are="is" if len(found) == 1 else "are",
                sizes=and_join([str(round(f.diameter_mm)) for f in found]),
            )
        ]

    def impression(self) -> list[str]:
        """Write what the findings mean."""
        said = [self._say("tumour", organ=_ORGANS[self.organ])] if self.organ else []
        said += self._spread() if self.organ else [self._say("no tumour")]
        said += ["Cirrhosis of the liver."] if self.body.cirrhosis else []
        said += ["Inflammation of the pancreas."] if self.body.swelling else []
        names = sorted({plural(f.name) for f in self._look_alikes()})
        return said + ([self._say("harmless", names=and_join(names))] if names else [])

    def _spread(self) -> list[str]:
        metastatic = {f.organ for f in self.patient.findings if f.kind == METASTASIS}
        sites = [organ for label, organ in _ORGANS.items() if label in metastatic]
        if sites:
            return [self._say("spread", sites=and_join(sites))]
        return [self._say("no spread")]

    def pathology(self) -> str:
        """Write T, N and M."""
        extent = self.patient.extent
        if extent is None:
            return self._say("no stage")
        t, n, m = stage(extent)
        return self._say("stage", t=t, n=n, m=m)

    def _say(self, what: str, **facts: object) -> str:
        phrases = _PHRASES[what]
        return phrases[int(self.rng.integers(len(phrases)))].format(**facts)


def plural(name: str) -> str:
    """Return the plural of a finding's name."""
    return _PLURALS.get(name, f"{name}s")


def and_join(words: Sequence[str]) -> str:
    """Join words: `a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
