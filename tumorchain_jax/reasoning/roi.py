"""The turns of the interleaved prompt on the device, in buffers of fixed shape (Eq. 5 to 7).

Each function is the twin of one that builds the same positions on the host, for training:

    Eq. 5    build_roi_prompt    prompt.py: Chat.attention_sentence
    Eq. 6    roi_turn            prompt.py: Chat.look_again
    Eq. 7    after_answer        data/training_rows.py: training_rows (`history: latest`)

The prompt of Eq. 4 (`Chat.question`) is built on the host in both. Which organs a turn looks at,
and how many ROI tokens each has, only changes which positions are valid.

Shape letters: B batch, O organs, Q organs looked at in a turn, L ROI slots, S tokens of a sentence,
T tokens of a round, K positions of a turn.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from tumorchain_jax.anatomy.organs import ORGANS
from tumorchain_jax.reasoning.prompt import TEXT, Chat


class Turn(NamedTuple):
    """Positions to read: a token or a visual index each (`TEXT` for a token)."""

    tokens: Int[Array, "B K"]
    visual_index: Int[Array, "B K"]
    valid: Bool[Array, "B K"]


class RoiPrompt(NamedTuple):
    """The template as arrays: start and end of a turn, and each organ's sentence (Eq. 5)."""

    opening: Int[Array, " A"]
    sentences: Int[Array, "O S"]
    sentence_lengths: Int[Array, " O"]
    vision_start: Int[Array, ""]
    vision_end: Int[Array, ""]
    closing: Int[Array, " C"]


def build_roi_prompt(chat: Chat) -> RoiPrompt:
    """Tokenize the template and the ROI prompts (Eq. 5) once; row 0 (background) is empty."""
    sentences = [[], *(chat.attention_sentence(label) for label in range(1, len(ORGANS)))]
    lengths = np.array([len(sentence) for sentence in sentences], np.int32)
    table = np.zeros((len(sentences), lengths.max()), np.int32)
    for row, sentence in zip(table, sentences, strict=True):
        row[: len(sentence)] = sentence
    tokenizer = chat.tokenizer
    # The token that ended the answer was not read when it was generated: the turn begins with it.
    opening = [tokenizer.im_end, *chat.open_user]
    return RoiPrompt(
        jnp.asarray(opening, jnp.int32),
        jnp.asarray(table),
        jnp.asarray(lengths),
        jnp.asarray(tokenizer.vision_start, jnp.int32),
        jnp.asarray(tokenizer.vision_end, jnp.int32),
        jnp.asarray(chat.open_assistant, jnp.int32),
    )


def roi_turn(
    prompt: RoiPrompt,
    organs: Int[Array, "B Q"],
    roi_index: Int[Array, "B O L"],
    roi_valid: Bool[Array, "B O L"],
) -> Turn:
    """Build the turn that looks at `organs`, in their order (Eq. 6).

    Args:
        organs: labels; 0 is no organ, a row of zeros no turn.
    """
    B, Q = organs.shape
    rows = jnp.arange(B)[:, None]
    one = (B, Q, 1)
    words = prompt.sentences[organs]
    word_valid = jnp.arange(words.shape[-1]) < prompt.sentence_lengths[organs][..., None]
    cells, cell_valid = roi_index[rows, organs], roi_valid[rows, organs]
    present = (organs > 0)[..., None]

    # Each organ: sentence, vision start, ROI tokens, vision end.
    tokens = jnp.concatenate(
        [
            words,
            jnp.full(one, prompt.vision_start),
            jnp.zeros_like(cells),
            jnp.full(one, prompt.vision_end),
        ],
        axis=-1,
    )
    text = jnp.full_like(words, TEXT), jnp.full(one, TEXT)
    visual_index = jnp.concatenate([text[0], text[1], cells, text[1]], axis=-1)
    valid = present & jnp.concatenate([word_valid, present, cell_valid, present], axis=-1)

    def around(middle: Array, opening: Array, closing: Array) -> Array:
        ends = (jnp.broadcast_to(end, (B, *end.shape)) for end in (opening, closing))
        first, last = ends
        return jnp.concatenate([first, middle.reshape(B, -1), last], axis=1)

    opening, closing = prompt.opening, prompt.closing
    any_organ = jnp.any(organs > 0, axis=1, keepdims=True)
    return Turn(
        around(tokens, opening, closing),
        around(visual_index, jnp.full_like(opening, TEXT), jnp.full_like(closing, TEXT)),
        any_organ & around(valid, opening >= 0, closing >= 0),
    )


def after_answer(
    tokens: Int[Array, "B T"], length: Int[Array, " B"], turn: Turn, running: Bool[Array, " B"]
) -> Turn:
    """Put the answer just written before a turn (Eq. 7), in rows that are running.

    With `history: latest` the cache is cut back to the question, so the answer is read again.
    """
    is_answer = jnp.arange(tokens.shape[1]) < length[:, None]
    return Turn(
        jnp.concatenate([tokens, turn.tokens], axis=1),
        jnp.concatenate([jnp.full_like(tokens, TEXT), turn.visual_index], axis=1),
        jnp.concatenate([is_answer & running[:, None], turn.valid], axis=1),
    )
