"""The synthetic benchmark: its answers against voxels, by other code than made them."""

import json
from collections import Counter
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.deeptumorvqa.questions import QuestionFile, read_questions
from tumorchain_jax.evaluation.deeptumorvqa.subtypes import SUBTYPES
from tumorchain_jax.evaluation.deeptumorvqa.synthetic.benchmark import write_benchmark
from tumorchain_jax.phantoms.settings import PatientSettings

SEED, COUNT = 7_500_000, 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("benchmark")
    assert write_benchmark(folder, SEED, COUNT).made == COUNT
    return folder


@pytest.fixture(scope="module")
def asked(folder: Path) -> QuestionFile:
    return read_questions(folder / "test_qa.json")


def test_nearly_all_subtypes_of_few_patients(asked: QuestionFile) -> None:
    subtypes = Counter(question.subtype.name for question in asked.questions)
    assert len(subtypes) >= 40, set(SUBTYPES) - set(subtypes)
    assert max(subtypes.values()) == COUNT
    assert (asked.version, asked.seeds) == ("v2", (SEED, COUNT))
    assert "made up" in asked.synthetic


def test_answers_are_options(asked: QuestionFile) -> None:
    for question in asked.questions:
        assert question.options[question.correct_option] == question.answer
        assert len(set(question.options.values())) == len(question.options)


def test_answers_are_those_of_the_voxels(folder: Path, asked: QuestionFile) -> None:
    ids = {"liver": 5, "spleen": 1, "pancreas": 7, "right kidney": 2, "left kidney": 3}
    checked: Counter[str] = Counter()
    for image in sorted({question.image_id for question in asked.questions}):
        ct, labels, lesions = (
            nib.load(folder / image / f"{name}.nii.gz") for name in ("ct", "labels", "lesions")
        )
        hu, organs, marked = (np.asarray(each.dataobj) for each in (ct, labels, lesions))
        cm3 = np.prod(ct.header.get_zooms()) / 1000
        liver = len(set(marked[(marked > 0) & (organs == 5)].tolist()))
        kidneys = len(set(marked[(marked > 0) & np.isin(organs, (2, 3))].tolist()))
        for question in asked.questions:
            if question.image_id != image:
                continue
            name, organ = question.subtype.name, question.facts.get("organ", "")
            expected: str | float | None = None
            if name == "organ volume measurement":
                expected = float(np.count_nonzero(organs == ids[organ]) * cm3)
            elif name == "organ HU measurement":
                expected = float(hu[(organs == ids[organ]) & (marked == 0)].mean())
            elif name == "liver lesion existence":
                expected = "Yes" if liver else "No"
            elif name == "kidney lesion existence":
                expected = "Yes" if kidneys else "No"
            elif name == "lesion counting" and organ in ("liver", "kidneys"):
                expected = float(liver if organ == "liver" else kidneys)
            elif name == "splenomegaly detection":
                expected = "Yes" if np.count_nonzero(organs == 1) * cm3 > 314.5 else "No"
            if isinstance(expected, float):
                assert float(question.answer) == pytest.approx(expected, abs=0.051)
            elif expected:
                assert question.answer == expected
            checked[name] += expected is not None
    assert sum(checked.values()) >= 5 * COUNT


def test_files_are_aligned(folder: Path) -> None:
    for path in folder.glob("phantom-*"):
        ct, labels, lesions = (nib.load(path / f"{n}.nii.gz") for n in ("ct", "labels", "lesions"))
        assert ct.shape == labels.shape == lesions.shape
        organs, marked = np.asarray(labels.dataobj), np.asarray(lesions.dataobj)
        assert set(organs[marked > 0].tolist()) <= {2, 3, 5, 7, 20}


def test_resume_makes_no_patient_again(folder: Path) -> None:
    before = json.loads((folder / "test_qa.json").read_bytes())
    written = write_benchmark(folder, SEED, COUNT)
    assert (written.made, written.already_done) == (0, COUNT)
    assert json.loads((folder / "test_qa.json").read_bytes()) == before
    with pytest.raises(InputError, match="patients"):
        write_benchmark(folder, SEED, COUNT, PatientSettings("realistic"))
