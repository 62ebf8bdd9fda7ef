"""Records -> rows of tokens that the decoder is trained on (Eq. 3 and 7)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tumorchain_jax.data.schema import Record, RoundTarget
from tumorchain_jax.reasoning.prompt import Chat, History, Interleaved, initial_rois


def training_rows(
    chat: Chat,
    record: Record,
    global_tokens: int,
    roi_index: Mapping[int, Sequence[int] | np.ndarray],
    history: History,
    initial_roi: bool = False,
) -> list[Interleaved]:
    """Build the training rows of a record.

    With `history: all` (Eq. 3) one row holds every round; with `latest` (Eq. 7) each round is a row
    of its own: question, last answer, new ROI, answer. The token that ends an answer is a target.

    Args:
        roi_index: organ -> indices of its ROI tokens among the scan's visual tokens; it must have
            every organ that a round looks at.
        initial_roi: the question's turn holds the ROI of the organs it names. As the loop does not
            look at them again, the texts before and after that look become one answer.
    """
    rois = initial_rois(record.question, roi_index) if initial_roi else []
    targets = _as_the_loop_runs(record.rounds, {label for label, _ in rois})
    row = question = chat.question(record.question, record.choices, global_tokens, rois)
    rows: list[Interleaved] = []
    for number, target in enumerate(targets):
        if number > 0:
            row = row + chat.look_again((label, roi_index[label]) for label in target.look_at)
        row = row + chat.answer(target.text, target=not target.given)
        if history == "latest":
            if not target.given:
                rows.append(row)
            row = question + chat.answer(target.text, target=False)
    return rows if history == "latest" else [row]


def _as_the_loop_runs(rounds: Sequence[RoundTarget], seen: set[int]) -> list[RoundTarget]:
    """Remove repeated looks at an organ; join rounds between which nothing is looked at.

    A given text without a look after it is dropped, as nothing recovers from it.

    Args:
        seen: organs that the question's turn shows.
    """
    merged = [rounds[0]]
    for target in rounds[1:]:
        look_at = tuple(label for label in target.look_at if label not in seen)
        seen = seen | set(look_at)
        last = merged[-1]
        if look_at:
            merged.append(replace(target, look_at=look_at))
        elif last.given:
            merged[-1] = replace(target, look_at=last.look_at)
        else:
            merged[-1] = replace(last, text=f"{last.text} {target.text}")
    return merged
