"""Truths of digital patients without their image: what a judge reads needs no voxels.

Lesions are drawn by the plan of the simple kind of patient; nodes, metastases, look-alikes and
other conditions at the frequencies of `phantoms/incidental.py` or more often. Each organ in view is
one voxel of the label map, so that everything which reads a `Patient`'s truth reads these as well.
"""

import numpy as np

from tumorchain_jax.anatomy.organs import DIGESTIVE, LIVER
from tumorchain_jax.anatomy.substructures import SEGMENTS
from tumorchain_jax.phantoms.body import PHASES, Body
from tumorchain_jax.phantoms.incidental import (
    CYST,
    LOOK_ALIKE,
    LUNGS,
    METASTASIS,
    NODE,
    NODE_COUNTS,
    NODE_ODDS,
    Finding,
)
from tumorchain_jax.phantoms.lesions import HOLLOW, Lesion, draw_plan
from tumorchain_jax.phantoms.patient import PREVALENCE, Patient
from tumorchain_jax.scan.volume import Volume

_IN_VIEW = (1, 2, 3, 5, 6, 7, 11, 14, 15, 20)
_NOWHERE = (0.0, 0.0, 0.0)
_METASTASES, _CIRRHOSIS, _SWELLING, _CYSTS = 0.35, 0.15, 0.12, 0.3


def draw_truth(seed: int) -> Patient:
    """Draw a patient whose volumes are empty but for one voxel of each organ in view."""
    rng = np.random.default_rng((seed, 20))
    ill = rng.random() < PREVALENCE
    body = Body(
        str(rng.choice(PHASES)), bool(rng.random() < _CIRRHOSIS), bool(rng.random() < _SWELLING)
    )
    lesions = _lesions(rng) if ill else ()
    findings: list[Finding] = []
    if lesions:
        count = int(rng.choice(NODE_COUNTS, p=NODE_ODDS))
        findings += [_finding(rng, NODE, "lymph node", lesions[0].organ) for _ in range(count)]
        sites = [label for label in (LIVER, *LUNGS) if label != lesions[0].organ]
        findings += [
            _finding(rng, METASTASIS, "metastasis", site)
            for site in sites
            if rng.random() < _METASTASES
        ]
    findings += [
        _finding(rng, LOOK_ALIKE, CYST, kidney) for kidney in (2, 3) if rng.random() < _CYSTS
    ]
    labels = np.zeros((1, 1, len(_IN_VIEW)), np.uint8)
    labels[0, 0] = _IN_VIEW
    empty = np.zeros(labels.shape, np.uint8)
    source, affine = f"truth {seed}", np.eye(4)
    return Patient(
        Volume(empty.astype(np.float32), affine, source),
        Volume(labels, affine, source),
        lesions,
        seed,
        "Everything is made up.",
        Volume(empty, affine, source),
        Volume(empty, affine, source),
        tuple(findings),
        body,
    )


def _lesions(rng: np.random.Generator) -> tuple[Lesion, ...]:
    plan = draw_plan(rng, DIGESTIVE)
    return tuple(
        Lesion(
            plan.organ,
            str(rng.choice(SEGMENTS[plan.organ])),
            round(mm, 1),
            plan.density,
            plan.shape,
            plan.border,
            plan.other,
            plan.depth if plan.organ in HOLLOW else None,
            _NOWHERE,
            1000,
        )
        for mm in plan.diameters_mm
    )


def _finding(rng: np.random.Generator, kind: int, name: str, organ: int) -> Finding:
    return Finding(kind, name, organ, round(float(rng.uniform(12, 30)), 1), _NOWHERE)
