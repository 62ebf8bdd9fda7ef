"""The turn between two rounds as the device builds it, against the chat template's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tumorchain_jax.anatomy.organs import ORGANS
from tumorchain_jax.reasoning.prompt import TEXT, Chat
from tumorchain_jax.reasoning.roi import RoiPrompt, Turn, build_roi_prompt, roi_turn

pytestmark = pytest.mark.program

SLOTS = 6
turn_of = jax.jit(roi_turn)


@pytest.fixture(scope="module")
def roi_prompt(chat: Chat) -> RoiPrompt:
    return build_roi_prompt(chat)


def read_from(turn: Turn, row: int) -> tuple[list[int], list[int]]:
    """Tokens and visual indices of the valid positions; a visual position's token says nothing."""
    tokens, visual_index, valid = (np.asarray(leaf[row]) for leaf in turn)
    tokens, visual_index = tokens[valid], visual_index[valid]
    return np.where(visual_index == TEXT, tokens, 0).tolist(), visual_index.tolist()


def test_equals_the_chat_template(chat: Chat, roi_prompt: RoiPrompt) -> None:
    rng = np.random.default_rng(0)
    im_end, image_pad = chat.tokenizer.im_end, chat.tokenizer.image_pad
    lengths = set()
    for _ in range(20):
        roi_index = np.sort(rng.integers(0, 900, (3, len(ORGANS), SLOTS)), axis=-1).astype(np.int32)
        sizes = rng.integers(1, SLOTS + 1, (3, len(ORGANS)))
        roi_valid = np.arange(SLOTS) < sizes[:, :, None]
        organs = np.zeros((3, 3), np.int32)
        for row in organs:
            count = rng.integers(0, 4)
            row[:count] = rng.choice(np.arange(1, len(ORGANS)), count, replace=False)
        turn = turn_of(roi_prompt, organs, roi_index, roi_valid)
        for b, named in enumerate(organs.tolist()):
            rois = [(o, roi_index[b, o, : sizes[b, o]].tolist()) for o in named if o]
            expected = chat.look_again(rois)
            tokens = [im_end, *(0 if t == image_pad else t for t in expected.tokens)]
            both = (tokens, [TEXT, *expected.visual_index]) if rois else ([], [])
            assert read_from(turn, b) == both
            assert bool(turn.valid[b, -1]) == bool(rois)  # the next token follows the last position
            lengths.add(len(both[0]))
    assert 0 in lengths
    assert len(lengths) > 15


def test_every_organ_has_its_own_sentence(chat: Chat, roi_prompt: RoiPrompt) -> None:
    organs = jnp.arange(len(ORGANS), dtype=jnp.int32)[:, None]
    roi_index = jnp.full((len(ORGANS), len(ORGANS), 1), 7)
    turn = turn_of(roi_prompt, organs, roi_index, roi_index > 0)
    texts = [chat.tokenizer.decode(read_from(turn, label)[0]) for label in range(len(ORGANS))]
    assert texts[0] == ""
    assert "The question requires greater attention to the left kidney." in texts[3]
    assert len(set(texts)) == len(ORGANS)
