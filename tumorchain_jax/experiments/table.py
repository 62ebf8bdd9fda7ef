"""Results of the runs beside the paper's, which are of 7B parameters on hospital data."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean
from typing import Any

from tumorchain_jax.data.schema import SUBTASKS
from tumorchain_jax.evaluation.items import Item
from tumorchain_jax.evaluation.score import score
from tumorchain_jax.experiments.difference import difference_over_seeds
from tumorchain_jax.experiments.plan import SEEDED

PAPER = {
    "full": 84.41,  # Table 1, TumorChain-7B; Table 8, alpha 1
    "without-iir": 80.34,  # Table 1, w/o IIR
    "without-cot": 82.45,  # Table 1, w/o CoT
    "without-both": 79.90,  # Table 1, w/o CoT, IIR
    "alpha-0": 80.79,  # Table 8
    "alpha-0.1": 81.40,
    "alpha-0.5": 82.53,
    "alpha-1.5": 79.16,
}
"""Average accuracy in percent."""
INTRODUCTION = """Accuracy in percent on unseen digital patients, with 95 % intervals (bootstrap
over patients). The paper's numbers are of a model of 7B parameters on hospital data: what can be
compared is which way a change goes, and how far."""
AVERAGE_HEAD = (
    *("run", "average", "95 % interval", "by seed", "paper", "n"),
    *("training, min", "evaluation, min"),
)
DIFFERENCE_HEAD = ("minus", "difference", "95 % interval", "by seed", "paper")


@dataclass(frozen=True)
class Measured:
    """A run that is done.

    Attributes:
        training, evaluation: minutes.
    """

    seed: int
    items: list[Item]
    training: float
    evaluation: float


def results(measured: dict[str, list[Measured]]) -> dict[str, Any]:
    """Compute all numbers from the runs of each experiment.

    Returns:
        `runs`: by experiment, what `score` says of all its seeds together; with `seeds`, the
        average `by_seed`, minutes of `training` and `evaluation` of one run, and the `paper`'s
        average (None if it has none).
        `differences`: of the full method minus each that has several seeds, over the seeds that
        both have, as `difference_over_seeds`; and the `paper`'s.
    """
    return {
        "runs": {name: _scored(name, runs) for name, runs in measured.items()},
        "differences": {
            name: _difference(name, measured, seeds)
            for name in SEEDED[1:]
            if (seeds := sorted(_seeds(measured, "full") & _seeds(measured, name)))
        },
    }


def _seeds(measured: dict[str, list[Measured]], name: str) -> set[int]:
    return {run.seed for run in measured.get(name, [])}


def _scored(name: str, runs: Sequence[Measured]) -> dict[str, Any]:
    return score([*chain(*(run.items for run in runs))]) | {
        "seeds": [run.seed for run in runs],
        "by_seed": [score(run.items)["average"] for run in runs],
        "training": round(fmean(run.training for run in runs), 1),
        "evaluation": round(fmean(run.evaluation for run in runs), 1),
        "paper": PAPER.get(name),
    }


def _difference(
    name: str, measured: dict[str, list[Measured]], seeds: Sequence[int]
) -> dict[str, Any]:
    full, other = (
        [run.items for seed in seeds for run in measured[method] if run.seed == seed]
        for method in ("full", name)
    )
    paper = round(PAPER["full"] - PAPER[name], 2) if name in PAPER else None
    return difference_over_seeds(full, other) | {"seeds": seeds, "paper": paper}


def markdown(results: dict[str, Any]) -> str:
    """Format what `results` returns as three tables."""
    subtasks = [name for names in SUBTASKS.values() for name in names]
    runs, differences = results["runs"].items(), results["differences"].items()
    return "\n\n".join(
        [
            INTRODUCTION,
            _grid(AVERAGE_HEAD, [_average_cells(name, row) for name, row in runs]),
            "Full method minus another, points of percent (bootstrap over patients and seeds):",
            _grid(DIFFERENCE_HEAD, [_difference_cells(name, row) for name, row in differences]),
            "By subtask:",
            _grid(
                ["run", *(name.replace("_", " ") for name in subtasks)],
                [[name, *_subtask_cells(row["subtasks"], subtasks)] for name, row in runs],
            ),
            "",
        ]
    )


def _average_cells(name: str, row: dict[str, Any]) -> list[str]:
    paper = "-" if row["paper"] is None else f"{row['paper']:.2f}"
    minutes = [f"{row[stage]:.1f}" for stage in ("training", "evaluation")]
    average = f"{row['average']:.1f}"
    return [name, average, _to(row), _list(row["by_seed"]), paper, f"{row['n']}", *minutes]


def _difference_cells(name: str, row: dict[str, Any]) -> list[str]:
    difference = f"{row['difference']:+.1f}"
    paper = "-" if row["paper"] is None else f"{row['paper']:+.2f}"
    return [name, difference, _to(row), _list(row["by_seed"]), paper]


def _subtask_cells(rows: dict[str, Any], names: Sequence[str]) -> list[str]:
    return [
        f"{rows[name]['accuracy']:.1f} ({_to(rows[name])})" if name in rows else "-"
        for name in names
    ]


def _to(row: dict[str, Any]) -> str:
    if not row["ci95"]:  # of too few patients
        return "-"
    low, high = row["ci95"]
    return f"{low:.1f} to {high:.1f}"


def _list(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.1f}" for value in values)


def _grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
