"""Chats about pictures as examples of fixed shape, checked before the first is needed.

Shape letters: T positions of a row, P patches, F values of a patch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from ml_collections import ConfigDict

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.remote import as_path, local_copy
from tumorchain_jax.data.chat_rows import IMAGE, ChatRow, read_chat_rows
from tumorchain_jax.data.pipeline import Example
from tumorchain_jax.models.language.tokenizer import Tokenizer
from tumorchain_jax.models.qwen_vl.pictures import (
    PictureConfig,
    bucketed,
    grid_of,
    open_picture,
    patches_of,
)
from tumorchain_jax.models.qwen_vl.plan import Grid
from tumorchain_jax.models.qwen_vl.positions import rope_positions
from tumorchain_jax.models.qwen_vl.prompt import encode_chat
from tumorchain_jax.models.qwen_vl.tower import TowerConfig
from tumorchain_jax.training.vision_language.variants import varied


@dataclass(frozen=True)
class Layout:
    """The fixed shapes of an example.

    Attributes:
        length: T, positions of a row.
        patches: P, of all pictures of a row.
        variants: of each row in an epoch, see `variants.py`.
    """

    tower: TowerConfig
    pictures: PictureConfig
    length: int
    patches: int
    variants: int = 1


class ChatSource:
    """Random access to examples, for `data/pipeline.py: batches`.

    Tokens of all rows are made at once, and the header of each picture is read, so that a row that
    does not fit is refused here. Pixels are read when an example is.

    Raises:
        InputError: a row is longer than `length`, its pictures have more than `patches`, a text
            would be read as a place for a picture, or a picture's header cannot be read.
    """

    def __init__(self, rows: Sequence[ChatRow], tokenizer: Tokenizer, layout: Layout):
        self.rows, self.layout, self._image_pad = rows, layout, tokenizer.image_pad
        self._pad = tokenizer.pad
        grids: dict[Path, Grid] = {}
        self.encoded = []
        for row in rows:
            for path in row.pictures:
                if path not in grids:
                    header = open_picture(path, decode=False)
                    try:
                        size = (header.height, header.width)
                        grids[path] = grid_of(*size, layout.tower, layout.pictures)
                    except InputError as error:
                        rest = (error.field, error.found, error.expected, error.hint)
                        raise InputError(path, *rest) from error
            self.encoded.append(
                _encode(row, [grids[path] for path in row.pictures], tokenizer, layout)
            )

    def __len__(self) -> int:
        return len(self.rows) * self.layout.variants

    def name(self, index: int) -> str:
        """Where a row was read."""
        return self.rows[index % len(self.rows)].name

    def __getitem__(self, index: int) -> Example:
        variant, index = divmod(index, len(self.rows))
        layout, row = self.layout, self.rows[index]
        tokens, answers = self.encoded[index]
        shown = varied([open_picture(path) for path in row.pictures], index, variant)
        cut = [patches_of(picture, layout.tower, layout.pictures) for picture in shown]
        pictures = bucketed([cut], layout.tower, layout.patches)
        padded = np.full(layout.length, self._pad, np.int32)
        valid, learnt = np.zeros((2, layout.length), bool)
        padded[: len(tokens)], valid[: len(tokens)] = tokens, True
        for start, stop in answers:
            learnt[start:stop] = True
        is_picture = valid & (padded == self._image_pad)
        grids = [[grid for _, grid in cut]]
        positions = rope_positions(is_picture[None], valid[None], grids).positions[:, 0]
        return {
            **{name: value[0] for name, value in pictures._asdict().items()},
            "tokens": padded,
            "is_picture": is_picture,
            "loss_mask": learnt,
            "valid": valid,
            "positions": positions,
        }


def _encode(
    row: ChatRow, grids: Sequence[Grid], tokenizer: Tokenizer, layout: Layout
) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """Tokens of a row, and where the answers are that are learnt."""
    spoken = [(turn.role, turn.text.split(IMAGE)) for turn in row.turns]
    tokens, answers = encode_chat(tokenizer, spoken, grids, row.name)
    if (patches := sum(rows * columns for rows, columns in grids)) > layout.patches:
        found, expected = f"pictures of {patches} patches", f"at most {layout.patches}"
        hint = "lower config.pictures.max_pixels, or raise config.data.patches"
        raise InputError(row.name, "images", found, expected, hint)
    if len(tokens) > layout.length:
        found, expected = f"{len(tokens)} positions", f"at most {layout.length}"
        raise InputError(row.name, "row", found, expected, "raise config.data.length")
    learnt = [turn.learnt for turn in row.turns if turn.role == "assistant"]
    chosen = [place for place, each in zip(answers, learnt, strict=True) if each]
    return np.array(tokens, np.int32), chosen


def open_source(config: ConfigDict, tokenizer: Tokenizer) -> ChatSource:
    """The rows that a configuration names.

    Raises:
        InputError: there are none, or one does not fit.
    """
    if not config.data.folder:
        expected, hint = "a folder of rows and pictures", "set --config.data.folder"
        raise InputError("config", "data.folder", "none", expected, hint)
    folder = local_copy(as_path(config.data.folder))
    data, model = config.data, config.model
    if data.variants < 1:
        found, expected = str(data.variants), "1 or more"
        raise InputError("config", "data.variants", found, expected, "change it")
    layout = Layout(model.tower, config.pictures, data.length, data.patches, data.variants)
    source = ChatSource(read_chat_rows(folder / data.rows), tokenizer, layout)
    if len(source) < config.batch_size:
        found, expected = str(len(source)), f"at least the {config.batch_size} of a batch"
        hint = "lower config.batch_size, or add data"
        raise InputError(folder / data.rows, "rows", found, expected, hint)
    return source
