"""The paper's ablations (Table 1, last rows) as changes to the rounds of a record.

Reasoning and answer stay as they are: evaluation compares with the same truth.
"""

import re
from dataclasses import replace

from tumorchain_jax.data.schema import Record, RoundTarget

_THOUGHT = re.compile(r"<think>.*?</think>\s*", re.DOTALL)


def without_cot(record: Record) -> Record:
    """Remove `<think> ... </think>` from every round (no chain of thought).

    The conclusion stays, and so do the sentences that name the organ to look at next.
    """
    rounds = (replace(r, text=_THOUGHT.sub("", r.text)) for r in record.rounds)
    return replace(record, rounds=tuple(rounds))


def without_iir(record: Record) -> Record:
    """Reduce a record to its last round without ROI tokens (no iterative reasoning)."""
    return replace(record, rounds=(RoundTarget(record.rounds[-1].text),))
