"""Linear probe: classify what the visual tokens of a lesion hold, given the lesion's true mask.

What the probe answers and the model does not is lost in the decoder; what neither answers may be
lost in the encoder. There is one logistic regression for each subtask about a tumour, fitted on the
training patients' tokens of the lesions (by the truth mask) and of the organ with the tumour. Of a
model with crops these are the tokens of the organ's crop. Masks of nodes and metastases are not
given: they would be the answer.

Which organ holds the tumour is probed without the lesions' mask: for each organ, a logistic
regression on its ROI tokens tells whether the tumour is there, and the likeliest organ is the
answer. The model's own organ classifier is asked the same. Both know that there is a tumour.

Shape letters: N questions, F features, C answers, S digestive organs.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from grain.sources import ArrayRecordDataSource
from jaxtyping import Bool, Float

from tumorchain_jax.anatomy.organs import DIGESTIVE, display_name
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.progress import progress
from tumorchain_jax.data.dataset import ModelScan, read_manifest, read_records, shard_paths
from tumorchain_jax.data.leaks import check_split
from tumorchain_jax.data.schema import SUBTASKS, Record
from tumorchain_jax.data.splits import SIDES, read_split
from tumorchain_jax.evaluation.items import make_item
from tumorchain_jax.evaluation.logistic import answer_logits, learn_to_answer
from tumorchain_jax.evaluation.patients import Patients, check_preprocessing
from tumorchain_jax.evaluation.probe_features import Features, compute_features
from tumorchain_jax.evaluation.score import score
from tumorchain_jax.weights.model_folder import ModelFolder

ABOUT_TUMOUR = (*SUBTASKS["lesion_attributes"], *SUBTASKS["tnm_prediction"])
WHICH_ORGAN, BY_CLASSIFIER = "which organ", "which organ, by Cls"
"""Rows of the organ with the tumour: by the probe, and by the model's organ classifier."""


class Side(NamedTuple):
    """Patients to fit on, or to score on.

    Attributes:
        records: about their tumours.
        scan: makes the scan of a number, as records name it.
    """

    records: Sequence[Record]
    scan: Callable[[int], ModelScan]


def linear_probe(
    checkpoint: ModelFolder, folder: Path, patients: Patients | None = None
) -> dict[str, dict[str, Any]]:
    """Fit the probes on a data set's training patients and score them on its test patients.

    Args:
        patients: to score them on instead.

    Returns:
        by subtask, and of `WHICH_ORGAN` and `BY_CLASSIFIER`: `accuracy`, `ci95` and `n` as in
        `score`; `majority`, of always giving the most frequent answer of the training patients.

    Raises:
        InputError: the data set is empty, its split leaks, no patient of one side has a tumour, or
            the scans were not preprocessed as the checkpoint's were.
    """
    check_preprocessing(folder, checkpoint)
    train, test = _sides(folder)
    if patients is not None:
        _check_seeds(folder, patients)
        test = _side_of(patients)
    for name, side in zip(SIDES, (train, test), strict=True):
        if not side.records:
            expected, hint = "patients with a tumour", "make a larger data set"
            raise InputError(folder / "split.json", name, "none", expected, hint)
    known, new = (
        compute_features(checkpoint, side.scan, {r.scan: r.organ for r in side.records})
        for side in (train, test)
    )
    rows = _rows_of_organs(train.records, known, test.records, new)
    for subtask in ABOUT_TUMOUR:
        seen, asked = (
            [record for record in side.records if record.subtask == subtask]
            for side in (train, test)
        )
        if not seen or not asked:
            continue
        inputs, new_inputs = (
            np.stack([features[record.scan].lesion for record in records])
            for features, records in ((known, seen), (new, asked))
        )
        answers = [record.answer for record in seen]
        said = learn_to_answer(inputs, answers, [record.patient for record in seen], new_inputs)
        rows[subtask] = _row(asked, said, answers)
    return rows


def _row(asked: Sequence[Record], said: Sequence[str], answers: Sequence[str]) -> dict[str, Any]:
    """Score what was said, and always saying the most frequent of the training `answers`."""
    ((most, _),) = Counter(answers).most_common(1)
    (row,) = score(list(map(make_item, asked, said)))["subtasks"].values()
    (baseline,) = score([make_item(record, most) for record in asked])["subtasks"].values()
    return {name: row[name] for name in ("accuracy", "ci95", "n")} | {
        "majority": baseline["accuracy"]
    }


