"""The tables of a cross-validation, baselines beside every classifier, as values and as text."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from tumorchain_jax.evaluation.auc import METRICS, Estimate, auroc, delong, difference, estimates
from tumorchain_jax.evaluation.ultrasound.baselines import Baseline, baselines, by_source
from tumorchain_jax.evaluation.ultrasound.crossval import Scored
from tumorchain_jax.training.classification.source import Pictures

AUROC = {"auroc": auroc}
LEAST = 20
"""Pictures of each class below which a group gets no score of its own."""


def tables(
    pictures: Pictures, found: Sequence[Scored], greys: Float[np.ndarray, " N"]
) -> dict[str, Any]:
    """Score the mean of the seeds' out-of-fold probabilities, each seed, and every baseline."""
    labels = pictures.labels == 1
    mean = np.mean([scored.scores for scored in found], axis=0)
    left = np.mean([scored.left_out for scored in found], axis=0)
    seen = np.isfinite(mean)
    beside = baselines(pictures, greys, found[0].folds)
    groups = _groups(pictures)
    return {
        "view": "",
        "pictures": int(seen.sum()),
        "malignant": int((labels & seen).sum()),
        "clusters": len({pictures.clusters[k] for k in np.flatnonzero(seen)}),
        "seeds": [scored.seed for scored in found],
        "classifier": _plain(_scored(pictures, labels, mean, seen, METRICS)),
        "by_seed": {
            str(scored.seed): _plain(_scored(pictures, labels, scored.scores, seen, AUROC))["auroc"]
            for scored in found
        },
        "by_group": {
            name: _plain(_scored(pictures, labels, mean, seen & chosen, AUROC))
            | _counts(labels, seen & chosen)
            for name, chosen in groups.items()
            if _enough(labels, seen & chosen)
        },
        "left_out": {
            name: _plain(_scored(pictures, labels, left, np.isfinite(left) & chosen, AUROC))
            | _counts(labels, np.isfinite(left) & chosen)
            for name, chosen in by_source(pictures).items()
            if name != "all" and _enough(labels, np.isfinite(left) & chosen)
        },
        "baselines": {
            name: _baseline(pictures, labels, mean, seen, baseline)
            for name, baseline in beside.items()
        },
    }


def _groups(pictures: Pictures) -> Mapping[str, Bool[np.ndarray, " N"]]:
    """Data sets, devices and BI-RADS categories, and pictures with and without burned-in marks."""
    rows = pictures.rows
    groups = {name: chosen for name, chosen in by_source(pictures).items() if name != "all"}
    for field in ("device", "birads"):
        values = np.array([getattr(row, field) for row in rows])
        label = {"device": "device", "birads": "BI-RADS"}[field]
        groups |= {f"{label} {value}": values == value for value in sorted({*values} - {""})}
    marked = np.array([bool(row.overlays) for row in rows])
    return groups | {"burned-in marks": marked, "no marks": ~marked}


def _enough(labels: Bool[np.ndarray, " N"], chosen: Bool[np.ndarray, " N"]) -> bool:
    return bool(min((labels & chosen).sum(), (~labels & chosen).sum()) >= LEAST)


def _counts(labels: Bool[np.ndarray, " N"], chosen: Bool[np.ndarray, " N"]) -> dict[str, int]:
    return {"n": int(chosen.sum()), "malignant": int((labels & chosen).sum())}


def _scored(
    pictures: Pictures,
    labels: Bool[np.ndarray, " N"],
    scores: Float[np.ndarray, " N"],
    chosen: Bool[np.ndarray, " N"],
    metrics: Mapping[str, Any],
) -> dict[str, Estimate]:
    where: Int[np.ndarray, " M"] = np.flatnonzero(chosen)
    clusters = [pictures.clusters[number] for number in where]
    return estimates(labels[where], scores[where], clusters, metrics)


def _plain(found: Mapping[str, Estimate]) -> dict[str, Any]:
    return {name: {"value": each.value, "ci95": list(each.ci95)} for name, each in found.items()}


def _baseline(
    pictures: Pictures,
    labels: Bool[np.ndarray, " N"],
    scores: Float[np.ndarray, " N"],
    seen: Bool[np.ndarray, " N"],
    baseline: Baseline,
) -> dict[str, Any]:
    """A baseline's score, and the classifier's less the baseline's on the same pictures."""
    chosen = seen & baseline.applies
    where = np.flatnonzero(chosen)
    clusters = [pictures.clusters[number] for number in where]
    own, other = scores[where], baseline.scores[where]
    gap = difference(labels[where], own, other, clusters)
    return {
        "what": baseline.what,
        **_counts(labels, chosen),
        **_plain(_scored(pictures, labels, baseline.scores, chosen, AUROC)),
        "classifier_minus": {"value": gap.value, "ci95": list(gap.ci95)},
        "delong_p": delong(labels[where], own, other).p,
    }


