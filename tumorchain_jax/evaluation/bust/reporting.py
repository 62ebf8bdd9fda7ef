"""`reporting.json`: the items of TRIPOD-LLM and STARD-AI, filled from a run, or marked missing.

Item names are short forms of ours and stand for the checklists' own texts, which a submission
needs. What a run cannot know (ethics, funding, registration) is missing until people fill it in.
"""

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from tumorchain_jax import __version__

FILE = "checklists.json"


def reporting(
    scores: Mapping[str, Any], run: Mapping[str, Any], flow: Mapping[str, Any],
    agreement: Mapping[str, Any] | None,
) -> dict[str, Any]:  # fmt: skip
    """Fill both checklists.

    Args:
        scores: of `score.py`.
        run: `run.json`.
        flow: `flow.json` of the cases.
        agreement: `agreement.json` of the study; None without readers.
    """
    known = _known(scores, run, flow, agreement)
    text = files("tumorchain_jax.evaluation.bust").joinpath(FILE).read_text("utf-8")
    filled: dict[str, Any] = {}
    for name, items in json.loads(text).items():
        rows = {}
        for item, source in items.items():
            value = known.get(source)
            state = "missing" if value is None else "filled"
            rows[item] = {"state": state, "value": value}
        counts = [row["state"] for row in rows.values()]
        filled[name] = {
            "filled": counts.count("filled"), "missing": counts.count("missing"), "items": rows
        }  # fmt: skip
    return filled


def _known(
    scores: Mapping[str, Any], run: Mapping[str, Any], flow: Mapping[str, Any],
    agreement: Mapping[str, Any] | None,
) -> dict[str, Any]:  # fmt: skip
    """What the files of a run tell, by topic."""
    readers = agreement is not None
    return {
        "title": f"reading of {scores['cases']} breast ultrasound pictures by {run['model']}",
        "objective": "research benchmark: BI-RADS category, benign or malignant; no care",
        "data": {"sets": flow["sets"], "labels": scores["labels"]},
        "preparation": {"rules": flow["rules"], "steps": flow["steps"]},
        "missing": {"states": scores["states"], "rule": "no answer is wrong; per protocol beside"},
        "model": {name: run[name] for name in ("model", "snapshot", "endpoint", "begun")},
        "prompt": {"sha256": run["prompt"]},
        "output": {"form": "closed JSON schema, one remark on a fault", "states": scores["states"]},
        "inference": {"temperature": 0, "max_tokens": run["max_tokens"], "sweep": run["sweep"],
                      "thinking": run["thinking"], "tokens": scores["tokens"],
                      "calls": scores["calls"], "seconds": scores["seconds"]},
        "training": "none here",
        "reference": {"BI-RADS": scores["reference"], "benign or malignant": "of the source"},
        "annotators": {"lexicon": scores["lexicon"]} if readers else None,
        "agreement": agreement["agreement"] if agreement is not None else None,
        "blinding": "pixels alone, in an order of each reader" if readers else None,
        "comparison": scores.get("classifiers") or None,
        "size": {"cases": scores["cases"], "justification": "none was made by this program"},
        "plan": {"sha256": scores["plan"]},
        "groups": scores["groups"] or None,
        "code": {"tumorchain_jax": __version__},
        "flow": {"start": flow["start"], "included": flow["included"]},
        "performance": {"primary": scores["primary"], "labels": scores["labels"]},
        "stability": scores["stability"] or None,
        "safety": scores["safety"],
        "limits": "not a medical device; pictures of public sets may be in a model's training data",
    }  # fmt: skip
