"""The facts about a patient that a report can state: a digital patient's truth as plain values.

A wrong report is written from facts of which one was changed, so what is wrong in it is known.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from tumorchain_jax.anatomy.organs import LIVER, MERGE, PANCREAS, SPLEEN
from tumorchain_jax.anatomy.staging import stage
from tumorchain_jax.phantoms.incidental import LOOK_ALIKE, METASTASIS, NODE
from tumorchain_jax.phantoms.lesions import NONE
from tumorchain_jax.phantoms.patient import Patient
from tumorchain_jax.phantoms.realistic_findings import NORMAL_NODE

CIRRHOSIS, INFLAMMATION, ENLARGEMENT = "cirrhosis", "inflammation", "enlargement"


@dataclass(frozen=True)
class LesionFacts:
    """One lesion: the part of its organ, its longest diameter in mm, and `small` to `large`."""

    part: str
    mm: float
    size: str


@dataclass(frozen=True)
class Facts:
    """What is true of a patient, or what a report claims.

    Attributes:
        in_view: merged labels of the organs that are read.
        organ: of the lesions; 0 for none.
        lesions: all in one organ; their density, shape, border, further trait (`none`) and, in
            hollow organs, depth (else "") are one for all.
        nodes: enlarged lymph nodes.
        metastases: merged labels of the organs with metastases.
        conditions: (organ, `cirrhosis`, `inflammation` or `enlargement`).
        benign: (organ, name of the benign finding, how many).
        suspected: the organ of which the impression suspects a tumour; 0 for none.
        stage: T, N and M; None without a tumour, and where the truth does not decide it.
    """

    in_view: tuple[int, ...]
    organ: int = 0
    lesions: tuple[LesionFacts, ...] = ()
    density: str = ""
    shape: str = ""
    border: str = ""
    other: str = NONE
    depth: str = ""
    nodes: int = 0
    metastases: tuple[int, ...] = ()
    conditions: tuple[tuple[int, str], ...] = ()
    benign: tuple[tuple[int, str, int], ...] = ()
    suspected: int = 0
    stage: tuple[str, str, str] | None = None

    @property
    def normal(self) -> tuple[int, ...]:
        """The organs in view of which nothing is found."""
        ill = {self.organ, *self.metastases}
        ill |= {organ for organ, _ in self.conditions} | {organ for organ, _, _ in self.benign}
        return tuple(organ for organ in self.in_view if organ not in ill)


# Merged labels in the order of reading.
_READ = (5, 1, 7, 3, 2, 6, 20, 15, 14, 11)


def facts_of(patient: Patient) -> Facts:
    """Take the facts from a digital patient."""
    shown = {int(MERGE[label]) for label in np.unique(patient.labels.voxels)} - {0}
    lesions, body, extent = patient.lesions, patient.body, patient.extent
    conditions = []
    if body is not None and body.cirrhosis:
        conditions += [(LIVER, CIRRHOSIS), (SPLEEN, ENLARGEMENT)]
    if body is not None and body.swelling:
        conditions.append((PANCREAS, INFLAMMATION))
    benign = Counter(
        (int(MERGE[finding.organ]), finding.name)
        for finding in patient.findings
        if finding.kind == LOOK_ALIKE and finding.name != NORMAL_NODE
    )
    metastases = {int(MERGE[f.organ]) for f in patient.findings if f.kind == METASTASIS}
    organ = lesions[0].organ if lesions else 0
    # The largest lesion gives the others their description, as in the records.
    largest = max(lesions, key=lambda lesion: lesion.diameter_mm) if lesions else None
    traits: dict[str, str] = {}
    if largest is not None:
        traits = {
            "density": largest.density, "shape": largest.shape, "border": largest.border,
            "other": largest.other, "depth": extent.depth if extent and largest.depth else "",
        }  # fmt: skip
    by_size = sorted(lesions, key=lambda lesion: -lesion.diameter_mm)
    return Facts(
        in_view=tuple(o for o in _READ if o in shown or o == organ),
        organ=organ,
        lesions=tuple(LesionFacts(each.segment, each.diameter_mm, each.size) for each in by_size),
        nodes=sum(finding.kind == NODE for finding in patient.findings),
        metastases=tuple(sorted(metastases)),
        conditions=tuple((o, what) for o, what in conditions if o in shown),
        benign=tuple((o, name, count) for (o, name), count in sorted(benign.items())),
        suspected=organ,
        stage=stage(extent) if extent else None,
        **traits,
    )
