"""`tumorchain evaluate`: ask, judge, score, write."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tumorchain_jax import NOTICE
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.ask import BATCH_SIZE
from tumorchain_jax.evaluation.failures import failures_page
from tumorchain_jax.evaluation.items import Item, json_lines, read_items
from tumorchain_jax.evaluation.kept import with_answers
from tumorchain_jax.evaluation.patients import Patients, StoredPatients, made_patients
from tumorchain_jax.evaluation.plot import bar_chart
from tumorchain_jax.evaluation.reliability_plot import reliability_curve
from tumorchain_jax.evaluation.resume import answers_path, ask_all
from tumorchain_jax.evaluation.score import confidence_of, summary
from tumorchain_jax.evaluation.selective import reliability
from tumorchain_jax.evaluation.tables import summary_text
from tumorchain_jax.inference.analyzer import Analyzer
from tumorchain_jax.phantoms.settings import SIMPLE_PATIENTS, PatientSettings
from tumorchain_jax.report.folder import check_folder, write_folder
from tumorchain_jax.segmentation.total import TotalSegmenter
from tumorchain_jax.weights.measured import EVALUATION, write_evaluation
from tumorchain_jax.weights.model_folder import ModelFolder
from tumorchain_jax.weights.scores import DomainScores, Score


def evaluate(
    checkpoint: Path | None,
    output: Path | None,
    *,
    items: Path | None,
    data: Path | None,
    real: Sequence[tuple[Path, Path]],
    phantoms: int,
    tumours: int,
    seed: int,
    segmenter: TotalSegmenter | None = None,
    settings: PatientSettings = SIMPLE_PATIENTS,
    answers: Path | None = None,
) -> tuple[dict[str, Any], str]:
    """Score saved answers (`items`), or ask a checkpoint and score its answers.

    Args:
        checkpoint: folder, into which the score is written as well (`evaluation.json`), unless the
            organ masks were predicted; None is the nano model that ships with the package.
        output: new folder for answers, score, chart and failures.
        items: file of saved answers.
        data: a data set, whose test patients are asked about; otherwise
        real: pairs of a CT and its label map, into each of which `tumours` are painted; otherwise
        phantoms: this many digital patients.
        seed: of the first phantom or tumour.
        segmenter: makes the organ masks of phantoms and real CTs, in place of the true ones.
        settings: the kind of digital patients.
        answers: with `items`: another model's answers to the same questions.

    Returns:
        the score as plain values, and as text.

    Raises:
        InputError: one of these cannot be used.
    """
    if output:
        check_folder(output, overwrite=False)
    files: dict[str, str] = {}
    record = None
    if items:
        judged = read_items(items)
        if answers:
            judged = with_answers(judged, answers)
    else:
        analyzer = Analyzer.load(checkpoint, batch_size=BATCH_SIZE, segmenter=segmenter)
        predicted = segmenter is not None
        patients: Patients
        if data:
            patients = StoredPatients(analyzer, data)
        else:
            patients = made_patients(analyzer, real, tumours, phantoms, seed, predicted, settings)
        if patients.seeds:
            analyzer.checkpoint.measured.check_seeds(patients.seeds, "evaluation")
        if checkpoint and not predicted:
            record = partial(_record, checkpoint, analyzer.checkpoint, patients)
        judged, files = _ask(analyzer, patients, output)
    score = summary(judged)
    text = f"{summary_text(score)}\n{NOTICE}\n"
    if output:
        files |= {
            "items.jsonl": json_lines(judged),
            "score.json": json.dumps(score, indent=1) + "\n",
            "score.txt": text,
            "score.svg": bar_chart(score, f"{score['patients']} patients with made-up tumours"),
        }
        if score["selective"]["ece"]:
            files["reliability.svg"] = _reliability(judged, score["selective"])
        write_folder(output, files, overwrite=False)
        if not items:
            answers_path(output).unlink()
    if record:
        text += f"{record(score)}\n"
    return score, text


def _record(folder: Path, model: ModelFolder, patients: Patients, score: Mapping[str, Any]) -> str:
    """Write a score into its model folder, unless the one there is of more patients; say so."""
    earlier = model.measured.domains.get(patients.domain)
    if earlier and earlier.patients > score["patients"]:
        return f"{folder / EVALUATION}: the score of {earlier.patients} patients there stays"
    rows = {name: _score(row) for name, row in score["subtasks"].items()}
    scores = DomainScores(patients.source, score["patients"], patients.seeds, rows)
    try:
        write_evaluation(folder, model.sha256, patients.domain, scores)
    except InputError as error:  # the score itself is worth more than this file
        return f"not written: {error}"
    return f"written to {folder / EVALUATION}, which reports show"


def _score(row: Mapping[str, Any]) -> Score:
    low, high = row["ci95"]
    return Score(row["accuracy"], (low, high), row["n"], row["majority"], row["text_only"])


def _reliability(items: Sequence[Item], row: Mapping[str, Any]) -> str:
    bins = reliability(confidence_of(items), np.array([item.right for item in items]))
    title = "calibrated confidence" if row["calibrated"] else "probability, not calibrated"
    return reliability_curve(bins, title, f"expected calibration error {row['ece'][0]:g} %")


def _ask(
    analyzer: Analyzer, patients: Patients, output: Path | None
) -> tuple[list[Item], dict[str, str]]:
    """Return the judged answers and, if there is an output folder, the page of the wrong ones."""
    path = answers_path(output) if output else None
    answers = ask_all(analyzer, patients, path)
    page = {"failures.html": failures_page(analyzer, patients, answers)} if path else {}
    return [item for of_patient in answers for item in of_patient], page
