"""Every fact of the truth can be read back from the free text, whatever its wording."""

import re
from dataclasses import replace

import numpy as np
import pytest

from tumorchain_jax.anatomy.organs import DIGESTIVE
from tumorchain_jax.anatomy.staging import stage
from tumorchain_jax.anatomy.substructures import SEGMENTS
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.phantoms.body import PHASES, Body
from tumorchain_jax.phantoms.incidental import (
    CALCIFICATION,
    CYST,
    LOOK_ALIKE,
    METASTASIS,
    NODE,
    Finding,
)
from tumorchain_jax.phantoms.lesions import (
    BORDERS,
    DENSITIES,
    DEPTHS,
    HOLLOW,
    OTHERS,
    SHAPES,
    Lesion,
)
from tumorchain_jax.phantoms.patient import Patient, make_patient
from tumorchain_jax.phantoms.report_text import free_text
from tumorchain_jax.scan.volume import Volume

CENTRE = (0.0, 0.0, 0.0)
NAMES = {
    5: "liver", 1: "spleen", 7: "pancreas", 3: "left kidney", 2: "right kidney", 6: "stomach",
    20: "colon", 15: "esophagus", 52: "aorta", 11: "left lung", 14: "right lung",
}  # fmt: skip
PARTS = "|".join(part for parts in SEGMENTS.values() for part in parts)


def draw(seed: int) -> Patient:
    """A patient with any truth; of the voxels only which organs are in view matters."""
    rng = np.random.default_rng(seed)

    def pick(options):
        return options[int(rng.integers(len(options)))]

    def some(kind, name, organ, most):
        sizes = rng.uniform(7, 26, int(rng.integers(most + 1)))
        return [Finding(kind, name, organ, float(size), CENTRE) for size in sizes]

    organ = DIGESTIVE[seed % 5]
    words = [pick(w) for w in (DENSITIES, SHAPES, BORDERS, OTHERS[organ])]
    lesions = tuple(
        Lesion(
            organ, pick(SEGMENTS[organ]), float(rng.uniform(8, 90)), *words,
            pick(DEPTHS) if organ in HOLLOW else None, CENTRE, 9,
        )
        for _ in range(seed % 4)
    )  # fmt: skip
    in_view = {organ, *(o for o in NAMES if rng.random() < 0.9)}
    findings = [f for o in (2, 3, 5) if o in in_view for f in some(LOOK_ALIKE, CYST, o, 2)]
    findings += some(LOOK_ALIKE, CALCIFICATION, 52, 4) if 52 in in_view else []
    if lesions:
        findings += some(NODE, "lymph node", organ, 8)
        sites = [o for o in (5, 11, 14) if o in in_view and o != organ]
        findings += [f for o in sites for f in some(METASTASIS, "metastasis", o, 3)]
    body = Body(pick(PHASES), cirrhosis=bool(rng.random() < 0.5), swelling=rng.random() < 0.5)
    labels = Volume(np.array([[[0, *in_view]]], np.uint8), np.eye(4))
    return Patient(
        labels, labels, lesions, seed, "All made up.", labels, labels, tuple(findings), body
    )


PATIENTS = [draw(seed) for seed in range(120)]
TEXTS = [free_text(patient, seed) for seed, patient in enumerate(PATIENTS)]


def sections(text: str) -> tuple[str, str, str, str]:
    """What is made up, findings, impression, pathology."""
    synthetic, *rest = text.splitlines()
    findings, impression, pathology = rest
    assert findings.startswith("Findings: ")
    assert impression.startswith("Impression: ")
    assert pathology.startswith("Pathology: ")
    return synthetic, findings[10:], impression[12:], pathology[11:]


def sentences(paragraph: str) -> list[str]:
    return re.findall(r"[^.]+\.", paragraph)


def one_of(words: tuple[str, ...], sentence: str) -> str:
    (found,) = (word for word in words if re.search(rf"\b{word}\b", sentence))
    return found


def lesions_told(findings: str) -> list[tuple]:
    """Part, mm, density, shape, border and depth of each lesion."""
    told: list[tuple] = []
    for sentence in sentences(findings):
        if "dense" in sentence:
            (part,) = re.findall(rf"\b(?:{PARTS})\b", sentence)
            (mm,) = re.findall(r"(\d+) mm", sentence)
            words = (one_of(w, sentence) for w in (DENSITIES, SHAPES, BORDERS))
            told.append((part, int(mm), *words, None))
        elif sentence.startswith(" It ") and "goes with" not in sentence:
            depth = next(word for word in ("wall", "fat", "surface") if word in sentence)
            told[-1] = (*told[-1][:-1], depth)
    return told


