"""The three rule sets behind one door; the only file that imports upstream's."""

from collections.abc import Mapping, Sequence
from typing import Any

from tumorchain_jax.evaluation.deeptumorvqa import upstream, v1
from tumorchain_jax.evaluation.deeptumorvqa.fixed import Format, judge
from tumorchain_jax.evaluation.deeptumorvqa.subtypes import Subtype, subtype_named


def upstream_metric(form: str, subtype: str) -> str:
    """Return what upstream reads: `mc`, or the kind of the subtype (unknown: categorical)."""
    known = subtype_named(subtype)
    return "mc" if form == "mc" else known.kind if known else "categorical"


def upstream_text(prediction: Mapping[str, Any]) -> str:
    """Return the text of a prediction that upstream scores."""
    return str(prediction.get("pred_answer") or prediction.get("raw_output") or "")


def upstream_rows(
    rows: Sequence[tuple[str, str, str, str, str]],
) -> dict[str, Any]:
    """Compute upstream's table.

    Args:
        rows: (type, subtype, format, text, truth) of each prediction.
    """
    return upstream.table(
        [(t, s, upstream_metric(form, s), text, truth) for t, s, form, text, truth in rows]
    )


def upstream_table(case: Mapping[str, Any]) -> dict[str, Any]:
    """Compute upstream's table of a case's questions and predictions."""
    index = {question["qid"]: question for question in case["questions"]}
    types: dict[str, str] = {}
    for question in case["questions"]:
        types.setdefault(question["question_subtype"], question["question_type"])
    rows, form = [], case["format"]
    for prediction in case["predictions"]:
        if question := index.get(prediction["qid"]):
            subtype = question["question_subtype"]
            truth = question["correct_option" if form == "mc" else "answer"]
            rows.append((types[subtype], subtype, form, upstream_text(prediction), truth))
    return upstream_rows(rows)


def upstream_case(case: Mapping[str, Any]) -> dict[str, Any]:
    """Read and score one answer as upstream does, named as in the cases."""
    metric = upstream_metric(case["format"], case["subtype"])
    row = upstream.ROWS[metric]([(case["output"], case["truth"])])
    read = upstream.READERS[metric]
    found = {"reading": read(case["output"])}
    if metric == "mc":
        return {**found, "parsed": row["n_parsed"], "score": row["accuracy"]}
    if metric == "numeric":
        truth = upstream.number(case["truth"], True)
        score = {"score": row["mean_mra"], "tolerance": row["tolerance_acc"]}
        return {**found, "truth_reading": truth, **score, "n_scored": row["n_scored"]}
    found |= {"truth_reading": read(case["truth"]), "score": row["accuracy"]}
    if metric == "binary":
        return {**found, "sensitivity": row["sensitivity"], "specificity": row["specificity"]}
    return {**found, "partial": row["partial_accuracy"]}


def v1_case(case: Mapping[str, Any]) -> float:
    """Score one answer by version 1's rules."""
    return v1.score(case["subtype"], case["format"] == "freeform", case["output"], case["truth"])


def fixed_case(case: Mapping[str, Any], subtype: Subtype) -> dict[str, Any]:
    """Judge one answer by the default rules, named as in the cases."""
    form: Format = "mc" if case["format"] == "mc" else "freeform"
    verdict = judge(subtype, form, case["options"], case["truth"], case["output"])
    score = None if verdict.score is None else round(verdict.score, 4)
    return {
        "verdict": verdict.state,
        "why": verdict.why,
        "reading": verdict.reading,
        "score": score,
    }