def _rows_of_organs(
    seen: Sequence[Record],
    known: Mapping[int, Features],
    asked: Sequence[Record],
    new: Mapping[int, Features],
) -> dict[str, dict[str, Any]]:
    """Score which organ holds the tumour, by the probe and by the organ classifier."""
    of_seen, of_asked = ({r.scan: r for r in records} for records in (seen, asked))
    inputs, new_inputs = (
        np.stack([features[scan].organs for scan in records])
        for features, records in ((known, of_seen), (new, of_asked))
    )
    organs = [record.organ for record in of_seen.values()]
    patients = [record.patient for record in of_seen.values()]
    evidence = np.full(new_inputs.shape[:2], -np.inf)
    for n, organ in enumerate(DIGESTIVE):
        here = ["yes" if each == organ else "no" for each in organs]
        names, logits = answer_logits(inputs[:, n], here, patients, new_inputs[:, n])
        if names == ["no", "yes"]:
            evidence[:, n] = logits[:, 1] - logits[:, 0]
    by_classifier = np.stack([new[scan].abnormal for scan in of_asked])
    questions = [_which_organ(record) for record in of_asked.values()]
    visible = np.stack([new[scan].seen for scan in of_asked])
    return {
        name: _row(questions, _likeliest(found, visible), list(map(display_name, organs)))
        for name, found in ((WHICH_ORGAN, evidence), (BY_CLASSIFIER, by_classifier))
    }


def _which_organ(record: Record) -> Record:
    """The open question which organ holds the tumour, of the patient of another record."""
    name, (task, subtask) = display_name(record.organ), ("position", "tumor_position")
    return replace(record, task=task, subtask=subtask, organ=0, choices=(), answer=name)


def _likeliest(evidence: Float[np.ndarray, "N S"], visible: Bool[np.ndarray, "N S"]) -> list[str]:
    best = np.where(visible, evidence, -np.inf).argmax(axis=1)
    return [display_name(DIGESTIVE[n]) for n in best]


def probe_text(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Format what `linear_probe` returns as a table."""
    lines = [
        "A linear classifier on the checkpoint's tokens of the lesions (by the truth mask) and of "
        "their organ; nodes and metastases are not pointed out. Which organ: from each organ's "
        "tokens alone; Cls is the model's organ classifier. Accuracy in percent",
        f"\n{'':<22}{'accuracy':>9}{'95 % from':>11}{'to':>7}{'majority':>10}{'n':>7}",
    ]
    for subtask, row in rows.items():
        low, high = row["ci95"]
        lines.append(
            f"{subtask:<22}{row['accuracy']:>9}{low:>11}{high:>7}{row['majority']:>10}{row['n']:>7}"
        )
    return "\n".join(lines)


def _sides(folder: Path) -> list[Side]:
    """The training patients' and the test patients' side of a data set."""
    check_split(folder)
    split = read_split(folder)
    source = ArrayRecordDataSource(shard_paths(folder, "scans"))
    records = [record for record in read_records(folder) if record.subtask in ABOUT_TUMOUR]
    return [
        Side(
            [record for record in records if record.patient in split[side]],
            lambda number: ModelScan.from_bytes(source[number]),
        )
        for side in SIDES
    ]


def _side_of(patients: Patients) -> Side:
    """Patients to score on, whose records name the scan by the patient's number."""
    records = [
        replace(record, scan=number)
        for number in progress(range(len(patients)), len(patients), "probe", "patients")
        for record in patients[number][1]
        if record.subtask in ABOUT_TUMOUR
    ]
    return Side(records, patients.truth)


def _check_seeds(folder: Path, patients: Patients) -> None:
    """Refuse to score on digital patients that the probe would be fitted on."""
    fitted = read_manifest(folder)
    if not (patients.seeds and {"first_seed", "count"} <= fitted.keys()):
        return
    first, count = patients.seeds
    start, size = fitted["first_seed"], fitted["count"]
    if max(first, start) < min(first + count, start + size):
        found = f"seeds {first} to {first + count - 1}"
        expected = f"others than those of {folder.name}, {start} to {start + size - 1}"
        raise InputError("patients", "seeds", found, expected, "choose another --seed")