def several_told(findings: str) -> list[tuple[str, str, list[int]]]:
    """Name, organ and sizes of what is counted."""
    counted = rf"(\d+) (?:enlarged )?(lymph node|metastas[ei]s|{CYST}|{CALCIFICATION})"
    told = []
    for sentence in sentences(findings):
        for count, name in re.findall(counted, sentence):
            (organ,) = (o for o in NAMES.values() if f"the {o}" in sentence.lower())
            (listed,) = re.findall(r"([\d, and]+) mm", sentence)
            sizes = [int(size) for size in re.findall(r"\d+", listed)]
            assert len(sizes) == int(count)
            told.append((name.replace("metastases", "metastasis"), organ, sizes))
    return told


@pytest.mark.parametrize("seed", range(len(PATIENTS)))
def test_every_fact_is_read_back(seed: int) -> None:
    p = PATIENTS[seed]
    synthetic, findings, impression, pathology = sections(TEXTS[seed])
    assert synthetic == p.synthetic
    assert one_of(PHASES, findings.lower()) == p.body.phase
    assert lesions_told(findings) == [
        (n.segment, round(n.diameter_mm), n.density, n.shape, n.border, n.depth) for n in p.lesions
    ]
    grouped: dict[tuple[str, str], list[int]] = {}
    for f in p.findings:
        grouped.setdefault((f.name, NAMES[f.organ]), []).append(round(f.diameter_mm))
    told = several_told(findings)
    assert {(name, organ): sizes for name, organ, sizes in told} == grouped
    assert len(told) == len(grouped)

    traits = [t for t in OTHERS[5] + OTHERS[6] if f" {t} as well" in findings]
    traits += [t for t in OTHERS[5] + OTHERS[6] if f"goes with {t}." in findings]
    traits += [t for t in OTHERS[5] + OTHERS[6] if f"addition: {t}." in findings]
    assert set(traits) == {n.other for n in p.lesions} - {"none"}
    in_view = set(np.unique(p.labels.voxels).tolist())
    assert ("cirrhosis" in findings) == (p.body.cirrhosis and 5 in in_view)
    large = "enlarged spleen" in findings or "spleen is enlarged" in findings
    assert (large or "Splenomegaly" in findings) == (p.body.cirrhosis and 1 in in_view)
    assert ("swollen" in findings or "Swelling" in findings) == (p.body.swelling and 7 in in_view)
    no_node = "No enlarged lymph node" in findings or "normal size" in findings
    assert no_node == all(f.kind != NODE for f in p.findings)

    normal = {
        organ
        for organ in NAMES.values()
        if f"The {organ} looks normal." in findings
        or f"The {organ} is unremarkable." in findings
        or f"Nothing abnormal in the {organ}." in findings
    }
    ill = {n.organ for n in p.lesions} | {f.organ for f in p.findings if f.kind != NODE}
    ill |= {5, 1} if p.body.cirrhosis else set()
    ill |= {7} if p.body.swelling else set()
    assert normal == {NAMES[label] for label in in_view - ill - {0}}

    tumours = re.findall(r"umour of the (\w+)", impression)
    assert tumours == ([NAMES[p.lesions[0].organ]] if p.lesions else [])
    spread = re.findall(r"(?:spread to|Metastases in) the ([^.]+)\.", impression)
    sites = {NAMES[f.organ] for f in p.findings if f.kind == METASTASIS}
    assert set(re.split(", | and ", spread[0]) if spread else []) == sites
    assert ("Cirrhosis of the liver" in impression) == p.body.cirrhosis
    assert ("Inflammation of the pancreas" in impression) == p.body.swelling
    harmless = {f.name for f in p.findings if f.kind == LOOK_ALIKE}
    assert {name for name in (CYST, CALCIFICATION) if f"{name}s" in impression} == harmless

    stages = re.findall(r"\b[TNM]\d[a-d]?\b", pathology)
    assert tuple(stages) == (stage(p.extent) if p.extent else ())


def test_wordings_differ_and_the_seed_decides() -> None:
    for patient in PATIENTS[:5]:
        texts = {free_text(patient, seed) for seed in range(10)}
        assert len(texts) > 5
        assert free_text(patient, 3) == free_text(patient, 3)


def test_every_text_is_finished_and_well_formed() -> None:
    for text in TEXTS:
        assert text.endswith(".\n")
        assert not re.search(r"[{}]|  |\.\.|None|\bnone\b", text)
        assert not re.search(r"\b1 (?:cysts|metastases|enlarged lymph nodes)", text)


def test_a_made_patient_is_told_and_a_real_ct_refused() -> None:
    patient = make_patient(0)
    assert len(lesions_told(sections(free_text(patient, 0))[1])) == len(patient.lesions)
    with pytest.raises(InputError, match="found a real CT"):
        free_text(replace(patient, body=None), 0)
