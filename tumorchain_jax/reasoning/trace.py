"""What happened in a run of the reasoning loop, as plain host-side values."""

from dataclasses import dataclass
from typing import Literal

StopReason = Literal["no_new_organ", "max_rounds", "token_budget"]
Outcome = Literal["looked_at", "already_seen", "not_in_mask", "over_limit", "stopped"]


@dataclass(frozen=True)
class OrganMention:
    """An organ named in a round's text, and what came of it.

    Attributes:
        label: merged organ id, 1..56 (Table 10).
        organ: its name in Table 10, e.g. `kidney_left`.
        matched: the words that named it, e.g. `left kidney`.
        span: (start, end) of those words in the round's text, in characters.
        outcome: `looked_at` when its ROI tokens entered before the next round; else why not.
        cells: raster indices of its ROI cells in the token grid, empty when it has none.
        abnormal_probability: the organ classifier's, None when the organ has no ROI cells.
    """

    label: int
    organ: str
    matched: str
    span: tuple[int, int]
    outcome: Outcome
    cells: tuple[int, ...]
    abnormal_probability: float | None


@dataclass(frozen=True)
class Round:
    """One round: what the decoder read (token count), what it wrote, which organs that named."""

    text: str
    organs: tuple[OrganMention, ...]
    tokens_in: int
    tokens_out: int
    complete: bool  # False when the round was cut by its token limit
    mean_log_probability: float


@dataclass(frozen=True)
class Trace:
    """A whole run. `rounds[0]` answers from the global tokens and the question alone (Eq. 4)."""

    rounds: tuple[Round, ...]
    stop_reason: StopReason
