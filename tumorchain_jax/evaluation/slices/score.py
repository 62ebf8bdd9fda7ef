"""Score what an endpoint said of slices: skill, what was to be seen, and what cannot be told."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tumorchain_jax.evaluation.bootstrap import ends_text, patient_rows, resampled
from tumorchain_jax.evaluation.items import Item
from tumorchain_jax.evaluation.score import score
from tumorchain_jax.evaluation.slices.subject import Sent
from tumorchain_jax.evaluation.statistics import mean_interval


def slices_score(items: Sequence[Item], sent: Sequence[Sent]) -> dict[str, Any]:
    """Score the questions that slices can answer, by whether what they ask about was sent.

    Returns:
        `states`: number of questions by state; `not_answerable`: by reason; `visible`: `share` of
        the questions about a lesion whose lesion is on a slice, in percent, with `ci95` over
        patients and `n`; None without any. `skill`, and of it `lesion_sent`, `lesion_not_sent` and
        `no_lesion`: `average` over subtasks, its `ci95`, `majority` and `n`, or None; questions
        without a reply are left out. `bounds`: the skill, were all of those wrong, or right.
    """
    fit = [
        (item, known) for item, known in zip(items, sent, strict=True) if not known.not_answerable
    ]
    came = [(item, known) for item, known in fit if known.state != "failed"]
    groups = {"lesion_sent": True, "lesion_not_sent": False, "no_lesion": None}
    bounds = [
        _row([replace(i, right=value) if known.state == "failed" else i for i, known in fit])
        for value in (False, True)
    ]
    return {
        "states": _count(known.state for known in sent),
        "not_answerable": _count(known.not_answerable for known in sent if known.not_answerable),
        "visible": _visible(sent),
        "skill": _row([item for item, _ in came]),
        **{
            name: _row([item for item, known in came if known.visible is value])
            for name, value in groups.items()
        },
        "bounds": [row["average"] if row else None for row in bounds],
    }


def _count(words: Any) -> dict[str, int]:
    counts: dict[str, int] = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    return dict(sorted(counts.items()))


def _row(items: Sequence[Item]) -> dict[str, Any] | None:
    if not items:
        return None
    whole = score(items)
    return {name: whole[name] for name in ("average", "ci95", "majority", "n")}


def _visible(sent: Sequence[Sent]) -> dict[str, Any] | None:
    about = [known for known in sent if known.visible is not None]
    if not about:
        return None
    rows = patient_rows([known.patient for known in about])
    seen, n = np.zeros((2, rows.max() + 1))
    np.add.at(seen, rows, [bool(known.visible) for known in about])
    np.add.at(n, rows, 1)
    times = resampled(len(n))
    draws = 100 * (times @ seen) / (times @ n)
    ends = [round(end, 1) for end in mean_interval(100 * seen, n, draws, 100.0)]
    return {"share": round(float(draws[0]), 1), "ci95": ends, "n": len(about)}


def slices_text(run: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    """Format identity and score as text."""
    level, width = run["window"]
    snapshot = f" {run['snapshot']}" if run["snapshot"] else ""
    states = ", ".join(f"{name} {n}" for name, n in values["states"].items())
    unfit = ", ".join(f"{why} {n}" for why, n in values["not_answerable"].items()) or "none"
    seen = values["visible"]
    lines = [
        f"model {run['model']}{snapshot}; slices {run['slices']} "
        f"({run['slices_sha256'][:12]}), window {level:g}/{width:g} HU; prompt "
        f"{run['prompt_sha256'][:12]}",
        f"{run['patients']}; questions: {states}",
        f"not answerable from these slices, not counted as skill: {unfit}",
        "lesion of the question on a slice that was sent: "
        + (_percent(seen["share"], seen["ci95"], seen["n"]) if seen else "no question has one"),
    ]
    names = {
        "skill": "accuracy where slices can answer (average over subtasks)",
        "lesion_sent": "  its lesion was sent",
        "lesion_not_sent": "  its lesion was not sent",
        "no_lesion": "  no lesion to see",
    }
    for name, words in names.items():
        if row := values[name]:
            percent = _percent(row["average"], row["ci95"], row["n"])
            lines.append(f"{words}: {percent}, majority {row['majority']:.1f}")
    if values["states"].get("failed"):
        low, high = values["bounds"]
        lines.append(f"  were all without a reply wrong, or right: {low:.1f} to {high:.1f}")
    return "\n".join(lines)


def _percent(value: float, ends: Sequence[float] | None, n: int) -> str:
    return f"{value:.1f} %{ends_text(ends)}, n {n}"
