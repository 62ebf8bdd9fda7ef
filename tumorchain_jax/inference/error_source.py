"""Where a wrong answer about the site of a tumour comes from: the encoder or the decoder."""

from collections.abc import Sequence

import numpy as np

from tumorchain_jax.anatomy.organs import DIGESTIVE, display_name, labels_named
from tumorchain_jax.inference.analyzer import Analyzer
from tumorchain_jax.inference.case import PreparedCase


def error_source(analyzer: Analyzer, case: PreparedCase, conclusion: str, organ: int) -> str:
    """Say in one line whether an answer is right and, if it is wrong, what is to blame.

    The organ classifier reads the same visual tokens as the decoder. If it ranks the tumour's organ
    first, the encoder has seen the tumour, and the decoder wrote the wrong answer.

    Args:
        case: the scan, with the organ masks that were used.
        conclusion: the short answer to "Where is the tumour?".
        organ: merged label of the tumour's organ.
    """
    if names_only(conclusion, organ):
        return f"The answer is right: {display_name(organ)}."
    encoded = analyzer.runner.encode(case)
    there = np.flatnonzero(encoded.cells.valid.any(axis=1))
    return blame(encoded.abnormal, [each for each in DIGESTIVE if each in there], organ)


def names_only(conclusion: str, organ: int) -> bool:
    """Tell whether an answer names this organ, and no other that can have a tumour."""
    named = {label for each in labels_named(conclusion) for label in each.labels}
    return named & set(DIGESTIVE) == {organ}


def blame(abnormal: np.ndarray, seen: Sequence[int], organ: int) -> str:
    """Explain a wrong answer by the organ classifier.

    Args:
        abnormal: `[O]`, its probability for each merged label.
        seen: labels with ROI cells, among which it can choose.
        organ: the tumour's.
    """
    name = display_name(organ)
    if organ not in seen:
        return f"The answer is wrong: the organ masks do not show the {name}."
    rank = sorted(seen, key=lambda label: -abnormal[label]).index(organ) + 1
    found = (
        f"The answer is wrong. The organ classifier ranks the {name} {rank} of {len(seen)} "
        f"({abnormal[organ]:.0%} abnormal)"
    )
    if rank == 1:
        return f"{found}: the encoder found the tumour's organ, so the decoder is to blame."
    return f"{found}: it did not find the tumour's organ, so the encoder is to blame."
