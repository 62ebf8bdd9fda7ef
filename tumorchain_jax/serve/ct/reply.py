"""What clients are told of an answer: rounds as they come, then the record."""

from dataclasses import replace
from typing import Any

from tumorchain_jax.core.text import printable
from tumorchain_jax.report.report import Report

SHARED = ("answered", "reason", "confidence", "evaluation", "answer_kind", "stop_reason", "model")
ORGAN = ("organ", "label", "matched", "span", "outcome", "box_mm", "abnormal_probability")


def public(report: Report, name: str) -> Report:
    """The report without its scan's path on this machine.

    Args:
        name: of the scan, for people.
    """
    warnings = tuple(each.replace(report.source, name) for each in report.warnings)
    return replace(report, source=name, warnings=warnings)


def record(report: Report) -> dict[str, Any]:
    """The `metadata` of a reply: rounds, organs looked at, confidence, what limits the answer."""
    values = report.to_dict()
    made = {key: values.get(key) for key in SHARED}
    made |= {
        "scan": report.source,
        "headline": report.headline,
        "conclusion": report.conclusion,
        "rounds": [round_of(each) for each in values["rounds"]],
        "organs_looked_at": looked_at(values["rounds"]),
        "masks": values["masks"] and values["masks"]["kind"],
        "weights_sha256": report.weights_sha256,
        "seconds": values["seconds"],
        "warnings": values["warnings"],
        "notice": values["notice"],
    }
    return made


def round_of(values: dict[str, Any]) -> dict[str, Any]:
    """A round of `report.json`, without its cells."""
    return {
        "text": values["text"],
        "complete": values["complete"],
        "tokens": values["tokens_out"],
        "organs": [{key: organ[key] for key in ORGAN} for organ in values["organs"]],
    }


def looked_at(rounds: list[dict[str, Any]]) -> list[str]:
    """Names of the organs that were looked at again, each once, in order."""
    organs = [organ for each in rounds for organ in each["organs"]]
    return [*dict.fromkeys(o["organ"] for o in organs if o["outcome"] == "looked_at")]


def usage(report: Report) -> dict[str, int]:
    """Positions read and tokens written."""
    read = sum(each.tokens_in for each in report.rounds)
    written = sum(each.tokens_out for each in report.rounds)
    return {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
    }


def headline(report: Report) -> str:
    """The content of a reply: the conclusion, or why there is no answer."""
    return printable(report.headline)
