"""The questions of `tumorchain evaluate` about digital patients, as a task of lmms-eval."""

import json
from collections.abc import Iterator
from pathlib import Path

from tqdm import tqdm

from tumorchain_jax.evaluation.items import make_item
from tumorchain_jax.evaluation.patients import Phantoms
from tumorchain_jax.evaluation.slices.lmms import Scan, write_task
from tumorchain_jax.evaluation.slices.policy import SlicePolicy
from tumorchain_jax.evaluation.slices.subject import ANSWER
from tumorchain_jax.evaluation.slices.visible import not_answerable
from tumorchain_jax.reasoning.prompt import with_choices

UTILS = Path(__file__).with_name("lmms_utils.txt")
TASK = "tumorchain_table_1"


def export_task(patients: Phantoms, policy: SlicePolicy, output: Path) -> tuple[int, int]:
    """Write the task into a new folder; questions that slices cannot answer are left out.

    Returns:
        how many questions were written, and left out.

    Raises:
        InputError: the folder is there already.
    """
    left_out = 0

    def scans() -> Iterator[Scan]:
        nonlocal left_out
        for number in tqdm(range(len(patients)), "patients", disable=None):
            patient, (_, records) = patients.with_truth(number)
            fit = [record for record in records if not not_answerable(record, policy)]
            left_out += len(records) - len(fit)
            rows = []
            for place, record in enumerate(fit):
                item = make_item(record, "")
                rows.append(
                    {
                        "id": f"{record.patient}-{place}",
                        "question": with_choices(record.question, record.choices),
                        "target": item.truth,
                        "item": json.dumps(item.values()),
                    }
                )
            yield patient.ct, rows

    return write_task(output, TASK, scans(), policy, UTILS, ANSWER), left_out
