"""The ten dimensions of TumorChain-Eval, their weights, and CoT_e (paper, 4.1 and appendix 12).

The paper's bands overlap or leave gaps in places; here they are closed: 10 is free of faults, 8 and
9 have under 10 % faults, 6 and 7 under 30 %, 4 and 5 under 50 %, 1 to 3 more, and 0 has nothing
right. The description of each dimension is ours.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from tumorchain_jax.evaluation.chain.triples import FINDING, IMPRESSION, LONG_REASONING

DIMENSIONS: dict[str, dict[str, str]] = {
    FINDING: {
        "existence": "Are the abnormal findings of the reference there, and no others?",
        "completeness": "How much of what the reference finds is said?",
        "accuracy": "How much of what is said about organ, part, appearance, number and size of "
        "the findings is right?",
    },
    IMPRESSION: {
        "clarity": "Is it clear what the findings are taken for?",
        "consistency": "Does the impression follow from the chain's own findings?",
        "utility": "Does it say what a treating physician needs: tumour or none, where, spread?",
    },
    LONG_REASONING: {
        "logical_completeness": "Do findings, impression and conclusion all stand, one leading to "
        "the next?",
        "depth": "Are several findings brought together to what they mean (stage, the answer)?",
        "relevance": "Does the conclusion answer what was asked?",
        "evidence": "Is the conclusion borne out by the findings, and contradicted by none?",
    },
}
"""Level -> its dimensions: name, and the question that a mark of 0 to 10 answers."""
NAMES: tuple[str, ...] = tuple(name for level in DIMENSIONS.values() for name in level)
WEIGHTS = {FINDING: 0.3, IMPRESSION: 0.3, LONG_REASONING: 0.4}
HIGHEST = 10
_BANDS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 2 / 3, 5 / 6)
"""Shares of faults at which a mark falls by one, from 9 on."""


@dataclass(frozen=True)
class Marks:
    """Ten marks from 0 to 10, by dimension."""

    of: Mapping[str, int]

    def score(self, level: str) -> float:
        """Mean of a level's marks out of 100: S_FC, S_IC or S_LRC."""
        return 10 * fmean(self.of[name] for name in DIMENSIONS[level])

    @property
    def cot_e(self) -> float:
        """CoT_e: .3 S_FC + .3 S_IC + .4 S_LRC, which is the sum of the ten marks."""
        return float(sum(self.of.values()))


def mark(faults: float) -> int:
    """Turn a share of faults (0 to 1) into a mark."""
    if faults <= 0:
        return HIGHEST
    if faults >= 1:
        return 0
    return HIGHEST - 1 - bisect_right(_BANDS, faults)
