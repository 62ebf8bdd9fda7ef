"""Right and wrong short answers in other words: the measure of a judge's yes or no.

The questions and truths are the records of the digital patients; an answer says one value, the true
one or another, in wordings that the reader of `answers.py` was not written for.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tumorchain_jax.anatomy.substructures import SEGMENTS
from tumorchain_jax.data.schema import Record
from tumorchain_jax.evaluation.answers import judge
from tumorchain_jax.evaluation.chain.cases import draw_truth
from tumorchain_jax.evaluation.chain.verdict import Case
from tumorchain_jax.phantoms.lesions import OTHERS
from tumorchain_jax.phantoms.records import patient_records

_FRAMES: dict[str, tuple[str, ...]] = {
    "shape": ("The lesion looks {}.", "I would describe it as {}.", "Its shape: {}."),
    "boundary": ("The lesion is {}.", "Its border is {}.", "It appears {}."),
    "density": ("On this scan it is {}.", "It appears {}.", "Density: {}."),
    "count": ("I can see {}.", "There seem to be {} of them.", "Number of lesions: {}."),
    "others": ("In addition it shows {}.", "There is {}.", "Also seen: {}."),
    "segment_localization": ("It sits in the {}.", "I find it in the {}.", "Location: {}."),
    "tumor": ("I would stage it as {}.", "Category {}.", "This is a {} tumour."),
    "node": ("For the nodes this means {}.", "Category {}.", "It is {}."),
    "metastasis": ("For metastases this means {}.", "Category {}.", "It is {}."),
}
_WORDS: dict[str, tuple[str, ...]] = {
    "round": ("round", "rounded", "spherical"),
    "irregular": ("irregular", "of irregular shape"),
    "well-defined": ("well defined", "clearly demarcated", "well circumscribed"),
    "ill-defined": ("ill defined", "poorly circumscribed", "poorly demarcated"),
    "hypodense": ("hypodense", "hypo-attenuating", "of low attenuation"),
    "hyperdense": ("hyperdense", "hyper-attenuating", "of high attenuation"),
    "1": ("one", "a single one", "1"),
    "2": ("two", "2"),
    "3": ("three", "3"),
    "calcification": ("calcifications", "calcification"),
    "rim enhancement": ("rim enhancement", "an enhancing rim"),
    "wall thickening": ("thickening of the wall", "wall thickening"),
    "ductal dilatation": ("dilatation of the duct", "a dilated duct"),
    "none": ("nothing else", "no further feature"),
}


class AnswerProbe(NamedTuple):
    """A case whose conclusion is known to be right, or wrong."""

    case: Case
    right: bool


def answer_probes(first_seed: int, count: int) -> Iterator[AnswerProbe]:
    """Yield `count` right and as many wrong answers, one of each a question."""
    left, seed = count, first_seed
    while left:
        patient = draw_truth(seed)
        rng = np.random.default_rng((seed, 22))
        for record in patient_records(patient, 0):
            if record.choices or record.subtask not in _FRAMES or not left:
                continue
            others = [value for value in _values(record) if value != record.answer]
            yield _probe(record, record.answer, True, rng)
            yield _probe(record, str(rng.choice(others)), False, rng)
            left -= 1
        seed += 1


def _values(record: Record) -> Sequence[str]:
    return {
        "shape": ("round", "irregular"),
        "boundary": ("well-defined", "ill-defined"),
        "density": ("hypodense", "hyperdense"),
        "count": ("1", "2", "3"),
        "others": OTHERS.get(record.organ, ()),
        "segment_localization": SEGMENTS.get(record.organ, ()),
        "tumor": ("T1b", "T2", "T3", "T4a"),
        "node": ("N0", "N1", "N2"),
        "metastasis": ("M0", "M1"),
    }[record.subtask]


def _probe(record: Record, value: str, right: bool, rng: np.random.Generator) -> AnswerProbe:
    words = _WORDS.get(value, (value,))
    frames = _FRAMES[record.subtask]
    text = frames[rng.integers(len(frames))].format(words[rng.integers(len(words))])
    if value == "none":
        text = f"It shows {words[rng.integers(len(words))]}."
    read = judge(record, text).right
    case = Case(record.patient, record.subtask, record.question, (), text, record.reasoning, read)
    return AnswerProbe(case, right)
