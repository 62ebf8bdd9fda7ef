"""Version 1's rules, as its one public scorer has them (Photon, commit 88c3755).

Numbers by ten thresholds, everything else by equality of strings; averages over subtypes.
Reimplemented from a description in prose.
"""

import re

NUMERIC = frozenset(
    (
        "lesion volume measurement",
        "organ HU measurement",
        "organ volume measurement",
        "largest lesion diameter",
        "largest lesion slice",
        "lesion count by location",
        "lesion counting",
        "organ aggregation",
        "tumor organ HU difference",
    )
)
"""Subtypes that version 1 scores as numbers in free form."""
_NUMBER = re.compile(r"[-+]?(?:\d+\.\d+|\.\d+|\d+)(?:[eE][-+]?\d+)?")
_THRESHOLDS = tuple((50 + 5 * step) / 100 for step in range(10))


def number(text: str) -> float | None:
    """Read the first number of a text."""
    found = _NUMBER.search(text)
    return float(found[0]) if found else None


def mra10(predicted: float | None, truth: float | None) -> float:
    """Share of the thresholds 0.50 to 0.95 that a number meets; 0 where either is missing.

    In just this floating-point form an error of 5 % meets 0.95, and one of 10 % does not meet 0.90.
    """
    if predicted is None or truth is None:
        return 0.0
    off = abs(predicted - truth) / max(abs(truth), 1e-6)
    return sum(off < 1 - threshold for threshold in _THRESHOLDS) / len(_THRESHOLDS)


def score(subtype: str, freeform: bool, output: str, truth: str) -> float:
    """Score one answer.

    Args:
        subtype: name, as version 2 writes it.
        freeform: whether the answer is free text, and not a letter.
    """
    if freeform and subtype in NUMERIC:
        return mra10(number(output), number(truth))
    return float(output == truth)
