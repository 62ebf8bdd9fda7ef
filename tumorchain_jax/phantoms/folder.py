"""Digital patients as NIfTI files, one folder each.

    DIR/phantom-SEED/ct.nii.gz       HU
    DIR/phantom-SEED/labels.nii.gz   TotalSegmentator v2 ids
    DIR/phantom-SEED/lesions.nii.gz  n in the n-th lesion of the tumour
    DIR/phantom-SEED/others.nii.gz   metastases, nodes and look-alikes (phantoms/incidental.py)
    DIR/phantom-SEED/truth.json      the structured report
    DIR/phantom-SEED/report.txt      the same as free text
    DIR/phantoms.json                the kind of patients, unless it is the simple one

A patient is written to a hidden folder, which is renamed when it is complete.
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import atomic_directory, write_file
from tumorchain_jax.phantoms.patient import Patient, make_patient, write_patient
from tumorchain_jax.phantoms.report_text import free_text
from tumorchain_jax.phantoms.settings import SIMPLE_PATIENTS, PatientSettings


@dataclass(frozen=True)
class Written:
    """Counts of a run.

    Attributes:
        made: patients that this run made.
        already_done: patients of an earlier run.
        cpu_seconds: seconds of one core that making and writing took.
    """

    made: int
    already_done: int
    cpu_seconds: float

    @property
    def volumes_per_second_per_core(self) -> float:
        """Patients made for each second of a core; 0 where none was made."""
        return self.made / self.cpu_seconds if self.made else 0.0


def write_phantom_folders(
    folder: Path, first_seed: int, count: int, settings: PatientSettings = SIMPLE_PATIENTS
) -> Written:
    """Write `count` patients of consecutive seeds; those that are complete are not made again.

    Raises:
        InputError: the folder cannot be made, or holds patients of another kind.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            folder, "output", str(error.strerror), "a folder to write to", "choose another"
        ) from error
    _claim(folder, settings)
    folders = {seed: folder / f"phantom-{seed}" for seed in range(first_seed, first_seed + count)}
    todo = {seed: each for seed, each in folders.items() if not _is_done(each)}
    start = time.process_time()
    for seed, each in tqdm(todo.items(), "phantoms", disable=None):
        _write(make_patient(seed, settings), each)
    return Written(len(todo), count - len(todo), time.process_time() - start)


def _claim(folder: Path, settings: PatientSettings) -> None:
    """Refuse a folder with patients of another kind; note the kind in an empty one."""
    path, facts = folder / "phantoms.json", settings.facts()
    found = json.loads(path.read_bytes()) if path.is_file() else {}
    if found == facts:
        return
    if found or any(map(_is_done, folder.glob("phantom-*"))):
        hint = "name another folder"
        raise InputError(folder, "patients", str(found or "simple"), str(facts or "simple"), hint)
    write_file(path, json.dumps(facts, indent=1).encode())


def _is_done(folder: Path) -> bool:
    return all((folder / name).is_file() for name in ("truth.json", "report.txt"))


def _write(patient: Patient, folder: Path) -> None:
    with atomic_directory(folder, overwrite=True) as part:  # an incomplete one may be there
        write_patient(patient, part)
        write_file(part / "report.txt", free_text(patient, patient.seed).encode())
