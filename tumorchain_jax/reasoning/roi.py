"""The turn between two rounds, built on the device: ROI prompt and ROI tokens (Eq. 5 and 6).

The same positions as `reasoning/prompt.py: Chat.look_again`, in buffers of fixed shape: which
organs, and how many ROI tokens each has, only changes which positions are valid.

Shape letters: B batch, O organs, Q organs looked at in a turn, L ROI slots, S words of a sentence,
K positions of a turn.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from tumorchain_jax.anatomy.organs import ORGANS
from tumorchain_jax.reasoning.prompt import TEXT, Chat


class Turn(NamedTuple):
    """Positions to read: a token or a bank row each (`TEXT` for a token), and which count."""

    tokens: Int[Array, "B K"]
    visual_index: Int[Array, "B K"]
    valid: Bool[Array, "B K"]


class RoiPrompt(NamedTuple):
    """The template's words as arrays: what opens and closes a turn, and each organ's sentence."""

    opening: Int[Array, " A"]
    sentences: Int[Array, "O S"]
    sentence_lengths: Int[Array, " O"]
    vision_start: Int[Array, ""]
    vision_end: Int[Array, ""]
    closing: Int[Array, " C"]


def build_roi_prompt(chat: Chat) -> RoiPrompt:
    """Tokenize the template once; row 0 of the sentences (background) is empty."""
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
    """The turn that looks at `organs`, in their order; 0 is no organ, a row of zeros no turn."""
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