NAMES = {
    "auroc": "AUROC",
    "auprc": "AUPRC",
    "accuracy": "accuracy",
    "sensitivity_at_90": "sensitivity at 90 % specificity",
    "sensitivity_at_95": "sensitivity at 95 % specificity",
    "brier": "Brier score",
    "calibration_error": "calibration error",
}


def text(found: Mapping[str, Any]) -> str:
    """The tables for people."""
    seeds = ", ".join(map(str, found["seeds"]))
    lines = [
        f"view {found['view']}: {found['pictures']} lesions ({found['malignant']} malignant), "
        f"{found['clusters']} patients or duplicate groups; out of fold, mean of seeds {seeds}",
        "95 % intervals by bootstrap over patients and duplicate groups",
        "",
        *(f"{NAMES[name]:34} {_shown(row)}" for name, row in found["classifier"].items()),
        "",
        *(
            f"{'seed ' + seed + ': AUROC':34} {_shown(row)}"
            for seed, row in found["by_seed"].items()
        ),
        "",
        "beside it, unasked (AUROC; classifier less baseline):",
    ]
    for name, row in found["baselines"].items():
        gap = _shown(row["classifier_minus"], signed=True)
        lines.append(f"{name:12} {_shown(row['auroc'])}   {gap}   n {row['n']:4}  {row['what']}")
    box = found["baselines"].get("box")
    if box and box["classifier_minus"]["ci95"][0] <= 0:
        lines.append("This classifier does not beat three numbers of the lesion's box.")
    lines += ["", "by group (AUROC):"]
    lines += [
        f"{name:34} {_shown(row['auroc'])}   n {row['n']}"
        for name, row in found["by_group"].items()
    ]
    if found["left_out"]:
        lines += ["", "trained without the data set that it is scored on (AUROC):"]
        lines += [
            f"{name:34} {_shown(row['auroc'])}   n {row['n']}"
            for name, row in found["left_out"].items()
        ]
    return "\n".join(lines) + "\n"


def _shown(row: Mapping[str, Any], signed: bool = False) -> str:
    low, high = row["ci95"]
    sign = "+" if signed else ""
    return f"{row['value']:{sign}.3f} [{low:{sign}.3f}, {high:{sign}.3f}]"


def guard_text(found: Mapping[str, Any]) -> str:
    """How well the guard tells breast pictures from others, for people."""
    lines = [
        "",
        f"guard: refuses {found['breast_refused']:.1%} of {found['breast_pictures']} breast "
        "pictures that no training saw (its threshold is chosen on these)",
    ]
    lines += [f"{name:20} {_refused(row)}" for name, row in found["by_set"].items()]
    lines += [f"{name:20} {_refused(row)}, unseen set" for name, row in found["left_out"].items()]
    lines += [
        f"{name:20} {_refused(row)}, AUROC {_shown(row['auroc'])}"
        for name, row in found["others"].items()
    ]
    maps = found["saliency"]
    lines.append(
        f"occlusion maps: rank correlation {maps['rank_correlation_with_random_model']:.2f} with "
        f"those of a random model (n {maps['n']}; near 0: they depend on what was learned)"
    )
    if "change_inside_lesion" in maps:
        lines.append(
            f"{maps['change_inside_lesion']:.0%} of their change within the lesion, which is "
            f"{maps['lesion_of_picture']:.0%} of the picture"
        )
    return "\n".join(lines) + "\n"


def _refused(row: Mapping[str, Any]) -> str:
    low, high = row["ci95"]
    return f"refused {row['refused']:.1%} [{low:.1%}, {high:.1%}] of {row['n']}"


def evaluation_text(found: Mapping[str, Any]) -> str:
    """The scores of the test part, for people."""
    lines = [
        f"test part, view {found['view']}: {found['n']} lesions ({found['malignant']} malignant), "
        f"{found['clusters']} patients or duplicate groups",
        *(f"{NAMES[name]:34} {_shown(row)}" for name, row in found["classifier"].items()),
        *(f"guard: {name:8} {_refused(row)}" for name, row in found["guard"].items()),
        "beside it, fitted on the development part (AUROC):",
        *(
            f"{name:12} {_shown(row['auroc'])}   n {row['n']:4}  {row['what']}"
            for name, row in found["baselines"].items()
        ),
    ]
    return "\n".join(lines)
