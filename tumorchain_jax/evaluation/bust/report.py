"""The report of a run: values, text, checklists and one offline page.

OUTPUT/scores.json, scores.txt   every number of the plan
OUTPUT/reporting.json            TRIPOD-LLM and STARD-AI, filled or marked missing
OUTPUT/report.html               one page, without a network
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import atomic_directory
from tumorchain_jax.core.json_fields import read_json
from tumorchain_jax.evaluation.auc import auroc, estimates
from tumorchain_jax.evaluation.bust.adjudicate import cluster, plain, read_reference, shown
from tumorchain_jax.evaluation.bust.ask import RUN, read_replies
from tumorchain_jax.evaluation.bust.cases import FLOW
from tumorchain_jax.evaluation.bust.figures import reliability_svg, roc_svg
from tumorchain_jax.evaluation.bust.plan import check_plan
from tumorchain_jax.evaluation.bust.reporting import reporting
from tumorchain_jax.evaluation.bust.score import Case, by_probability, cases_of, score_run
from tumorchain_jax.evaluation.bust.tiers import (
    check_not_tiering,
    read_key,
    read_scores,
    read_tiers,
)
from tumorchain_jax.report.shell import page
from tumorchain_jax.ultrasound.lesion import Lesion, read_manifest
from tumorchain_jax.ultrasound.lexicon import load_lexicon


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
    lexicon, rows = load_lexicon(), read_manifest(cases)
    sorted_by = read_tiers(tiers) if tiers else None
    if sorted_by is not None:
        check_not_tiering(sorted_by, str(told["model"]))
    reference = read_reference(study, lexicon) if study else None
    replies = read_replies(run)
    if missing := sorted({row.id for row in rows} - {str(each["item"]) for each in replies}):
        raise InputError(run, "replies", f"none of case {missing[0]}", "all cases", "ask again")
    tier_of = sorted_by["tiers"] if sorted_by is not None else None
    values = score_run(replies, rows, lexicon, reference, tier_of)
    values |= {"model": told["model"], "prompt": told["prompt"]}
    values["classifiers"] = {name: _classifier(cases, rows, path) for name, path in classifiers}
    agreement = read_json(study / "agreement.json") if study else None
    checklist = reporting(values, told, read_json(cases / FLOW), agreement)
    said = score_text(values)
    html = report_page(values, said, checklist, cases_of(replies, rows, reference), cases)
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
        f"reference of BI-RADS: {values['reference']}; statistical plan {values['plan']}",
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
    lines += ["", "silent failures by group of the safety set (Wilson); false refusals:"]
    for name, row in values["safety"].items():
        lines.append(_row(name, row) + f"   unread {row['unread']}")
    lines.append(f"tokens: {values['tokens'][0]:,} in, {values['tokens'][1]:,} out")
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


def _row(word: str, row: Mapping[str, Any] | None) -> str:
    if row is None or row["value"] is None:
        return f"{word:42} undefined"
    return f"{word:42} {shown(row)}   n {row['n']}"


def report_page(
    values: Mapping[str, Any], said: str, checklist: Mapping[str, Any], cases: Sequence[Case],
    folder: Path,
) -> str:  # fmt: skip
    """One offline page: scores, ROC and calibration, flow, checklists."""
    lesions = [case for case in cases if case.row.label != "normal" and case.reading is not None]
    labels = np.array([case.row.label == "malignant" for case in lesions], bool)
    scores = np.array([by_probability(case.reading) for case in lesions if case.reading], float)
    charts = ""
    if labels.any() and not labels.all():
        charts = roc_svg(labels, scores) + reliability_svg(labels, scores)
    flow = (folder / "flow.svg").read_text("utf-8")
    content = f"""<header><h1>BUST-AI Bench: {escape(str(values["model"]))}</h1></header>
<section><h2>Scores</h2><pre>{escape(said)}</pre></section>
<section><h2>Answered lesions</h2><div class="charts">{charts}</div></section>
<section><h2>Flow of the cases</h2>{flow}</section>
{_checklists(checklist)}"""
    style = (
        "main{max-width:72rem}pre{overflow:auto;font-size:.85rem}svg{max-width:100%}"
        ".charts{display:flex;flex-wrap:wrap;gap:1rem}"
    )
    return page(f"BUST-AI Bench: {values['model']}", content, more_style=style)


def _checklists(checklist: Mapping[str, Any]) -> str:
    parts = []
    for name, each in checklist.items():
        rows = "".join(
            f'<tr><th scope="row">{escape(item)}</th><td>{row["state"]}</td></tr>'
            for item, row in each["items"].items()
        )
        title = f"{name}: {each['filled']} filled, {each['missing']} missing"
        parts.append(f"<details><summary>{escape(title)}</summary><table>{rows}</table></details>")
    return f"<section><h2>Reporting</h2>{''.join(parts)}</section>"
