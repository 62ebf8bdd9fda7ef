"""The report of a run: values, text, checklists and one offline page.

OUTPUT/scores.json, scores.txt   every number of the plan
OUTPUT/reporting.json            TRIPOD-LLM and STARD-AI, filled or marked missing
OUTPUT/report.html               one page, without a network
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import atomic_directory
from tumorchain_jax.core.json_fields import read_json
from tumorchain_jax.evaluation.auc import auroc, estimates
from tumorchain_jax.evaluation.bust.adjudicate import cluster, plain, read_reference, shown
from tumorchain_jax.evaluation.bust.ask import JOURNAL, RUN, read_replies
from tumorchain_jax.evaluation.bust.cases import FLOW
from tumorchain_jax.evaluation.bust.plan import check_plan
from tumorchain_jax.evaluation.bust.report_page import report_page
from tumorchain_jax.evaluation.bust.reporting import reporting
from tumorchain_jax.evaluation.bust.score import cases_of, score_run
from tumorchain_jax.evaluation.bust.study import read_study
from tumorchain_jax.evaluation.bust.tiers import (
    check_not_tiering,
    read_key,
    read_scores,
    read_tiers,
)
from tumorchain_jax.llm.journal import read_latencies
from tumorchain_jax.ultrasound.lesion import Lesion, read_manifest
from tumorchain_jax.ultrasound.lexicon import lexicon_with


def write_report(
    cases: Path, run: Path, output: Path, study: Path | None = None, tiers: Path | None = None,
    classifiers: Sequence[tuple[str, Path]] = (),
) -> tuple[dict[str, Any], str]:  # fmt: skip
    """Score a run and write a new folder.

    Args:
        study: an adjudicated reading study; None: the manifest's categories are the reference.
        tiers: file of difficulty tiers.
        classifiers: name and out-of-fold scores of classifiers, reported beside the model.

    Returns:
        the scores as values and as text.

    Raises:
        InputError: an input cannot be used, the run was begun under another plan, a model would be
            reported by tiers that it made, or the output is there.
    """
    told = read_json(run / RUN)
    check_plan(told, run / RUN)
    lexicon, rows = lexicon_with(str(told.get("lexicon")), run / RUN), read_manifest(cases)
    sorted_by = read_tiers(tiers) if tiers else None
    if sorted_by is not None:
        check_not_tiering(sorted_by, str(told["model"]))
    if study and (own := read_study(study).lexicon) != lexicon.sha256:
        expected = f"{lexicon.sha256[:16]}, which the model read by"
        raise InputError(study, "lexicon", own[:16], expected, "ask again with the study's lexicon")
    reference = read_reference(study, lexicon) if study else None
    replies = read_replies(run)
    if missing := sorted({row.id for row in rows} - {str(each["item"]) for each in replies}):
        raise InputError(run, "replies", f"none of case {missing[0]}", "all cases", "ask again")
    tier_of = sorted_by["tiers"] if sorted_by is not None else None
    values = score_run(replies, rows, lexicon, reference, tier_of, read_latencies(run / JOURNAL))
    values |= {"model": told["model"], "prompt": told["prompt"], "lexicon": lexicon.name}
    values["classifiers"] = {name: _classifier(cases, rows, path) for name, path in classifiers}
    agreement = read_json(study / "agreement.json") if study else None
    checklist = reporting(values, told, read_json(cases / FLOW), agreement)
    said = score_text(values)
    main = [line for line in replies if line["thinking"] == replies[0]["thinking"]]
    html = report_page(values, said, checklist, cases_of(main, rows, reference), cases)
    with atomic_directory(output) as part:
        for name, content in (("scores", values), ("reporting", checklist)):
            (part / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n", "utf-8")
        (part / "scores.txt").write_text(said + "\n", "utf-8")
        (part / "report.html").write_text(html, "utf-8")
    return values, said


def _classifier(cases: Path, rows: Sequence[Lesion], path: Path) -> dict[str, Any]:
    """Area under the ROC curve of a classifier's out-of-fold scores, on the lesions that have one.

    Without tiers: whether it made them cannot be told from its scores alone, if it was retrained.
    """
    scores, key = read_scores(path), read_key(cases)
    mean = {key[name]: score for name, score in scores.mean().items() if name in key}
    lesions = [row for row in rows if row.label != "normal" and row.id in mean]
    labels = np.array([row.label == "malignant" for row in lesions], bool)
    if not lesions or labels.all() or not labels.any():
        raise InputError(path, "id", "no lesions of both labels", "scores of these cases",
                         "score the prepared folder that the cases come from")  # fmt: skip
    values = np.array([mean[row.id] for row in lesions])
    found = estimates(labels, values, [cluster(row) for row in lesions], {"auc": auroc})["auc"]
    return plain(found) | {"n": len(lesions), "sha256": scores.sha256, "seeds": len(scores.by_seed)}


PRIMARY = {
    "birads_accuracy": "BI-RADS accuracy",
    "auc": "AUC, benign against malignant",
    "birads_accuracy_per_protocol": "BI-RADS accuracy, per protocol",
    "auc_per_protocol": "AUC, per protocol",
}
SECONDARY = {
    "auc_by_category": "AUC by category",
    "auc_by_category_per_protocol": "AUC by category, per protocol",
    "weighted_kappa": "weighted kappa with the reference",
    "sensitivity_at_4a": "sensitivity at 4a",
    "specificity_at_4a": "specificity at 4a",
    "brier": "Brier score",
    "calibration_error": "calibration error",
}


def score_text(values: Mapping[str, Any]) -> str:
    """The scores for people."""
    states = ", ".join(f"{count} {state}" for state, count in values["states"].items())
    labels = ", ".join(f"{count} {label}" for label, count in values["labels"].items())
    lines = [
        f"{values['model']}: {values['cases']} cases ({labels})",
        f"replies: {states}; {values['contradictions']} contradict themselves",
        f"reference of BI-RADS: {values['reference']}; lexicon: {values['lexicon']}",
        f"statistical plan {values['plan']}",
        f"prompt {values['prompt']}",
        "95 % intervals over patients; without an answer a case is wrong unless per protocol",
        "",
    ]
    lines += [_row(word, values["primary"][name]) for name, word in PRIMARY.items()]
    lines += ["", "secondary, not corrected for their number:"]
    lines += [_row(word, values["secondary"].get(name)) for name, word in SECONDARY.items()]
    for name, row in values["secondary"]["descriptors"].items():
        lines.append(_row(name, row) + f"   most frequent value {row['majority']:.3f}")
    for name, row in values["classifiers"].items():
        lines.append(_row(f"{name}, out of fold: AUC", row))
    for title, rows in (("by group:", values["groups"]), ("by difficulty tier:", values["tiers"])):
        if rows:
            lines += ["", title]
        for name, row in rows.items():
            lines.append(_row(f"{name}: BI-RADS accuracy", row["birads_accuracy"]))
            lines.append(_row(f"{name}: AUC", row["auc"]))
    lines += _stability_lines(values["stability"])
    lines += _thinking_lines(values["thinking"])
    lines += ["", "silent failures by group of the safety set (Wilson); false refusals:"]
    for name, row in values["safety"].items():
        lines.append(_row(name, row) + f"   unread {row['unread']}")
    lines.append(f"tokens: {values['tokens'][0]:,} in, {values['tokens'][1]:,} out")
    if values["seconds"] is not None:
        lines.append(f"seconds of a question, as served then: median {values['seconds']:.2f}")
    return "\n".join(lines)


def _stability_lines(stability: Mapping[str, Any]) -> Iterator[str]:
    if stability:
        yield ""
        yield "repeats of one question:"
    for temperature, row in stability.items():
        told = [
            f"{word} {'undefined' if row[name] is None else format(row[name], '.3f')}"
            for name, word in (
                ("answered", "answered"), ("flip_rate", "flip rate"),
                ("category_sd", "SD of category"), ("fleiss", "Fleiss' kappa"),
            )
        ]  # fmt: skip
        yield f"temperature {temperature}, {row['cases']} cases: " + ", ".join(told)


def _thinking_lines(modes: Mapping[str, Any]) -> Iterator[str]:
    if not modes:
        return
    yield ""
    yield "thinking, every case once in each mode:"
    for mode in ("on", "off"):
        row = modes[mode]
        yield _row(f"{mode}: BI-RADS accuracy", row["birads_accuracy"])
        yield _row(f"{mode}: AUC", row["auc"])
        seconds = "unknown" if row["seconds"] is None else f"{row['seconds']:.2f}"
        yield (
            f"{mode}: {row['answered']} answered, {row['tokens']:.0f} tokens out a question, "
            f"median {seconds} seconds"
        )
    if modes["differ"] is not None:
        yield f"the category differs in {modes['differ']:.3f} of {modes['both']} answered in both"


def _row(word: str, row: Mapping[str, Any] | None) -> str:
    if row is None or row["value"] is None:
        return f"{word:41}  undefined"
    return f"{word:41}  {shown(row)}   n {row['n']}"
