"""Digital patients as files that any viewer opens, one folder each.

DIR/phantom-SEED/ct.nii.gz       HU
DIR/phantom-SEED/labels.nii.gz   TotalSegmentator v2 ids
DIR/phantom-SEED/lesions.nii.gz  n in the n-th lesion of the tumour
DIR/phantom-SEED/others.nii.gz   metastases, nodes and look-alikes (phantoms/incidental.py)
DIR/phantom-SEED/truth.json      the structured report
DIR/phantom-SEED/report.txt      the same as free text; written last
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.phantoms.patient import make_patient, write_patient
from tumorchain_jax.phantoms.report_text import free_text


@dataclass(frozen=True)
class Written:
    """What a run wrote.

    Attributes:
        made: patients made now.
        already_done: those that were there.
        cpu_seconds: what making and writing took of one core.
    """

    made: int
    already_done: int
    cpu_seconds: float

    @property
    def volumes_per_second_per_core(self) -> float:
        """0 where nothing was made."""
        return self.made / self.cpu_seconds if self.made else 0.0


def write_phantom_folders(folder: Path, first_seed: int, count: int) -> Written:
    """Write `count` patients of consecutive seeds, but for those that are there already.

    Raises:
        InputError: the folder cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            folder, "output", str(error.strerror), "a folder to write to", "choose another"
        ) from error
    folders = {seed: folder / f"phantom-{seed}" for seed in range(first_seed, first_seed + count)}
    todo = {seed: each for seed, each in folders.items() if not _is_done(each)}
    start = time.process_time()
    for seed, each in tqdm(todo.items(), "phantoms", disable=None):
        _write(seed, each)
    return Written(len(todo), count - len(todo), time.process_time() - start)


def _is_done(folder: Path) -> bool:
    return all((folder / name).is_file() for name in ("truth.json", "report.txt"))


def _write(seed: int, folder: Path) -> None:
    patient = make_patient(seed)
    write_patient(patient, folder)
    (folder / ".part-report.txt").write_text(free_text(patient, seed))
    os.replace(folder / ".part-report.txt", folder / "report.txt")
