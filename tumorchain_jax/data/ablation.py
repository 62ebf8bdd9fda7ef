"""The paper's ablations (Table 1, last rows) as changes to what a record teaches.

Only the rounds change: a record's reasoning and answer stay the truth that it was made from.
"""

import re
from dataclasses import replace

from tumorchain_jax.data.schema import Record, RoundTarget

_THOUGHT = re.compile(r"<think>.*?</think>\s*", re.DOTALL)


def without_cot(record: Record) -> Record:
    """Every round without its `<think> ... </think>`.

    The conclusion stays, and so do the sentences that send the loop to an organ: they are IIR's.
    """
    rounds = (replace(r, text=_THOUGHT.sub("", r.text)) for r in record.rounds)
    return replace(record, rounds=tuple(rounds))


def without_iir(record: Record) -> Record:
    """One round, with the thought and conclusion of the last one, and no look at an organ."""
    return replace(record, rounds=(RoundTarget(record.rounds[-1].text),))
