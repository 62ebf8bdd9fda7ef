"""Trace of a run of the reasoning loop, as plain host-side values."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from tumorchain_jax.anatomy.organs import ORGANS
from tumorchain_jax.models.language.tokenizer import Tokenizer
from tumorchain_jax.reasoning.interleaved import MAX_ROUNDS, NO_NEW_ORGAN, TOKEN_BUDGET, Result
from tumorchain_jax.reasoning.organ_cells import OrganCells
from tumorchain_jax.reasoning.organ_matcher import NONE, character_span

StopReason = Literal["no_new_organ", "max_rounds", "token_budget"]
Outcome = Literal["looked_at", "already_seen", "not_in_mask", "over_limit", "stopped"]


@dataclass(frozen=True)
class OrganMention:
    """An organ named in a round's text, and its outcome.

    Attributes:
        label: merged organ id, 1..56 (Table 10).
        organ: its name in Table 10, e.g. `kidney_left`.
        matched: the words that named it, e.g. `left kidney`.
        span: (start, end) of those words in the round's text, in characters.
        outcome: `looked_at` when its ROI tokens entered before the next round; else why not.
        cells: raster indices of its ROI cells in the token grid, empty when it has none.
        abnormal_probability: the organ classifier's, None when the organ has no ROI cells.
        crop: number of the crop whose token grid that is; None if it is the scan's.
    """

    label: int
    organ: str
    matched: str
    span: tuple[int, int]
    outcome: Outcome
    cells: tuple[int, ...]
    abnormal_probability: float | None
    crop: int | None = None


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


STOP_REASONS: dict[int, StopReason] = {
    NO_NEW_ORGAN: "no_new_organ",
    MAX_ROUNDS: "max_rounds",
    TOKEN_BUDGET: "token_budget",
}


def build_trace(
    result: Result,
    row: int,
    tokenizer: Tokenizer,
    cells: OrganCells,
    abnormal: np.ndarray,
    visited: np.ndarray,
) -> Trace:
    """One row of a loop's result, in words.

    Args:
        result: on the host (numpy arrays).
        row: of the batch.
        cells: the scan's ROI cells.
        abnormal: `[O]`, the classifier's probability of each organ.
        visited: `[O]`, organs that the prompt had already looked at.
    """
    rounds = []
    seen = visited.copy()
    for number in range(int(result.rounds[row])):
        looked_at = np.asarray(result.looked_at[number, row])
        length = int(result.written.length[number, row])
        text = tokenizer.decode_bytes(result.written.tokens[number, row, :length].tolist())
        mentions = _mentions(text, result, number, row)
        organs = tuple(
            OrganMention(
                label,
                ORGANS[label],
                matched,
                span,
                _outcome(label, looked_at, seen, cells),
                tuple(cells.cells[label][cells.valid[label]].tolist()),
                float(abnormal[label]) if cells.valid[label].any() else None,
                int(cells.view[label]) - 1 if cells.view[label] else None,
            )
            for label, matched, span in mentions
        )
        log_probabilities = result.written.log_probabilities[number, row, :length]
        rounds.append(
            Round(
                text.decode("utf-8", errors="replace"),
                organs,
                int(result.tokens_in[number, row]),
                length,
                bool(result.written.complete[number, row]),
                float(log_probabilities.mean()) if length else 0.0,
            )
        )
        seen |= looked_at
    return Trace(tuple(rounds), STOP_REASONS[int(result.stop_reason[row])])


def _mentions(
    text: bytes, result: Result, number: int, row: int
) -> list[tuple[int, str, tuple[int, int]]]:
    """(label, words, character span) of the organs a round named, in the order of mention."""
    first = np.asarray(result.matches.first[number, row]).tolist()
    end = np.asarray(result.matches.end[number, row]).tolist()
    named = [label for label, offset in enumerate(first) if offset != NONE]
    return [
        (
            label,
            text[first[label] : end[label]].decode("utf-8", errors="replace"),
            character_span(text, first[label], end[label]),
        )
        for label in sorted(named, key=lambda label: first[label])
    ]


def _outcome(label: int, looked_at: np.ndarray, seen: np.ndarray, cells: OrganCells) -> Outcome:
    if looked_at[label]:
        return "looked_at"
    if seen[label]:
        return "already_seen"
    if not cells.valid[label].any():
        return "not_in_mask"
    return "over_limit" if looked_at.any() else "stopped"
