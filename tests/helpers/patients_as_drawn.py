"""Digital patients without voxels, and their records, for the tests of records and chains."""

import re
from dataclasses import replace

import numpy as np

from tumorchain_jax.anatomy.organs import DIGESTIVE, labels_named
from tumorchain_jax.anatomy.substructures import SEGMENTS
from tumorchain_jax.data.schema import Record
from tumorchain_jax.phantoms.body import Body
from tumorchain_jax.phantoms.incidental import METASTASIS, NODE, Finding
from tumorchain_jax.phantoms.lesions import (
    BORDERS,
    DENSITIES,
    DEPTHS,
    HOLLOW,
    OTHERS,
    SHAPES,
    SIZE_LIMITS_MM,
    Lesion,
)
from tumorchain_jax.phantoms.patient import Patient
from tumorchain_jax.phantoms.records import (
    patient_records,
)
from tumorchain_jax.scan.volume import Volume

LIVER, PANCREAS, SPLEEN, LUNGS = 5, 7, 1, (11, 14)
SMALL, MEDIUM, LARGE = (limit + 0.5 for limit in SIZE_LIMITS_MM[:3])
MOST_ORGANS_A_ROUND, MOST_ROUNDS = 2, 4  # of the loop, `LoopConfig`
ANSWER = re.compile(r"(?:</think> Thus, the answer is|</think> Conclusion:) ([^.]+)\.$")
CENTRE = (0.0, 0.0, 0.0)
IN_VIEW = (*DIGESTIVE, SPLEEN, *LUNGS)
HEALTHY = Body("delayed", cirrhosis=False, swelling=False)


def make(
    seed: int,
    lesions: tuple[Lesion, ...] = (),
    findings: tuple[Finding, ...] = (),
    body: Body = HEALTHY,
    in_view: tuple[int, ...] = IN_VIEW,
) -> Patient:
    """A patient as `make_patient` gives it; the records read where its organs lie alone."""
    rng = np.random.default_rng(seed)
    voxels = np.zeros((1, len(in_view), 60), np.uint8)
    for row, organ in enumerate(in_view):
        low = rng.integers(0, 50)
        voxels[0, row, low : low + rng.integers(4, 11)] = organ
    labels = Volume(voxels, np.eye(4))
    return Patient(labels, labels, lesions, seed, "made up", labels, labels, findings, body)


def lesion(organ: int, diameter: float = MEDIUM, **words: str) -> Lesion:
    plain = Lesion(
        organ, SEGMENTS[organ][0], diameter, "hypodense", "round", "ill-defined", "none",
        "wall" if organ in HOLLOW else None, CENTRE, 9,
    )  # fmt: skip
    return replace(plain, **words)


def finding(kind: int, organ: int) -> Finding:
    return Finding(kind, "", organ, 15.0, CENTRE)


def draw(seed: int) -> Patient:
    """Any patient that `make_patient` might give, and some that it does not."""
    rng = np.random.default_rng(seed)

    def pick(options):
        return options[int(rng.integers(len(options)))]

    organ, count = DIGESTIVE[seed % 5], seed % 4
    words = {"density": pick(DENSITIES), "shape": pick(SHAPES), "border": pick(BORDERS)}
    words["other"] = pick(OTHERS[organ])
    lesions = [
        lesion(
            organ,
            float(rng.uniform(SMALL, LARGE)),
            segment=pick(SEGMENTS[organ]),
            depth=pick(DEPTHS) if organ in HOLLOW else None,
            **words,
        )
        for _ in range(count)
    ]
    findings = [finding(NODE, organ)] * int(rng.integers(9)) if count else []
    sites = [site for site in (LIVER, *LUNGS) if rng.random() < 0.4 and site != organ]
    findings += [finding(METASTASIS, site) for site in sites if count]
    body = Body("delayed", cirrhosis=rng.random() < 0.4, swelling=rng.random() < 0.4)
    in_view = IN_VIEW if rng.random() < 0.7 else tuple(o for o in IN_VIEW if rng.random() < 0.8)
    return make(seed, tuple(lesions), tuple(findings), body, (*in_view, organ))


PATIENTS = [draw(seed) for seed in range(200)]
CASES = [(patient, record) for patient in PATIENTS for record in patient_records(patient, 17)]


def ill_organ(patient: Patient) -> int:
    return patient.lesions[0].organ if patient.lesions else 0


def of(subtask: str, whole: bool = False) -> list[tuple[Patient, Record]]:
    """The cases of a subtask; of `whole`, those about no organ in particular."""
    return [(p, r) for p, r in CASES if r.subtask == subtask and not (whole and r.organ)]


def organs_in(text: str) -> list[int]:
    """Merged labels in order of mention."""
    return [label for mention in labels_named(text) for label in mention.labels]


def looks(patient: Patient, record: Record) -> list[tuple[int, ...]]:
    """What the loop looks at after each round, when the model writes the record's chain."""
    seen: set[int] = set()
    looked = []
    for target in record.rounds:
        named = [label for label in dict.fromkeys(organs_in(target.text)) if label not in seen]
        new = [label for label in named if label in patient.labels.voxels][:MOST_ORGANS_A_ROUND]
        seen.update(new)
        looked.append(tuple(new))
    return looked
