"""Simulated readers with known error rates: proof of the arithmetic, and files for a dry run.

A simulated reader says the truth of a field, or with the field's error rate another value: a
neighbour on an ordered scale, any other value elsewhere. The agreement of two such readers is known
exactly, so intervals can be held against it. They prove nothing about people.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from tumorchain_jax.evaluation.agreement import cohen, gwet_ac1, pair, quadratic, unequal
from tumorchain_jax.evaluation.statistics import wilson
from tumorchain_jax.ultrasound.lexicon import PROBABILITY, Lexicon

CATEGORY_SHARES = (0.15, 0.15, 0.2, 0.15, 0.1, 0.1, 0.15)
"""Of BI-RADS 1 to 5 in the proof of the arithmetic."""
ERRORS = (0.1, 0.2, 0.3)
CHANCES = {"1": 0, "2": 1, "3": 2, "4a": 7, "4b": 30, "4c": 70, "5": 96}
"""Probability of malignancy that a simulated reader states, in per cent, by category."""


def confusion(count: int, error: float, ordered: bool) -> Float[np.ndarray, "K K"]:
    """Probability of each value that a reader says, by the true one (rows)."""
    distance = abs(np.subtract.outer(np.arange(count), np.arange(count)))
    others = (distance == 1 if ordered else distance > 0).astype(float)
    return (1 - error) * np.eye(count) + error * others / others.sum(axis=1, keepdims=True)


def true_agreement(
    shares: Float[np.ndarray, " K"], first: Float[np.ndarray, "K K"],
    second: Float[np.ndarray, "K K"],
) -> dict[str, float]:  # fmt: skip
    """Agreement of two readers over endlessly many cases, by their confusion matrices."""
    table = np.einsum("t,ta,tb->ab", shares, first, second)[None]
    return {
        "kappa": float(cohen(table, unequal(len(shares)))[0]),
        "weighted_kappa": float(cohen(table, quadratic(len(shares)))[0]),
        "ac1": float(gwet_ac1(table)[0]),
    }


class Recovered(NamedTuple):
    """In how many runs an interval held the true value.

    Attributes:
        held: runs, by measure.
        ci95: of the share of runs (Wilson), by measure.
        bias: mean of the estimates less the true value, by measure.
    """

    runs: int
    cases: int
    truth: dict[str, float]
    held: dict[str, int]
    ci95: dict[str, tuple[float, float]]
    bias: dict[str, float]


def prove(lexicon: Lexicon, runs: int, cases: int, seed: int) -> Recovered:
    """Simulate two readers of BI-RADS again and again; count intervals that hold the truth.

    Args:
        cases: of each run, each another patient's.
    """
    categories = lexicon.categories
    shares = np.array(CATEGORY_SHARES)
    matrices = [confusion(len(categories), error, ordered=True) for error in ERRORS[:2]]
    truth = true_agreement(shares, *matrices)
    held, sums = dict.fromkeys(truth, 0), dict.fromkeys(truth, 0.0)
    rng = np.random.default_rng(seed)
    names = np.array(categories)
    patients = [str(number) for number in range(cases)]
    for _ in range(runs):
        true = rng.choice(len(shares), cases, p=shares)
        first, second = (
            names[(rng.random((cases, 1)) > np.cumsum(each[true], axis=1)).sum(axis=1)].tolist()
            for each in matrices
        )
        found = pair(first, second, categories, patients, ordered=True)
        for name, value in truth.items():
            low, high = found[name].ci95
            held[name] += low <= value <= high
            sums[name] += found[name].value - value
    intervals = {name: wilson(count, runs) for name, count in held.items()}
    bias = {name: total / runs for name, total in sums.items()}
    return Recovered(runs, cases, truth, held, intervals, bias)


def proof_text(found: Recovered) -> str:
    """The proof for people."""
    rows = [f"two simulated readers, {found.cases} cases, {found.runs} runs"]
    for name, count in found.held.items():
        low, high = found.ci95[name]
        rows.append(
            f"{name:15} true {found.truth[name]:.3f}   within the 95 % interval in {count} of "
            f"{found.runs} runs ({low:.1%} to {high:.1%})   bias {found.bias[name]:+.4f}"
        )
    return "\n".join(rows)


def true_readings(
    labels: Mapping[str, str], lexicon: Lexicon, seed: int
) -> dict[str, dict[str, Any]]:
    """Draw a made-up true reading of each case: no finding where it is normal, else a mass.

    Args:
        labels: case -> benign, malignant or normal.
    """
    rng = np.random.default_rng(seed)
    found: dict[str, dict[str, Any]] = {}
    for case in sorted(labels):
        label = labels[case]
        finding = "none" if label == "normal" else "mass"
        reading = {field.name: str(rng.choice(field.values)) for field in lexicon.wanted(finding)}
        category = {"normal": ["1"], "benign": ["2", "3", "4a"], "malignant": ["4b", "4c", "5"]}
        reading |= {"finding": finding, "category": str(rng.choice(category[label]))}
        found[case] = reading | {PROBABILITY: CHANCES[reading["category"]]}
    return found


def simulated_reader(
    truth: Mapping[str, Mapping[str, Any]], lexicon: Lexicon, error: float, seed: int
) -> dict[str, dict[str, Any]]:
    """What a reader with an error rate of each descriptor and category says of each case.

    The finding stays true, so that readings stay complete.
    """
    rng = np.random.default_rng(seed)
    found: dict[str, dict[str, Any]] = {}
    for case, true in truth.items():
        reading = dict(true)
        for field in lexicon.wanted(str(true["finding"])):
            values = field.values
            if field.name == "category":
                values = tuple(
                    each for each in values if (each == "1") == (true["category"] == "1")
                )
            if field.name != "finding" and len(values) > 1:
                row = confusion(len(values), error, field.ordered)[values.index(true[field.name])]
                reading[field.name] = str(rng.choice(values, p=row))
        found[case] = reading | {PROBABILITY: CHANCES[reading["category"]]}
    return found
