"""A benchmark of DeepTumorVQA's form on digital patients.

    DIR/test_qa.json                  the questions, in version 2's schema
    DIR/phantom-SEED/ct.nii.gz        HU
    DIR/phantom-SEED/labels.nii.gz    TotalSegmentator v2 ids
    DIR/phantom-SEED/lesions.nii.gz   n in the n-th lesion
    DIR/phantom-SEED/questions.json   its own questions
    DIR/phantoms.json                 the kind of patients

A patient's folder appears when it is complete; `test_qa.json` comes last.
"""

import json
import time
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from tqdm import tqdm

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import atomic_directory, write_file
from tumorchain_jax.evaluation.deeptumorvqa.ruler.measure import measure
from tumorchain_jax.evaluation.deeptumorvqa.subtypes import SUBTYPES, TYPES
from tumorchain_jax.evaluation.deeptumorvqa.synthetic.case import Case, make_case
from tumorchain_jax.evaluation.deeptumorvqa.synthetic.wording import Asked, ask_all
from tumorchain_jax.phantoms.folder import Written
from tumorchain_jax.phantoms.settings import SIMPLE_PATIENTS, PatientSettings

QUESTIONS = "test_qa.json"
VERSION = "2.0.0"
SYNTHETIC = "every scan, lesion, question and answer is made up"
STREAM = 21


def write_benchmark(
    folder: Path, first_seed: int, count: int, settings: PatientSettings = SIMPLE_PATIENTS
) -> Written:
    """Write `count` patients of consecutive seeds and their questions; resumable.

    Raises:
        InputError: the folder cannot be made, or holds patients of another kind.
    """
    facts = {"questions": "deeptumorvqa", **settings.facts()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _claim(folder, facts)
    except OSError as error:
        found, hint = error.strerror or str(error), "choose another"
        raise InputError(folder, "output", found, "a folder to write to", hint) from error
    seeds = range(first_seed, first_seed + count)
    todo = [seed for seed in seeds if not (_place(folder, seed) / "questions.json").is_file()]
    start = time.process_time()
    for seed in tqdm(todo, "phantoms", disable=None):
        _write(make_case(seed, settings), _place(folder, seed))
    spent = time.process_time() - start
    rows = [
        row
        for seed in seeds
        for row in json.loads((_place(folder, seed) / "questions.json").read_bytes())
    ]
    document = {
        "version": VERSION,
        "synthetic": SYNTHETIC,
        "seeds": [first_seed, count],
        "num_questions": len(rows),
        "question_types": list(TYPES),
        "questions": rows,
    }
    write_file(folder / QUESTIONS, (json.dumps(document, indent=1) + "\n").encode())
    return Written(len(todo), count - len(todo), spent)


def _place(folder: Path, seed: int) -> Path:
    return folder / f"phantom-{seed}"


def _claim(folder: Path, facts: dict[str, str]) -> None:
    path = folder / "phantoms.json"
    found = json.loads(path.read_bytes()) if path.is_file() else None
    if found is None and any(folder.glob("phantom-*")):
        found = "other patients"
    if found not in (None, facts):
        raise InputError(folder, "patients", str(found), str(facts), "name another folder")
    write_file(path, json.dumps(facts, indent=1).encode())


def _write(case: Case, folder: Path) -> None:
    with atomic_directory(folder, overwrite=True) as part:
        files = (("ct", case.ct, np.int16), ("labels", case.labels, np.uint8))
        for name, volume, dtype in (*files, ("lesions", case.lesions, np.uint8)):
            image = nib.Nifti1Image(volume.voxels.astype(dtype), volume.affine)
            image.header.set_xyzt_units("mm")
            nib.save(image, part / f"{name}.nii.gz")
        rows = case_questions(case, folder.name)
        write_file(part / "questions.json", json.dumps(rows, indent=1).encode())


def case_questions(case: Case, image_id: str) -> list[dict[str, Any]]:
    """Return the questions of a case, in version 2's schema."""
    measured = measure(case.ct, case.labels, case.lesions)
    rng = np.random.default_rng([case.seed, STREAM])
    return [_row(case, image_id, asked) for asked in ask_all(measured, rng)]


def _row(case: Case, image_id: str, asked: Asked) -> dict[str, Any]:
    subtype = SUBTYPES[asked.subtype]
    options = dict(zip("ABCD", asked.options, strict=False))
    letter = next(letter for letter, text in options.items() if text == asked.answer)
    spacing = " ".join(f"{mm:.3f}" for mm in case.ct.spacing)
    choices = " ".join(f"{letter}: {text}" for letter, text in options.items())
    return {
        "qid": f"{image_id}-{asked.subtype.replace(' ', '-').lower()}",
        "image_id": image_id,
        "spacing": f"[{spacing}]",
        "shape": str(case.ct.shape),
        "sex": "unknown",
        "age": "unknown",
        "question": asked.question,
        "answer": asked.answer,
        "mc_question": f"{asked.question} {choices}",
        "correct_option": letter,
        "organ": ", ".join(asked.about),
        "lesion": "lesion" if "lesion" in asked.question else "",
        "question_type": subtype.type,
        "question_subtype": subtype.name,
        "requires_tools": True,
    }
