"""Digital patients that no training has seen, asked all that their records ask.

Each question is put twice: about the patient's scan, and about another patient's. What is right
about the wrong scan is the text-only baseline: the words and the odds knew it, not the eyes. (An
empty image would be a weaker one: nothing like it was ever seen, and what is said of it is noise.)
"""

from collections.abc import Sequence
from typing import Any

from tqdm import tqdm

from tumorchain_jax.analyze import Analyzer, PreparedCase
from tumorchain_jax.data.chat import with_choices
from tumorchain_jax.data.phantom_records import patient_records
from tumorchain_jax.evaluation.answers import NONE, YES_NO
from tumorchain_jax.evaluation.score import Item, make_item, score, table
from tumorchain_jax.scan.phantom import Patient, make_patient


def ask_phantoms(analyzer: Analyzer, first_seed: int, count: int) -> list[Item]:
    """The records of `count` patients of consecutive seeds, answered greedily and judged."""
    items: list[Item] = []
    other = _prepare(analyzer, make_patient(first_seed + count))
    for seed in tqdm(range(first_seed, first_seed + count), "phantoms", disable=None):
        patient = make_patient(seed)
        own = _prepare(analyzer, patient)
        records = patient_records(patient, seed - first_seed)
        questions = [with_choices(record.question, record.choices) for record in records]
        both = [(case, question) for case in (own, other) for question in questions]
        answers = [report.answer for report in analyzer.batch(both)]
        seen, unseen = answers[: len(records)], answers[len(records) :]
        items += map(make_item, records, seen, unseen)
        other = own
    return items


def _prepare(analyzer: Analyzer, patient: Patient) -> PreparedCase:
    return analyzer.prepare(patient.ct, patient.labels)


def summary(items: Sequence[Item]) -> dict[str, Any]:
    """`score`, and the ill alone, asked in which organ the tumour is.

    Returns:
        of `score`, and `tumour_organ`: such a row for the open questions and one for the
        `multiple_choice`; None where there are none.
    """
    organ = [
        item
        for item in items
        if item.subtask == "tumor_position" and item.truth not in (*YES_NO, NONE)
    ]
    forms = {
        "open": [item for item in organ if not item.choices],
        "multiple_choice": [item for item in organ if item.choices],
    }
    rows = {
        form: score(of_form)["subtasks"]["tumor_position"] if of_form else None
        for form, of_form in forms.items()
    }
    return score(items) | {"tumour_organ": rows}


def summary_text(summary: dict[str, Any]) -> str:
    """What `summary` returns, to read."""
    patients = f"{summary['patients']} synthetic patients, accuracy in percent"
    lines = [f"{patients}; text only: about another patient's scan", table(summary)]
    for form, row in summary["tumour_organ"].items():
        if row:
            low, high = row["ci95"]
            lines.append(
                f"organ of the tumour, {form.replace('_', ' ')}: {row['accuracy']} [{low}, {high}]"
                f", n {row['n']}, majority {row['majority']}, text only {row['text_only']}"
            )
    return "\n".join(lines)
