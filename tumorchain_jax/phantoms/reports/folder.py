"""Test reports as files: a case list that the data engine reads, the texts, and the truth.

    DIR/cases.jsonl   case, patient, scans, radiology, pathology, language, sex, age
    DIR/truth.jsonl   case, style, held_out, statements, identifiers
    DIR/texts/...     the reports

The folder appears when all of it is written.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from tumorchain_jax.core.files import atomic_directory
from tumorchain_jax.phantoms.reports.cases import make_case, styles_named

CASES, TRUTH = "cases.jsonl", "truth.jsonl"


def write_reports(
    folder: Path, first_seed: int, count: int, styles: Sequence[str], identifiers: bool = False
) -> int:
    """Write the cases of consecutive seeds, by the writers in turn; returns how many texts.

    Args:
        styles: names of writers; none: all of them.
        identifiers: plant names, dates, numbers and addresses of nobody.

    Raises:
        InputError: there is no such style, or the folder is there already or cannot be made.
    """
    writers = styles_named(styles)
    texts = 0
    with (
        atomic_directory(folder) as part,
        (part / CASES).open("w", encoding="utf-8") as cases,
        (part / TRUTH).open("w", encoding="utf-8") as truth,
    ):
        for number in tqdm(range(count), "reports", disable=None):
            case = make_case(first_seed + number, writers[number % len(writers)], identifiers)
            for file, text in zip(case.files, (case.radiology, case.pathology), strict=True):
                if file:
                    path = part / file
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(text.encode())  # ends of lines stay what they are
                    texts += 1
            cases.write(json.dumps(case.entry(), ensure_ascii=False) + "\n")
            truth.write(json.dumps(case.truth(), ensure_ascii=False) + "\n")
    return texts
