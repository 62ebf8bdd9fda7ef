"""Multimodal rotary positions of rows of words and pictures (M-RoPE), made on the host.

A word has one position three times. The visual tokens of a picture share their time and have rows
and columns of their own; the words behind it go on from where the longer side of its grid ends.

Shape letters: B rows, T positions.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from tumorchain_jax.models.qwen_vl.plan import MERGE, Grid


class Positions(NamedTuple):
    """Rotary positions of rows.

    Attributes:
        positions: by time, height and width; 0 at pads.
        delta: of each row, what the position of a word behind it has over the number of tokens
            before that word.
    """

    positions: Int[np.ndarray, "3 B T"]
    delta: Int[np.ndarray, " B"]


def rope_positions(
    is_picture: Bool[np.ndarray, "B T"],
    valid: Bool[np.ndarray, "B T"],
    grids: Sequence[Sequence[Grid]],
) -> Positions:
    """Positions of each row, pads anywhere.

    Source: transformers 5.23, `Qwen2_5_VLModel.get_rope_index`, for pictures (no videos).

    Args:
        is_picture: where a visual token stands.
        valid: where there is no pad.
        grids: the pictures of each row in order, in patches.

    Raises:
        ValueError: the visual tokens of a row are not those of its pictures, or a picture is torn.
    """
    found = Positions(np.zeros((3, *valid.shape), np.int32), np.zeros(len(valid), np.int32))
    for row, pictures in enumerate(grids):
        [where] = np.nonzero(valid[row])
        kinds = is_picture[row, where]
        places: list[np.ndarray] = []
        left, at, current = list(pictures), 0, 0
        while at < len(kinds):
            if not kinds[at]:
                count = int(np.argmax(kinds[at:])) if kinds[at:].any() else len(kinds) - at
                places.append(np.broadcast_to(current + np.arange(count), (3, count)))
                current += count
            else:
                rows, columns = (side // MERGE for side in left.pop(0)) if left else (0, 0)
                count = rows * columns
                if not count or not kinds[at : at + count].all() or at + count > len(kinds):
                    raise ValueError(f"row {row}: visual tokens that no picture is for")
                grid = np.stack([np.zeros((rows, columns), int), *np.indices((rows, columns))])
                places.append(current + grid.reshape(3, count))
                current += max(rows, columns)
            at += count
        if left:
            raise ValueError(f"row {row}: {len(left)} pictures without visual tokens")
        if places:
            found.positions[:, row, where] = np.concatenate(places, axis=1)
        found.delta[row] = current - len(kinds)
    return found
