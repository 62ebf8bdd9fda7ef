"""Digital patients that no training has seen, asked all that their records ask.

Each question is put twice: about the scan, and about a blank one with the same ROI cells. What is
right without the image is the text-only baseline: the words, not the eyes, knew it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tqdm import tqdm

from tumorchain_jax.analyze import Analyzer
from tumorchain_jax.data.chat import with_choices
from tumorchain_jax.data.phantom_records import NONE, patient_records
from tumorchain_jax.evaluation.answers import YES_NO
from tumorchain_jax.evaluation.score import Item, make_item, score
from tumorchain_jax.scan.phantom import make_patient


def ask_phantoms(analyzer: Analyzer, first_seed: int, count: int) -> list[Item]:
    """The records of `count` patients of consecutive seeds, answered greedily and judged."""
    items: list[Item] = []
    for seed in tqdm(range(first_seed, first_seed + count), "phantoms", disable=None):
        patient = make_patient(seed)
        case = analyzer.prepare(patient.ct, patient.labels)
        blank = replace(case, scan=replace(case.scan, image=np.zeros_like(case.scan.image)))
        records = patient_records(patient, seed - first_seed)
        questions = [with_choices(record.question, record.choices) for record in records]
        both = [(shown, question) for shown in (case, blank) for question in questions]
        answers = [report.answer for report in analyzer.batch(both)]
        seen, unseen = answers[: len(records)], answers[len(records) :]
        items += map(make_item, records, seen, unseen)
    return items


def summary(items: Sequence[Item]) -> dict[str, Any]:
    """`score`, and `tumour_organ`: the ill alone, asked in which organ the tumour is."""
    organ = [
        item
        for item in items
        if item.subtask == "tumor_position" and item.truth not in (*YES_NO, NONE)
    ]
    return score(items) | {
        "tumour_organ": score(organ)["subtasks"]["tumor_position"] if organ else None
    }
